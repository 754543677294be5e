//! What other requests pass, requests to a forward proxy pass, too.

use super::common::server::{command, front_config};
use super::common::{PATIENCE, free_address, wait_for};
use super::*;
use tempfile::TempDir;

#[test]
fn responses_are_stored_by_the_whole_url() {
    let (origin, _weir, address) = proxy("", "");
    let other = Origin::start(echo);
    let status = |url: &str| fetch(address, url).header("cache-status").unwrap().to_owned();
    let (one, two) = (format!("{}/a", origin.url()), format!("{}/a", other.url()));
    assert!(status(&one).contains("fwd=uri-miss"));
    assert!(status(&one).contains("hit"));
    // Another port is another origin, and so is another name.
    assert!(status(&two).contains("fwd=uri-miss"));
    let named = one.replace("127.0.0.1", "localhost");
    assert!(status(&named).contains("fwd=uri-miss"));
    assert!(
        status(&named.to_uppercase().replace("HTTP:", "http:").replace("/A", "/a")).contains("hit")
    );
    assert_eq!((origin.take().len(), other.take().len()), (2, 1));
}

#[test]
fn they_are_purged_by_it() {
    let admin = free_address();
    let server = format!("server {{ admin \"{admin}\"; }}");
    let (origin, weir, address) = proxy_with(&server, "", "");
    let url = format!("{}/a", origin.url());
    fetch(address, &url);
    fetch(address, &url);
    assert_eq!(origin.take().len(), 1);
    let output = command(weir.directory(), &["purge", &url, "--admin", &admin.to_string()]);
    assert!(output.status.success(), "{output:?}");
    fetch(address, &url);
    assert_eq!(origin.take().len(), 1);
}

#[test]
fn what_is_denied_later_is_not_answered_from_what_was_stored() {
    let (origin, weir, address) = proxy("", "");
    let named = origin.url().replace("127.0.0.1", "localhost");
    assert_eq!(fetch(address, &named).status, 200);
    let config = std::fs::read_to_string(weir.directory().join("weir.kdl")).unwrap();
    let config = config.replace("ports ", "deny \"localhost\"\nports ");
    std::fs::write(weir.directory().join("weir.kdl"), config).unwrap();
    weir.signal(rustix::process::Signal::HUP);
    let denied = wait_for(PATIENCE, || (fetch(address, &named).status == 403).then_some(()));
    assert!(denied.is_some());
}

/// An address is judged when it is connected to, and then stands for whoever may connect to it.
#[test]
fn what_one_may_not_fetch_is_not_answered_from_what_others_have_stored() {
    let (origin, addresses) = (Origin::start(echo), [free_address(), free_address()]);
    let lines = ["private \"127.0.0.1\"", "private \"127.0.0.1\"; deny \"127.0.0.0/8\""];
    let site = |at: usize| {
        let (address, line) = (addresses[at], lines[at]);
        let forward = format!("forward {{ ports \"1024-65535\"; {line}; }}");
        front_config(address, "", &format!("route \"/*\" {{ {forward}; }}"))
    };
    let server = "server {";
    let (first, second) = (site(0), site(1));
    let second = second.split_once("site ").unwrap().1;
    assert!(first.contains(server));
    let weir = Weir::run(&format!("{first}\nsite {second}"), &addresses);
    let url = format!("{}/a", origin.url());
    assert_eq!(fetch(addresses[1], &url).status, 403);
    for cache in ["fwd=uri-miss", "hit"] {
        assert!(fetch(addresses[0], &url).header("cache-status").unwrap().contains(cache));
    }
    assert_eq!(fetch(addresses[1], &url).status, 403);
    // Nor from what was stored before its range was closed.
    let path = weir.directory().join("weir.kdl");
    let config = std::fs::read_to_string(&path).unwrap().replace(lines[0], "");
    std::fs::write(&path, config).unwrap();
    weir.signal(rustix::process::Signal::HUP);
    let denied = wait_for(PATIENCE, || (fetch(addresses[0], &url).status == 403).then_some(()));
    assert!(denied.is_some());
}

#[test]
fn rules_and_plugins_and_header_edits_hold() {
    let guard = "guard { rule \"no\" { path \"/secret/*\"; always; refuse; }\n}";
    let beside = "request-header { set \"X-Site\" \"lab\"; }\nheader { set \"X-Seen\" \"1\"; }";
    let (origin, _weir, address) = proxy_with(guard, "", beside);
    assert_eq!(fetch(address, &format!("{}/secret/1", origin.url())).status, 503);
    assert_eq!(origin.take().len(), 0);
    let response = fetch(address, &origin.url());
    assert_eq!(response.header("x-seen"), Some("1"));
    assert_eq!(origin.take()[0].values("x-site"), ["lab"]);
}

/// A plugin is shown the whole URL's request and its answer, for each host by itself, and what the
/// client showed to the proxy as little as the origin is.
#[test]
fn plugins_run_and_what_they_made_is_stored_by_host() {
    const MODULE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/built/header-rewrite.wasm");
    let rules = r#"{"request": {"rename": {"proxy-authorization": "x-leak"}, "set": {"x-in": "1"}},
                    "response": {"set": {"x-out": "1"}}}"#;
    let plugin = format!("plugin \"rewrite\" {{ source \"{MODULE}\"; config {rules:?}; }}");
    let (origin, _weir, address) = proxy_with(&plugin, "", "use \"rewrite\"");
    let (port, own) = (origin.address.port(), ("proxy-authorization", "Basic YTpi"));
    for (host, cache) in [
        ("127.0.0.1", "fwd=uri-miss"),
        ("localhost", "fwd=uri-miss"),
        ("127.0.0.1", "hit"),
        ("localhost", "hit"),
    ] {
        let answer = ask(address, "GET", &format!("http://{host}:{port}/p"), &[own]);
        assert_eq!((answer.status, answer.header("x-out")), (200, Some("1")), "{host}");
        assert!(answer.header("cache-status").unwrap().contains(cache), "{host} {cache}");
        assert_eq!(text(&answer), format!("{host}:{port} GET /p HTTP/1.1"));
    }
    let asked = origin.take();
    assert_eq!(asked.len(), 2);
    for asked in &asked {
        assert_eq!(asked.values("x-in"), ["1"]);
        assert_eq!(asked.values("x-leak"), Vec::<String>::new());
    }
}

#[test]
fn ads_are_blocked_and_hidden() {
    const FIELDS: &str = "Cache-Control: max-age=600\r\nContent-Type: text/html\r\n";
    let page = "<html><head></head><body><div class=ad-box>Buy</div><p>Text.</p></body></html>";
    let origin = Origin::start(move |_: &Received| answer("200 OK", FIELDS, page.as_bytes()));
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("list.txt"), "||127.0.0.1^$image\n##.ad-box\n").unwrap();
    let address = free_address();
    let route = "route \"/*\" { forward { private \"127.0.0.1\"; ports \"1024-65535\"; }\n\
                 ads { lists \"list.txt\"; }\n}";
    let _weir = Weir::run_in(directory, &front_config(address, "", route), &[address]);
    let image =
        ask(address, "GET", &format!("{}/a.gif", origin.url()), &[("sec-fetch-dest", "image")]);
    assert_eq!(image.header("weir-adapt"), Some("ads;blocked"));
    assert_eq!(origin.take().len(), 0);
    let page = wait_for(PATIENCE, || {
        let response = fetch(address, &origin.url());
        response.header("weir-adapt")?.starts_with("html;").then_some(response)
    });
    assert!(!text(&page.unwrap()).contains("ad-box"));
}
