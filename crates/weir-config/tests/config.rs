//! What configurations mean: defaults, every setting, presets, files on disk.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_config::*;

fn parse_ok(text: &str) -> Config {
    match parse("weir.kdl", text) {
        Ok(config) => config,
        Err(errors) => panic!("{errors}\n\nin:\n{text}"),
    }
}

const MINIMAL: &str = r#"site "*" { listen ":8080"; route "/*" { files "srv"; } }"#;

/// The table's defaults and the model's must not drift apart.
#[test]
fn defaults_of_the_table_are_those_of_the_model() {
    let config =
        parse_ok(&format!("{MINIMAL}\nupstream \"app\" {{ server \"http://127.0.0.1:1\"\n }}"));
    assert_eq!(config.server, Server::default());
    assert_eq!(config.cache, Cache::default());
    assert_eq!(config.sites[0].routes[0].cache, RouteCache::default());
    let servers = config.upstreams[0].servers.clone();
    assert_eq!(config.upstreams[0], Upstream::new("app".to_owned(), servers));
    assert_eq!(config.plugin_settings, Plugins::default());
    let config = parse_ok(&format!("{MINIMAL}\nplugin \"a\" {{ source \"a.wasm\"\n }}"));
    assert_eq!(config.plugins[0].policy, PluginPolicy::default());
}

#[test]
fn minimal_site() {
    let config = parse_ok(MINIMAL);
    let site = &config.sites[0];
    assert_eq!(site.names, ["*"]);
    let all = Address::Tcp("[::]:8080".parse().unwrap());
    assert_eq!(site.listeners, [Listener { address: all, tls: None, proxy_protocol: false }]);
    assert_eq!(site.routes[0].pattern, Pattern::Prefix("/".to_owned()));
    let Source::Files(files) = &site.routes[0].source else { panic!("{site:?}") };
    assert_eq!(files.root, PathBuf::from("srv"));
    assert_eq!(files.index, ["index.html"]);
    assert!(files.precompressed && !files.listing && !files.strip_prefix);
}

const FULL: &str = r##"
server {
    workers 3; admin "10.0.0.1:9900" allow-remote=#true
    user "www-data" keep-bpf=#true; group "www-data"
    watch #true
    drain-timeout "1m"; trusted-proxies "10.0.0.0/8" "::1"
    limits {
        connections 1000; header-size "16KiB"; header-count 50; body-size "1GB"
        body-buffer "128KiB"; body-min-rate 0
        header-timeout "250ms"; body-timeout "1s"; send-timeout "2s"; idle-timeout "1h"
        http2-streams 7
    }
}
cache { memory "1GiB"; object-max 1048576; policy "lru" }
upstream "app" {
    server "http://10.0.0.5:8080" weight=2
    server "https://App.Example"
    server "unix:/run/app.sock"
    balance "hash" key="header:X-User"
    protocol "http1"
    keep-alive 5 timeout="7s"
    timeout connect="1s" first-byte="2s" idle="3s"
    retries 4
    max-requests 9
    concurrency 77
    health-check "/healthz?x=1" interval="6s" timeout="1s" healthy=8 unhealthy=9 status="200-204"
    passive-health failures=0 window="11s" eject="12s"
    tls server-name="x.example" ca="ca.pem"
}
site "Shop.Example" "*.shop.example" {
    listen "0.0.0.0:80" proxy-protocol=#true
    listen "[::1]:443" tls=auto          // a bare word is a string
    listen "unix:/run/weir.sock"
    certificate "chain.pem" key="/etc/key.pem"
    access-log "/var/log/shop.log" format="json"
    route "/images/*" {
        proxy "http://10.0.0.5:8080/base/" strip-prefix=#true host="upstream"
        cache ttl="10m" stale-while-revalidate="1m" stale-if-error="1d" collapse-timeout="0s"
        header { set "X-A" "b"; add "X-B" "c"; remove "Server" }
        request-header { set "X-Site" "shop"; }
        limits body-size="10MiB" body-buffer=0 body-min-rate="4KiB"
    }
    route "/api" { proxy "app" path-prefix="/v2" host="api.example:81"; cache "off" }
    route "/old/*" { redirect "https://example.com{path}" status=301 }
    route "/health" { respond "ok\n" status=201 content-type="text/html" }
    /- route "/off" { nonsense { even this } }
    route "/*" {
        files "/srv/www" listing=#true precompressed=#false strip-prefix=#true \
            cache-control="public, max-age=60" { index "a.html" "b.htm"; }
        /* a comment *** over
           lines */
    }
}
"##;

#[test]
fn every_setting_of_the_process() {
    let config = parse_ok(FULL);
    let server = Server {
        workers: Some(3),
        admin: Some(Address::Tcp("10.0.0.1:9900".parse().unwrap())),
        user: Some("www-data".to_owned()),
        keep_bpf: true,
        group: Some("www-data".to_owned()),
        watch: true,
        drain_timeout: Duration::from_secs(60),
        trusted_proxies: vec![
            Prefix::new([10, 0, 0, 0].into(), 8).unwrap(),
            Prefix::new(std::net::Ipv6Addr::LOCALHOST.into(), 128).unwrap(),
        ],
        limits: Limits {
            connections: 1000,
            header_size: 16 << 10,
            header_count: 50,
            body_size: 1_000_000_000,
            body_buffer: 128 << 10,
            body_min_rate: 0,
            header_timeout: Duration::from_millis(250),
            body_timeout: Duration::from_secs(1),
            send_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(3600),
            http2_streams: 7,
        },
    };
    assert_eq!(config.server, server);
    let cache = Cache { memory: 1 << 30, object_max: 1 << 20, policy: Policy::Lru };
    assert_eq!(config.cache, cache);
}

#[test]
fn every_setting_of_an_upstream() {
    let config = parse_ok(FULL);
    let host = |host: &str, port| Target::Host(host.to_owned(), port);
    let server = |tls, target, authority: &str, weight| UpstreamServer {
        tls,
        target,
        authority: authority.to_owned(),
        weight,
    };
    let app = Upstream {
        name: "app".to_owned(),
        servers: vec![
            server(false, host("10.0.0.5", 8080), "10.0.0.5:8080", 2),
            server(true, host("app.example", 443), "app.example", 1),
            server(false, Target::Unix("/run/app.sock".into()), "localhost", 1),
        ],
        balance: Balance::Hash(HashKey::Header("x-user".to_owned())),
        protocol: UpstreamProtocol::Http1,
        keep_alive: 5,
        keep_alive_timeout: Duration::from_secs(7),
        connect_timeout: Duration::from_secs(1),
        first_byte_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(3),
        retries: 4,
        max_requests: 9,
        concurrency: Concurrency::Fixed(77),
        health_check: Some(HealthCheck {
            path: "/healthz?x=1".to_owned(),
            interval: Duration::from_secs(6),
            timeout: Duration::from_secs(1),
            healthy: 8,
            unhealthy: 9,
            status: (200, 204),
        }),
        passive: Passive {
            failures: 0,
            window: Duration::from_secs(11),
            eject: Duration::from_secs(12),
        },
        tls: UpstreamTls {
            server_name: Some("x.example".to_owned()),
            ca: Some("ca.pem".into()),
            insecure: false,
        },
    };
    assert_eq!(config.upstreams[0], app);
    // The anonymous group of `proxy "http://10.0.0.5:8080/base/"` has the URL's name, sans path.
    let anonymous = server(false, host("10.0.0.5", 8080), "10.0.0.5:8080", 1);
    let anonymous = Upstream::new("http://10.0.0.5:8080".to_owned(), vec![anonymous]);
    assert_eq!(config.upstreams[1..], [anonymous]);
}

#[test]
fn every_setting_of_a_site() {
    let config = parse_ok(FULL);
    let site = &config.sites[0];
    assert_eq!(site.names, ["shop.example", "*.shop.example"]);
    let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
    let listener = |address, tls, proxy_protocol| Listener { address, tls, proxy_protocol };
    assert_eq!(
        site.listeners,
        [
            listener(tcp("0.0.0.0:80"), None, true),
            listener(tcp("[::1]:443"), Some(ListenerTls::Files), false),
            listener(Address::Unix("/run/weir.sock".into()), None, false),
        ]
    );
    let certificate = Certificate { chain: "chain.pem".into(), key: "/etc/key.pem".into() };
    assert_eq!(site.certificates, [certificate]);
    let log = AccessLog { path: "/var/log/shop.log".into(), format: LogFormat::Json };
    assert_eq!(site.access_log, Some(log));
    assert_eq!(site.routes.len(), 5, "the one behind /- is off");
}

#[test]
fn every_setting_of_a_route() {
    let config = parse_ok(FULL);
    let [images, api, old, health, rest] = &config.sites[0].routes[..] else { panic!() };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let text = |text: &str| text.to_owned();
    let cache = RouteCache {
        enabled: true,
        ttl: seconds(600),
        default_ttl: None,
        stale_while_revalidate: seconds(60),
        stale_if_error: seconds(86_400),
        collapse_timeout: Duration::ZERO,
    };
    let expected = Route {
        pattern: Pattern::Prefix(text("/images/")),
        source: Source::Proxy(Proxy {
            upstream: text("http://10.0.0.5:8080"),
            strip_prefix: true,
            path_prefix: text("/base"),
            host: HostHeader::Upstream,
        }),
        cache,
        response_headers: vec![
            HeaderEdit::Set(text("x-a"), text("b")),
            HeaderEdit::Add(text("x-b"), text("c")),
            HeaderEdit::Remove(text("server")),
        ],
        request_headers: vec![HeaderEdit::Set(text("x-site"), text("shop"))],
        body_size: Some(10 << 20),
        body_buffer: Some(0),
        body_min_rate: Some(4 << 10),
        plugins: Vec::new(),
        adapt: RouteAdapt::default(),
        icap: None,
    };
    assert_eq!(*images, expected);
    assert_eq!(api.pattern, Pattern::Exact(text("/api")));
    assert!(!api.cache.enabled);
    let proxy = Proxy {
        upstream: text("app"),
        strip_prefix: false,
        path_prefix: text("/v2"),
        host: HostHeader::Fixed(text("api.example:81")),
    };
    assert_eq!(api.source, Source::Proxy(proxy));
    let location = text("https://example.com{path}");
    assert_eq!(old.source, Source::Redirect { status: 301, location });
    let (body, content_type) = (text("ok\n"), text("text/html"));
    assert_eq!(health.source, Source::Respond { status: 201, body, content_type });
    let files = Files {
        root: "/srv/www".into(),
        index: vec![text("a.html"), text("b.htm")],
        listing: true,
        precompressed: false,
        strip_prefix: true,
        cache_control: Some(text("public, max-age=60")),
    };
    assert_eq!(rest.source, Source::Files(files));
}

#[test]
fn the_full_configuration_prints_and_parses_again() {
    let config = parse_ok(FULL);
    assert_eq!(parse_ok(&print(&config)), config);
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let config = parse("/etc/weir/weir.kdl", MINIMAL).unwrap();
    let Source::Files(files) = &config.sites[0].routes[0].source else { panic!() };
    assert_eq!(files.root, Path::new("/etc/weir/srv"));
}

#[test]
fn sites_share_a_listener_and_servers_a_group() {
    let config = parse_ok(
        r#"
        site "a.example" { listen ":80"; route "/*" { proxy "http://o.example/a"; } }
        site "b.example" { listen ":80"; route "/*" { proxy "http://O.example/b"; } }
        "#,
    );
    assert_eq!(config.upstreams.len(), 1);
    assert_eq!(config.upstreams[0].name, "http://o.example");
}

#[test]
fn presets_are_configurations_with_one_site() {
    let listen = parse_listen(":8080").unwrap();
    let serve = serve_dir(Path::new("/srv/www"), listen.clone(), Some(2));
    assert_eq!(serve.server.workers, Some(2));
    assert_eq!(parse_ok(&print(&serve)), serve);
    for url in ["http://127.0.0.1:3000", "https://o.example/base/", "unix:/run/app.sock"] {
        let proxy = proxy_url(url, listen.clone(), None).unwrap();
        assert_eq!(parse_ok(&print(&proxy)), proxy, "{url}");
    }
}

#[test]
fn presets_explain_what_is_wrong() {
    let error = parse_listen("8080").unwrap_err();
    assert!(error.contains("did you mean \":8080\"?"), "{error}");
    let listen = parse_listen("127.0.0.1:0").unwrap();
    let errors = proxy_url("127.0.0.1:3000", listen, None).unwrap_err().to_string();
    assert!(errors.contains("did you mean \"http://127.0.0.1:3000\"?"), "{errors}");
}

#[test]
fn load_checks_files_and_names_their_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.kdl");
    let text = "site \"a.example\" {\n    listen \":0\" tls=\"auto\"\n    \
                certificate \"a.pem\" key=\"a.key\"\n    route \"/*\" { files \"www\"; }\n}\n";
    std::fs::write(&path, text).unwrap();
    let errors = load(&path).unwrap_err();
    let places: Vec<_> = errors.iter().map(|error| (error.line, error.column)).collect();
    assert_eq!(places, [(3, 17), (3, 29), (4, 24)], "{errors}");

    std::fs::create_dir(directory.path().join("www")).unwrap();
    std::fs::write(directory.path().join("a.pem"), "").unwrap();
    std::fs::create_dir(directory.path().join("a.key")).unwrap();
    let errors = load(&path).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors}");
    assert!(errors.to_string().contains("is no file"), "{errors}");

    std::fs::remove_dir(directory.path().join("a.key")).unwrap();
    std::fs::write(directory.path().join("a.key"), "").unwrap();
    let config = load(&path).unwrap();
    let Source::Files(files) = &config.sites[0].routes[0].source else { panic!() };
    assert_eq!(files.root, directory.path().join("www"));
    check_files(&config).unwrap();
    std::fs::remove_file(directory.path().join("a.pem")).unwrap();
    let errors = check_files(&config).unwrap_err().to_string();
    assert!(errors.contains("a.pem"), "{errors}");
}

#[test]
fn load_says_why_a_file_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let missing = load(&directory.path().join("none.kdl")).unwrap_err().to_string();
    assert!(missing.contains("none.kdl: cannot open the file: No such file"), "{missing}");
    let binary = directory.path().join("binary.kdl");
    std::fs::write(&binary, b"server {\n\xff}").unwrap();
    let errors = load(&binary).unwrap_err().to_string();
    assert!(errors.contains("not UTF-8 text: line 2"), "{errors}");
}
