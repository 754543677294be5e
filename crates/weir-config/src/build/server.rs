//! The `server` and `cache` blocks.

use crate::check::Line;
use crate::model::{Address, Cache, Limits, Policy, Server};
use crate::prefix::Prefix;
use crate::value::Value;

use super::Build;

/// The share of the cache that one object may fill unless the file says otherwise: large enough
/// for what sites serve, small enough that one download does not empty the cache.
const OBJECT_SHARE: u64 = 8;

impl Build<'_, '_> {
    pub(super) fn server(&mut self, line: &Line) -> Option<Server> {
        let lines = &line.lines;
        let workers = match lines.value::<Value>("workers")? {
            Value::Number(count) => Some(usize::try_from(count).ok()?),
            _ => None,
        };
        if let (Some(group), None) = (lines.one("group"), lines.one("user")) {
            self.source.error(group.span, "`group` needs `user`").expect(["user \"…\""]);
        }
        Some(Server {
            workers,
            admin: self.admin(lines.one("admin")?)?,
            user: lines.value("user"),
            keep_bpf: match lines.one("user") {
                Some(user) => user.value("keep-bpf")?,
                None => false,
            },
            group: lines.value("group"),
            watch: lines.value("watch")?,
            drain_timeout: lines.value("drain-timeout")?,
            trusted_proxies: trusted_proxies(lines.one("trusted-proxies")),
            limits: limits(lines.one("limits")?)?,
        })
    }

    /// `Some(None)` is "off".
    fn admin(&mut self, line: &Line) -> Option<Option<Address>> {
        let address = match line.value::<Value>("address")? {
            Value::Address(address) => address,
            _ => return Some(None),
        };
        let is_remote = match &address {
            Address::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => false,
        };
        if is_remote && !line.value::<bool>("allow-remote")? {
            let message = "other machines could reach the admin API at this address";
            self.source.error(line.span_of("address"), message).expect([
                "a loopback address such as \"127.0.0.1:9900\"",
                "\"unix:/run/weir/admin.sock\"",
                "allow-remote=#true after the address, if that is meant",
            ]);
        }
        Some(Some(address))
    }

    pub(super) fn cache(&mut self, line: &Line) -> Option<Cache> {
        let lines = &line.lines;
        let memory: u64 = lines.value("memory")?;
        let object_max = match lines.one("object-max") {
            None => memory / OBJECT_SHARE,
            Some(line) => {
                let object_max: u64 = line.value("size")?;
                if object_max > memory {
                    let message = "`object-max` is larger than the cache's `memory`";
                    self.source.error(line.span_of("size"), message);
                }
                object_max
            }
        };
        let policy = match lines.value::<&str>("policy")? {
            "lru" => Policy::Lru,
            _ => Policy::Gdsf,
        };
        Some(Cache { memory, object_max, policy })
    }
}

fn trusted_proxies(line: Option<&Line>) -> Vec<Prefix> {
    let prefixes = line.map(|line| line.values("prefix")).unwrap_or_default();
    prefixes.into_iter().map(|(prefix, _)| prefix).collect()
}

fn limits(line: &Line) -> Option<Limits> {
    let lines = &line.lines;
    Some(Limits {
        connections: lines.value("connections")?,
        header_size: lines.value("header-size")?,
        header_count: lines.value("header-count")?,
        body_size: lines.value("body-size")?,
        body_buffer: lines.value("body-buffer")?,
        body_min_rate: lines.value("body-min-rate")?,
        header_timeout: lines.value("header-timeout")?,
        body_timeout: lines.value("body-timeout")?,
        send_timeout: lines.value("send-timeout")?,
        idle_timeout: lines.value("idle-timeout")?,
        http2_streams: lines.value("http2-streams")?,
    })
}
