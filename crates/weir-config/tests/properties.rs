//! Properties: no text makes the parser panic, and what is printed parses to the same.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

#[path = "properties/adapt.rs"]
mod adapt;
#[path = "properties/forward.rs"]
mod forward;
#[path = "properties/guard.rs"]
mod guard;
#[path = "properties/icap.rs"]
mod icap;
#[path = "properties/plugin.rs"]
mod plugin;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use proptest::{collection::vec, option};
use weir_config::*;

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn any_text_is_parsed_or_refused(text in any::<String>()) {
        check_errors(&text)?;
    }

    /// Texts of KDL's own signs get further than arbitrary ones.
    #[test]
    fn any_tokens_are_parsed_or_refused(tokens in vec(token(), 0..40)) {
        check_errors(&tokens.concat())?;
    }

    /// A byte changed, removed or doubled in a good configuration.
    #[test]
    fn any_damage_is_parsed_or_refused(at in 0_usize..1000, other in token(), kind in 0..3) {
        let good = print(&serve_dir("/srv".as_ref(), parse_listen(":80").unwrap(), None));
        let at = at % good.len();
        let (before, after) = good.split_at(at);
        let damaged = match kind {
            0 => format!("{before}{other}{after}"),
            1 => format!("{before}{}", &after[1..]),
            _ => format!("{before}{other}{}", &after[1..]),
        };
        check_errors(&damaged)?;
    }

    /// Found by the property above: a `;` that ends a node that is switched off.
    #[test]
    fn switched_off_nodes_are_not_seen(node in "/- ?[a-z]{1,4}( [a-z]{1,4})?( ?\\{[a-z;]{0,4}\\})?[;\n] ?") {
        check_errors(&format!("{node}site a {{ {node}listen \":80\"; {node}{node}}}; {node}"))?;
    }

    #[test]
    fn what_is_printed_parses_to_the_same(config in config()) {
        let text = print(&config);
        let again = parse("weir.kdl", &text).map_err(|errors| {
            TestCaseError::fail(format!("{errors}\n\nin:\n{text}"))
        })?;
        prop_assert_eq!(again, config, "{}", text);
    }
}

/// Errors, if any, point into the text and can be shown; what is accepted round-trips.
fn check_errors(text: &str) -> Result<(), TestCaseError> {
    match parse("weir.kdl", text) {
        Ok(config) => prop_assert_eq!(parse("weir.kdl", &print(&config)).unwrap(), config),
        Err(errors) => {
            prop_assert!(errors.len() > 0);
            for error in &errors {
                prop_assert!(error.line <= text.split('\n').count());
                prop_assert!(!error.to_string().is_empty());
                // What the first stage lets pass, `kdl` parses: its recovery from errors is not
                // safe for every text, and its messages are not for operators.
                prop_assert!(!error.message.starts_with("not valid KDL"), "{}: {:?}", error, text);
            }
        }
    }
    Ok(())
}

fn token() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "{", "}", "(", ")", "=", ";", "\n", "\r\n", " ", "\t", "\\", "\"", "\"\"\"", "#", "#\"",
        "\"#", "//", "/*", "*/", "/-", "#true", "true", "\u{feff}", "\u{85}", "\u{202e}", "é",
        "😀", "1", "-1", "0x", "1.5e3", ".5", "site", "route", "server", "listen", "\":80\"",
        "\"/*\"", "respond", "\"a\"", "tls", "cache", "upstream", "header", "set", "limits",
        "workers", "plugin", "use", "allow", "guard", "rule", "class", "from", "rate", "pass",
        "adapt", "compress", "\"br:5\"", "forward", "\\u{", "\\n", "'",
    ]);
    prop_oneof![8 => fixed.prop_map(str::to_owned), 1 => ".{0,4}"]
}

fn time(min_millis: u64, max_millis: u64) -> impl Strategy<Value = Duration> {
    (min_millis..=max_millis).prop_map(Duration::from_millis)
}

fn host() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,8}(\\.[a-z]{2,5}){0,2}"
}

fn path() -> impl Strategy<Value = String> {
    "(/[a-zA-Z0-9_~:@!$&'()+,;=-]{1,6}){1,3}"
}

fn file() -> impl Strategy<Value = PathBuf> {
    // What a path may hold that KDL must escape: quotes, backslashes, line ends, other scripts.
    "/[a-z\"\\\\\n\té😀 ]{1,12}".prop_map(PathBuf::from)
}

fn field_value() -> impl Strategy<Value = String> {
    "[!-~]([ -~]{0,20}[!-~])?"
}

fn account() -> impl Strategy<Value = String> {
    "[a-z_][a-z0-9_-]{0,12}"
}

fn server() -> impl Strategy<Value = Server> {
    let admin = prop_oneof![
        Just(None),
        (any::<[u8; 4]>(), 1_u16..1000).prop_map(|a| Some(Address::Tcp(SocketAddr::from(a)))),
        "/[a-z]{1,20}".prop_map(|path| Some(Address::Unix(path.into()))),
    ];
    let accounts = option::of((account(), option::of(account())));
    let switches = any::<[bool; 2]>();
    let basics = (option::of(1_usize..=1024), admin, accounts, switches);
    (basics, time(0, 3_600_000), vec(prefix(), 0..3), limits()).prop_map(
        |((workers, admin, accounts, [watch, keeps]), drain_timeout, trusted_proxies, limits)| {
            Server {
                workers,
                admin,
                keep_bpf: keeps && accounts.is_some(),
                user: accounts.clone().map(|(user, _)| user),
                group: accounts.and_then(|(_, group)| group),
                watch,
                drain_timeout,
                trusted_proxies,
                limits,
            }
        },
    )
}

fn prefix() -> impl Strategy<Value = Prefix> {
    // An IPv4 address written as IPv6 is refused.
    let address = any::<std::net::IpAddr>().prop_map(|address| address.to_canonical());
    (address, 0_u8..=32).prop_map(|(address, bits)| Prefix::new(address, bits).unwrap())
}

fn limits() -> impl Strategy<Value = Limits> {
    let sizes = (1_usize..=10_000_000, 8192_usize..=1 << 20, 1_usize..=1000, 0_u64..=1 << 40);
    let times = [600_000, 3_600_000, 3_600_000, 86_400_000].map(|most| time(100, most));
    let pace = (0_u64..=16 << 20, 0_u64..=1 << 30);
    (sizes, pace, times, 1_u32..=10_000).prop_map(|(sizes, pace, times, http2_streams)| Limits {
        connections: sizes.0,
        header_size: sizes.1,
        header_count: sizes.2,
        body_size: sizes.3,
        body_buffer: pace.0,
        body_min_rate: pace.1,
        header_timeout: times[0],
        body_timeout: times[1],
        send_timeout: times[2],
        idle_timeout: times[3],
        http2_streams,
    })
}

fn cache() -> impl Strategy<Value = Cache> {
    (1_u64 << 20..=1 << 40, 1024_u64..=1 << 20, any::<bool>()).prop_map(
        |(memory, object_max, lru)| Cache {
            memory,
            object_max,
            policy: if lru { Policy::Lru } else { Policy::Gdsf },
        },
    )
}

/// A server and the group name that its URL would have.
fn upstream_server() -> impl Strategy<Value = (UpstreamServer, String)> {
    let tcp = (any::<bool>(), host(), option::of(1_u16..)).prop_map(|(tls, host, port)| {
        let scheme = if tls { "https" } else { "http" };
        let authority = port.map_or(host.clone(), |port| format!("{host}:{port}"));
        let target = Target::Host(host, port.unwrap_or(if tls { 443 } else { 80 }));
        let name = format!("{scheme}://{authority}");
        (UpstreamServer { tls, target, authority, weight: 1 }, name)
    });
    let unix = "/[a-z]{1,20}".prop_map(|path| {
        let name = format!("unix:{path}");
        let (target, authority) = (Target::Unix(path.into()), "localhost".to_owned());
        (UpstreamServer { tls: false, target, authority, weight: 1 }, name)
    });
    prop_oneof![4 => tcp, 1 => unix]
}

fn balance() -> impl Strategy<Value = Balance> {
    prop_oneof![
        Just(Balance::RoundRobin),
        Just(Balance::LeastConnections),
        Just(Balance::TwoChoices),
        Just(Balance::Hash(HashKey::Path)),
        Just(Balance::Hash(HashKey::Client)),
        "[a-z-]{1,8}".prop_map(|name| Balance::Hash(HashKey::Header(name))),
        "[a-zA-Z_]{1,8}".prop_map(|name| Balance::Hash(HashKey::Cookie(name))),
    ]
}

fn health_check() -> impl Strategy<Value = HealthCheck> {
    let times = time(100, 3_600_000).prop_flat_map(|interval| {
        let most = u64::try_from(interval.as_millis()).unwrap().min(300_000);
        (Just(interval), time(10, most))
    });
    (path(), times, 1_u32..=100, 1_u32..=100, 100_u16..=599, 100_u16..=599).prop_map(
        |(path, (interval, timeout), healthy, unhealthy, a, b)| HealthCheck {
            path,
            interval,
            timeout,
            healthy,
            unhealthy,
            status: (a.min(b), a.max(b)),
        },
    )
}

fn upstream(name: String) -> impl Strategy<Value = Upstream> {
    let servers = vec((upstream_server(), 1_u32..=1000), 1..4);
    let protocol = prop::sample::select(vec![
        UpstreamProtocol::Auto,
        UpstreamProtocol::Http1,
        UpstreamProtocol::Http2,
    ]);
    let counts = (0_usize..=4096, 0_u32..=10, 0_usize..=1_000_000);
    let times = (time(100, 3_600_000), time(1, 300_000), time(1, 3_600_000), time(1, 3_600_000));
    let passive = (0_u32..=1000, time(100, 3_600_000), time(100, 3_600_000));
    let tls = (option::of(host()), option::of(file()));
    (servers, balance(), protocol, counts, times, option::of(health_check()), passive, tls)
        .prop_map(
            move |(mut servers, balance, protocol, counts, times, health_check, passive, tls)| {
                servers.sort_by_key(|((_, url), _)| url.clone());
                servers.dedup_by_key(|((_, url), _)| url.clone());
                let server = |((server, _), weight)| UpstreamServer { weight, ..server };
                let servers: Vec<UpstreamServer> = servers.into_iter().map(server).collect();
                let uses_tls = servers.iter().any(|server| server.tls);
                let insecure = uses_tls && tls.1.is_none() && counts.0.is_multiple_of(2);
                let tls = UpstreamTls { server_name: tls.0, ca: tls.1, insecure };
                Upstream {
                    name: name.clone(),
                    servers,
                    balance,
                    protocol,
                    keep_alive: counts.0,
                    keep_alive_timeout: times.0,
                    connect_timeout: times.1,
                    first_byte_timeout: times.2,
                    idle_timeout: times.3,
                    retries: counts.1,
                    max_requests: counts.2,
                    concurrency: match counts.2 % 3 {
                        0 => Concurrency::Auto,
                        1 => Concurrency::Unlimited,
                        _ => Concurrency::Fixed(u32::try_from(counts.2).unwrap()),
                    },
                    health_check,
                    passive: Passive { failures: passive.0, window: passive.1, eject: passive.2 },
                    tls: if uses_tls { tls } else { UpstreamTls::default() },
                }
            },
        )
}

fn edits() -> impl Strategy<Value = Vec<HeaderEdit>> {
    let name = || "x-[a-z]{1,8}";
    vec(
        prop_oneof![
            (name(), field_value()).prop_map(|(name, value)| HeaderEdit::Set(name, value)),
            (name(), field_value()).prop_map(|(name, value)| HeaderEdit::Add(name, value)),
            name().prop_map(HeaderEdit::Remove),
        ],
        0..3,
    )
}

fn files() -> impl Strategy<Value = Files> {
    let index = vec("[a-z]{1,6}\\.html?", 1..3);
    (file(), index, any::<[bool; 3]>(), option::of(field_value())).prop_map(
        |(root, index, [listing, precompressed, strip_prefix], cache_control)| Files {
            root,
            index,
            listing,
            precompressed,
            strip_prefix,
            cache_control,
        },
    )
}

/// A proxy source with the anonymous group that it makes, if it does.
fn proxy() -> impl Strategy<Value = (Proxy, Option<Upstream>)> {
    let host = prop_oneof![
        Just(HostHeader::Client),
        Just(HostHeader::Upstream),
        host().prop_map(|host| HostHeader::Fixed(format!("{host}.example"))),
    ];
    let target = prop_oneof![
        Just(None),
        upstream_server().prop_map(|(server, name)| Some(Upstream::new(name, vec![server]))),
    ];
    let prefix = prop_oneof![Just(String::new()), path()];
    (target, any::<bool>(), prefix, host).prop_map(|(group, strip_prefix, path_prefix, host)| {
        let upstream = group.as_ref().map_or("app".to_owned(), |group| group.name.clone());
        (Proxy { upstream, strip_prefix, path_prefix, host }, group)
    })
}

fn route_cache() -> impl Strategy<Value = RouteCache> {
    let year = 365 * 86_400_000;
    let ttl = prop_oneof![
        Just((None, None)),
        time(0, year).prop_map(|ttl| (Some(ttl), None)),
        time(0, year).prop_map(|ttl| (None, Some(ttl))),
    ];
    let stale = (option::of(time(0, year)), option::of(time(0, year)));
    let on = (ttl, stale, time(0, 600_000)).prop_map(|(ttl, stale, collapse_timeout)| RouteCache {
        enabled: true,
        ttl: ttl.0,
        default_ttl: ttl.1,
        stale_while_revalidate: stale.0,
        stale_if_error: stale.1,
        collapse_timeout,
    });
    prop_oneof![1 => Just(RouteCache { enabled: false, ..RouteCache::default() }), 4 => on]
}

/// A route without its pattern, with the anonymous group that it makes.
fn route() -> impl Strategy<Value = (Route, Option<Upstream>)> {
    let fixed = prop_oneof![
        (prop::sample::select(vec![301, 302, 303, 307, 308]), path()).prop_map(|(status, path)| {
            Source::Redirect { status, location: format!("https://a.example{path}{{uri}}") }
        }),
        (206_u16..=303, any::<String>()).prop_map(|(status, body)| Source::Respond {
            status,
            body,
            content_type: "text/html; charset=utf-8".to_owned(),
        }),
    ];
    let source = prop_oneof![
        files().prop_map(|files| (Source::Files(files), None)),
        proxy().prop_map(|(proxy, group)| (Source::Proxy(proxy), group)),
        fixed.prop_map(|source| (source, None)),
    ];
    let limits = [40, 24, 30].map(|bits| option::of(0_u64..=1 << bits));
    let made = (plugin::uses(), adapt::route());
    (source, route_cache(), edits(), edits(), limits, made).prop_map(
        |((source, group), cache, response_headers, request_headers, limits, made)| {
            let (mut plugins, adapt) = made;
            let is_proxy = matches!(source, Source::Proxy(_));
            let is_stored = is_proxy || matches!(source, Source::Files(_));
            plugins.retain(|plugin| is_stored || plugin.at == At::Delivery);
            let route = Route {
                pattern: Pattern::Prefix("/".to_owned()),
                source,
                cache: if is_stored { cache.clone() } else { RouteCache::default() },
                response_headers,
                request_headers: if is_proxy { request_headers } else { Vec::new() },
                body_size: limits[0],
                body_buffer: limits[1],
                body_min_rate: limits[2],
                plugins,
                adapt: if is_stored && cache.enabled { adapt } else { RouteAdapt::default() },
                icap: None,
            };
            (route, group)
        },
    )
}

/// A site with its number in what must be unique, and the anonymous groups that it makes.
fn site(number: u16) -> impl Strategy<Value = (Site, Vec<Upstream>)> {
    let names = vec(host(), 0..3);
    let tls =
        prop::sample::select(vec![None, Some(ListenerTls::Files), Some(ListenerTls::SelfSigned)]);
    let log = option::of((file(), any::<bool>()));
    let certificate = (file(), file()).prop_map(|(chain, key)| Certificate { chain, key });
    (names, tls, any::<bool>(), certificate, log, vec((path(), any::<bool>(), route()), 1..4))
        .prop_map(move |(names, tls, proxy_protocol, certificate, log, routes)| {
            let mut names: Vec<String> = names.iter().map(|name| format!("*.{name}")).collect();
            names.push(format!("site{number}.example"));
            names.sort();
            names.dedup();
            let address = Address::Tcp(SocketAddr::from(([0, 0, 0, 0], 10_000 + number)));
            let format = |json| if json { LogFormat::Json } else { LogFormat::Combined };
            let groups = routes.iter().filter_map(|(_, _, (_, group))| group.clone()).collect();
            let routes = routes.into_iter().enumerate().map(|(i, (path, exact, (route, _)))| {
                let pattern = match exact {
                    true => Pattern::Exact(format!("{path}{i}")),
                    false => Pattern::Prefix(format!("{path}{i}/")),
                };
                Route { pattern, ..route }
            });
            let site = Site {
                names,
                listeners: vec![Listener { address, tls, proxy_protocol }],
                certificates: match tls {
                    Some(ListenerTls::Files) => vec![certificate],
                    _ => Vec::new(),
                },
                access_log: log.map(|(path, json)| AccessLog { path, format: format(json) }),
                plugins: if proxy_protocol { vec!["knock".to_owned()] } else { Vec::new() },
                routes: routes.collect(),
            };
            (site, groups)
        })
}

fn config() -> impl Strategy<Value = Config> {
    let sites = (1_u16..4).prop_flat_map(|count| (0..count).map(site).collect::<Vec<_>>());
    let rest = (plugin::plugins(), guard::guard(), adapt::adapt(), option::of(icap::icap()));
    (server(), cache(), upstream("app".to_owned()), rest, sites).prop_map(
        |(server, cache, app, rest, sites)| {
            let ((plugin_settings, plugins), mut guard, adapt, icap) = rest;
            let mut upstreams = vec![app];
            let mut all = Vec::new();
            for (mut site, groups) in sites {
                for route in &mut site.routes {
                    let is_proxy = matches!(route.source, Source::Proxy(_));
                    let icap = icap.as_ref().filter(|icap| is_proxy || icap.reqmod.is_some());
                    route.icap = icap.map(|icap| icap.name.clone());
                }
                for group in groups {
                    if upstreams.iter().all(|known| known.name != group.name) {
                        upstreams.push(group);
                    }
                }
                all.push(site);
            }
            guard::name_sites(&mut guard, &all);
            Config {
                server,
                cache,
                upstreams,
                plugin_settings,
                plugins,
                guard,
                adapt,
                icap: icap.into_iter().collect(),
                sites: all,
            }
        },
    )
}
