//! Host functions for the log, clocks and timers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::log::{self, Level};

pub(super) fn log(plugin: &mut Plugin<'_>, level: u32, data: u32, size: u32) -> Outcome {
    let level = Level::new(level).ok_or(Status::BadArgument)?;
    let text = plugin.bytes(data, size)?;
    log::say(plugin.environment(), level, text);
    Ok(())
}

pub(super) fn log_level(plugin: &mut Plugin<'_>, return_level: u32) -> Outcome {
    plugin.write_u32(return_level, Level::enabled() as u32)
}

pub(super) fn time(plugin: &mut Plugin<'_>, return_time: u32) -> Outcome {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    plugin.write_u64(return_time, u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

pub(super) fn set_tick_period(plugin: &mut Plugin<'_>, period_ms: u32) -> Outcome {
    let host = plugin.host();
    host.proxy_wasm.timer.set(&host.home, Duration::from_millis(u64::from(period_ms)));
    Ok(())
}
