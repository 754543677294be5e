//! Generations on trial: who gets which, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::time::{Duration, Instant};

use common::{Host, idle, trapping, wait_for};
use weir_plugin::{CanaryPlan, Deployed, Deployment, PluginError, State};

fn try_out(host: &Host, module: String, share: f64, seconds: u64) -> Result<Deployed, PluginError> {
    let canary = Some(CanaryPlan { share, duration: Duration::from_secs(seconds) });
    host.plugins.deploy(Deployment { canary, ..Deployment::new("gray", module) })
}

#[test]
fn one_that_does_well_is_promoted_at_the_end() {
    let host = Host::new();
    host.deploy("gray", &idle(1)).unwrap();
    let began = Instant::now();
    let deployed = try_out(&host, idle(2), 0.2, 2).unwrap();
    assert_eq!((deployed.state, deployed.generation), ("canary", 2));
    let plugin = host.plugins.plugin("gray").unwrap();
    assert_eq!(
        plugin.canary().map(|(generation, share)| (generation.number(), share)),
        Some((2, 2000))
    );
    let mut picked = [0; 2];
    for _ in 0..5000 {
        picked[plugin.pick().unwrap().number() as usize - 1] += 1;
    }
    // Six standard deviations.
    assert!((830..1170).contains(&picked[1]), "{picked:?}");
    for _ in 0..50 {
        assert!(host.pass("gray").failure.is_none());
    }
    let shown = host.plugins.show("gray").unwrap();
    let canary = shown.summary.canary.unwrap();
    assert_eq!(
        (shown.summary.state, canary.generation, canary.share_percent),
        (State::Canary, 2, 20.0)
    );
    assert!(canary.remaining_ms <= 2000 && shown.summary.generation == Some(1));
    assert_eq!(shown.summary.counted.streams + canary.counted.streams, 50);
    assert!(wait_for(|| host.active("gray").number() == 2));
    assert!(began.elapsed() >= Duration::from_secs(2));
    let shown = host.plugins.show("gray").unwrap();
    assert_eq!(shown.last_canary.as_deref(), Some("generation 2 was promoted"));
    assert_eq!(shown.history.len(), 1);
    assert_eq!(plugin.totals().stats.streams, 50);
    assert_eq!(host.plugins.rollback("gray").unwrap().digest, shown.history[0].digest);
}

#[test]
fn one_that_fails_is_taken_back_early() {
    let host = Host::new();
    host.deploy("gray", &idle(1)).unwrap();
    try_out(&host, trapping(2), 0.5, 600).unwrap();
    let canary =
        std::sync::Arc::downgrade(&host.plugins.plugin("gray").unwrap().canary().unwrap().0);
    for _ in 0..40 {
        let _ = host.open("gray").map(|stream| host.show(&stream));
    }
    let ended = wait_for(|| host.plugins.plugin("gray").unwrap().canary().is_none());
    assert!(ended);
    let shown = host.plugins.show("gray").unwrap();
    let why = shown.last_canary.unwrap();
    assert!(why.starts_with("generation 2 was rolled back: it failed too often"), "{why}");
    assert_eq!((shown.summary.generation, shown.summary.state), (Some(1), State::Active));
    assert!(shown.history.is_empty());
    assert!(wait_for(|| canary.upgrade().is_none()), "and its memory with it");
    assert!(host.pass("gray").failure.is_none());
}

#[test]
fn a_trial_can_be_ended_by_hand() {
    let host = Host::new();
    host.deploy("gray", &idle(1)).unwrap();
    try_out(&host, idle(2), 1.0, 600).unwrap();
    assert_eq!(host.pass("gray").failure.map(|f| f.message), None);
    let back = host.plugins.rollback("gray").unwrap();
    assert_eq!((back.generation, back.state), (1, "active"));
    assert!(matches!(host.plugins.rollback("gray"), Err(PluginError::NothingBefore { .. })));
    // Another deployment ends it too, and so does a removal.
    try_out(&host, idle(3), 0.1, 600).unwrap();
    host.deploy("gray", &idle(4)).unwrap();
    assert!(host.plugins.plugin("gray").unwrap().canary().is_none());
    try_out(&host, idle(5), 0.1, 600).unwrap();
    host.plugins.remove("gray").unwrap();
    // The first generation of a plugin may be on trial as well.
    assert_eq!(try_out(&host, idle(6), 0.5, 600).unwrap().state, "canary");
    assert_eq!(host.plugins.attachments().len(), 1);
    let picked = (0..100).filter_map(|_| host.plugins.plugin("gray").unwrap().pick()).count();
    assert!((10..90).contains(&picked), "{picked}");
    assert_eq!(host.plugins.list()[0].generation, None);
    assert_eq!(host.plugins.rollback("gray").unwrap().state, "removed");
    assert!(host.plugins.list().is_empty());
}

#[test]
fn share_and_time_have_ranges() {
    let host = Host::new();
    for (share, seconds, word) in [
        (0.0, 60, "canary must be a share of the requests from 0.01% to 100%, not 0%"),
        (1.01, 60, "canary"),
        (f64::NAN, 60, "canary"),
        (0.05, 0, "the time of a canary must be over 0"),
        (0.05, 8 * 86_400, "at most 7 days"),
    ] {
        let error = try_out(&host, idle(1), share, seconds).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(host.plugins.list().is_empty());
}
