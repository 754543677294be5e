//! Choosing among servers, over sockets: what the unit tests of `balance` show of the arithmetic
//! holds with real connections, limits and failures.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, StatusCode};
use weir_config::{Balance, HashKey};
use weir_origin::error::ErrorKind;
use weir_origin::upstream::{Choice, Extra, GroupStatus, HostPolicy};

use crate::support::*;

/// Origins that answer with their number.
async fn numbered(count: usize) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for number in 0..count {
        addresses.push(origin(move |_, _| ok(&number.to_string())).await.0);
    }
    addresses
}

#[tokio::test]
async fn round_robin_takes_turns_by_weight() {
    let mut config = config(&numbered(3).await);
    config.servers[0].weight = 2;
    let group = group(&config);
    let mut order = String::new();
    for _ in 0..8 {
        order += &text(&group, get("/")).await.unwrap();
    }
    assert_eq!(order, "01200120");
}

#[tokio::test]
async fn least_connections_avoids_the_busy() {
    let stall = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx";
    let (busy, _) = origin(move |_, _| Act::Stall(stall.into())).await;
    let (free, _) = origin(|_, _| ok("free")).await;
    for balance in [Balance::LeastConnections, Balance::TwoChoices] {
        let mut config = config(&[busy, free]);
        config.balance = balance;
        let group = group(&config);
        // Ties are drawn, so keep the held response once the busy server has it.
        let mut held = Vec::new();
        while status(&group, 0).in_flight == 0 {
            held.push(send(&group, get("/")).await.unwrap());
        }
        held.retain(|response| response.headers()["content-length"] == "2");
        for _ in 0..20 {
            assert_eq!(text(&group, get("/")).await.unwrap(), "free");
        }
        drop(held);
    }
}

#[tokio::test]
async fn a_key_stays_with_its_server() {
    let mut config = config(&numbered(4).await);
    config.balance = Balance::Hash(HashKey::Header("x-user".into()));
    let group = group(&config);
    let mut used = std::collections::HashSet::new();
    for user in 0..24 {
        let mut places = std::collections::HashSet::new();
        for _ in 0..3 {
            let mut request = get("/");
            request.headers_mut().insert("x-user", user.into());
            places.insert(text(&group, request).await.unwrap());
        }
        assert_eq!(places.len(), 1, "user {user}");
        used.extend(places);
    }
    assert_eq!(used.len(), 4, "24 keys reach all of 4 servers");

    // Without the header, the client's address decides.
    let mut used = std::collections::HashSet::new();
    for client in 0..24 {
        let choice = Choice { client: Some([10, 0, 0, client].into()), ..Choice::default() };
        let mut places = std::collections::HashSet::new();
        for _ in 0..3 {
            let response = group.send(0, get("/"), choice.clone()).await.unwrap();
            places.insert(finish(response).await.unwrap().0);
        }
        assert_eq!(places.len(), 1, "client {client}");
        used.extend(places);
    }
    assert_eq!(used.len(), 4);
}

#[tokio::test]
async fn max_requests_spills_over_and_then_is_503() {
    let stall = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx";
    let (one, _) = origin(move |_, _| Act::Stall(stall.into())).await;
    let (two, _) = origin(move |_, _| Act::Stall(stall.into())).await;
    let mut config = config(&[one, two]);
    config.max_requests = 2;
    config.balance = Balance::Hash(HashKey::Path);
    let group = group(&config);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(send(&group, get("/same")).await.unwrap());
    }
    let in_flight = |status: GroupStatus| [0, 1].map(|index| status.servers[index].in_flight);
    assert_eq!(in_flight(group.status()), [2, 2]);
    let error = send(&group, get("/same")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(error.server(), "test");
    held.pop();
    held.push(send(&group, get("/same")).await.unwrap());
    assert_eq!(in_flight(group.status()), [2, 2]);
}

#[tokio::test]
async fn extra_fields_go_along_and_may_place_a_request() {
    let choice = |number: i32| {
        let fields = [("x-extra", number), ("x-more", 1)]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from(value)));
        Choice { extra: Extra::new(fields), ..Choice::default() }
    };
    let (address, seen) = origin(|_, _| ok("x")).await;
    for balance in [Balance::RoundRobin, Balance::Hash(HashKey::Header("x-extra".into()))] {
        let group = group(&weir_config::Upstream { balance, ..config(&[address]) });
        finish(group.send(0, get("/"), choice(7)).await.unwrap()).await.unwrap();
        let request = seen.requests().pop().unwrap();
        assert_eq!(request.matches("x-extra: 7\r\n").count(), 1, "{request}");
        assert_eq!(request.matches("x-more: 1\r\n").count(), 1, "{request}");
    }
    let mut config = config(&numbered(4).await);
    config.balance = Balance::Hash(HashKey::Header("x-extra".into()));
    let group = group(&config);
    let mut used = std::collections::HashSet::new();
    for number in 0..24 {
        let response = group.send(0, get("/"), choice(number)).await.unwrap();
        used.insert(finish(response).await.unwrap().0);
    }
    assert_eq!(used.len(), 4);
}

#[tokio::test]
async fn host_is_the_requests_or_the_servers() {
    let (address, seen) = origin(|_, _| ok("x")).await;
    let group = group(&config(&[address]));
    let own = |host| Choice { host, ..Choice::default() };
    let absolute = http::Request::get("http://authority.test/path?q")
        .body(weir_origin::upstream::RequestBody::Empty)
        .unwrap();
    for (request, choice) in [
        (get("/"), own(HostPolicy::Keep)),
        (get("/"), own(HostPolicy::Server)),
        (absolute, own(HostPolicy::Keep)),
    ] {
        finish(group.send(0, request, choice).await.unwrap()).await.unwrap();
    }
    let requests = seen.requests();
    assert!(requests[0].contains("host: site.test\r\n"), "{}", requests[0]);
    assert!(requests[1].contains(&format!("host: {address}\r\n")), "{}", requests[1]);
    assert!(requests[2].starts_with("GET /path?q HTTP/1.1\r\n"), "{}", requests[2]);
    assert!(requests[2].contains("host: authority.test\r\n"), "{}", requests[2]);
}

#[tokio::test]
async fn status_is_json() {
    let (address, _) = origin(|_, _| ok("x")).await;
    let group = group(&config(&[address, refusing().await]));
    text(&group, get("/")).await.unwrap();
    text(&group, get("/")).await.unwrap_err();
    let json = serde_json::to_value(group.status()).unwrap();
    assert_eq!(json["name"], "test");
    assert_eq!(json["servers"][0]["requests"], 1);
    assert_eq!(json["servers"][1]["failures"]["connect"], 1);
    assert!(json["servers"][0]["latency_us"].as_u64().unwrap() > 0);
}
