//! Passive ejection and active checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use weir_config::{HealthCheck, Passive, UpstreamProtocol};

use crate::support::*;

#[tokio::test]
async fn a_failing_server_rests_and_comes_back() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&broken);
    let (bad, bad_seen) = origin(move |_, _| match state.load(Ordering::SeqCst) {
        true => Act::Close,
        false => ok("back"),
    })
    .await;
    let (good, _) = origin(|_, _| ok("good")).await;
    let mut config = config(&[bad, good]);
    config.passive = Passive { failures: 2, window: LONG, eject: Duration::from_millis(300) };
    let group = group(&config);
    let mut failed = 0;
    for _ in 0..10 {
        failed += u32::from(text(&group, get("/")).await.is_err());
    }
    assert_eq!(failed, 2);
    assert_eq!(bad_seen.requests().len(), 2, "ejected after two failures");
    let ejected = status(&group, 0);
    assert!(!ejected.healthy && ejected.ejected_ms.unwrap() <= 300, "{ejected:?}");

    broken.store(false, Ordering::SeqCst);
    until("back in rotation", || status(&group, 0).healthy).await;
    let answers = [text(&group, get("/")).await.unwrap(), text(&group, get("/")).await.unwrap()];
    assert!(answers.contains(&"back".into()), "{answers:?}");
}

#[tokio::test]
async fn the_last_server_is_never_ejected() {
    let (bad, _) = origin(|_, _| Act::Close).await;
    let (worse, _) = origin(|_, _| Act::Close).await;
    let mut config = config(&[bad, worse]);
    config.passive = Passive { failures: 1, window: LONG, eject: LONG };
    let group = group(&config);
    for _ in 0..6 {
        text(&group, get("/")).await.unwrap_err();
    }
    let healthy = group.status().servers.iter().filter(|server| server.healthy).count();
    assert_eq!(healthy, 1);
}

#[tokio::test]
async fn a_body_cut_short_counts_as_failure() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let (bad, _) = origin(move |_, _| Act::Last(cut.into())).await;
    let (good, _) = origin(|_, _| ok("good")).await;
    let mut config = config(&[bad, good]);
    config.passive = Passive { failures: 1, window: LONG, eject: LONG };
    let group = group(&config);
    text(&group, get("/")).await.unwrap_err();
    for _ in 0..4 {
        assert_eq!(text(&group, get("/")).await.unwrap(), "good");
    }
}

/// A server whose health is a status code, and a check for it.
async fn checked(count: usize) -> (weir_config::Upstream, Vec<Arc<AtomicU16>>, Vec<Arc<Seen>>) {
    let (mut addresses, mut codes, mut seens) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let code = Arc::new(AtomicU16::new(200));
        let state = Arc::clone(&code);
        let (address, seen) = origin(move |_, _| {
            let code = state.load(Ordering::SeqCst);
            Act::Say(format!("HTTP/1.1 {code} Health\r\ncontent-length: 0\r\n\r\n"))
        })
        .await;
        addresses.push(address);
        codes.push(code);
        seens.push(seen);
    }
    let mut config = config(&addresses);
    config.health_check = Some(HealthCheck {
        path: "/health?deep=1".into(),
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(5),
        healthy: 2,
        unhealthy: 3,
        status: (200, 399),
    });
    (config, codes, seens)
}

#[tokio::test]
async fn active_checks_take_a_server_out_and_bring_it_back() {
    let (config, codes, seens) = checked(2).await;
    let group = group(&config);
    group.spawn_health_checks();
    until("probed", || !seens[0].requests().is_empty()).await;
    let probe = seens[0].requests()[0].clone();
    assert!(probe.starts_with("GET /health?deep=1 HTTP/1.1\r\n"), "{probe}");
    assert!(probe.contains(&format!("host: {}\r\n", config.servers[0].authority)), "{probe}");

    codes[0].store(503, Ordering::SeqCst);
    until("down", || status(&group, 0).down).await;
    assert!(!status(&group, 0).healthy && status(&group, 1).healthy);
    for _ in 0..4 {
        assert_eq!(send(&group, get("/")).await.unwrap().status(), 200);
    }
    codes[0].store(302, Ordering::SeqCst);
    until("up", || status(&group, 0).healthy).await;
    let counted = status(&group, 0);
    assert_eq!((counted.requests, counted.failures.len()), (0, 0), "probes are not requests");
}

#[tokio::test]
async fn with_all_servers_down_requests_are_tried_all_the_same() {
    let (config, codes, _) = checked(2).await;
    codes.iter().for_each(|code| code.store(500, Ordering::SeqCst));
    let group = group(&config);
    group.spawn_health_checks();
    until("all down", || group.status().servers.iter().all(|server| server.down)).await;
    assert_eq!(send(&group, get("/")).await.unwrap().status(), 500);
    assert_eq!(group.status().servers.iter().map(|server| server.requests).sum::<u64>(), 1);
}

#[tokio::test]
async fn a_probe_that_hangs_or_cannot_connect_fails() {
    let (hangs, _) = origin(|_, _| Act::Stall(String::new())).await;
    let (mut config, ..) = checked(0).await;
    config.servers = vec![server(hangs), server(refusing().await)];
    let check = config.health_check.as_mut().unwrap();
    check.timeout = SHORT;
    let group = group(&config);
    group.spawn_health_checks();
    until("both down", || group.status().servers.iter().all(|server| server.down)).await;
}

#[tokio::test]
async fn probes_end_with_the_group() {
    let (config, _, seens) = checked(1).await;
    let group = group(&config);
    group.spawn_health_checks();
    until("probed", || seens[0].requests().len() > 1).await;
    drop(group);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let count = seens[0].requests().len();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(seens[0].requests().len(), count);
}

#[tokio::test]
async fn probes_speak_the_groups_protocol() {
    let (address, seen) = crate::http2::origin_h2(|_| http::Response::new("ok".into())).await;
    let (mut config, ..) = checked(0).await;
    config.servers = vec![server(address)];
    config.protocol = UpstreamProtocol::Http2;
    let group = group(&config);
    group.spawn_health_checks();
    until("probed thrice", || seen.lock().unwrap().len() >= 3).await;
    assert!(!status(&group, 0).down);
    assert_eq!(seen.lock().unwrap()[0].uri.path(), "/health");
}
