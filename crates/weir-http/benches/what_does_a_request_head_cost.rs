//! What do the checks that every request pays for cost? Each is given in nanoseconds and as a
//! ratio to the floor: walking the same header once and doing nothing.

#![allow(clippy::print_stdout, reason = "a benchmark's report")]

use std::hint::black_box;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use weir_http::cache_status::CacheStatus;
use weir_http::{cache_control, conditional, forward, host, negotiate, path, request};

/// Rounds short enough (well under a millisecond) that some fall between two interruptions; the
/// best one is reported.
const RUNS: u32 = 2_000;
const ROUNDS: u32 = 500;

fn main() {
    let headers = browser_header();
    let uri: Uri = "/assets/site/main.css?v=12".parse().expect("a valid target");
    let floor_ns = measure(|| black_box(&headers).iter().map(|(_, value)| value.len()).sum());
    let report = |name: &str, ns: f64| println!("{name:40} {ns:8.1} ns {:6.2}", ns / floor_ns);
    report("floor: walk the header", floor_ns);
    report(
        "request::validate",
        measure(|| {
            let (uri, headers) = (black_box(&uri), black_box(&headers));
            request::validate(&Method::GET, uri, Version::HTTP_11, headers)
                .map_or(0, |v| v.authority.len())
        }),
    );
    report(
        "host::parse",
        measure(|| host::parse(black_box(b"shop.example")).map_or(0, |host| host.name.len())),
    );
    report("path::normalise, plain", measure(|| normalise(uri.path())));
    report("path::normalise, encoded", measure(|| normalise("/assets/site%20a/../main.css")));
    report(
        "conditional::is_conditional",
        measure(|| conditional::is_conditional(black_box(&headers)).into()),
    );
    report(
        "cache_control::RequestDirectives::of",
        measure(|| cache_control::RequestDirectives::of(black_box(&headers)).no_cache.into()),
    );
    report(
        "negotiate::accept_encoding",
        measure(|| {
            let offered = &negotiate::Coding::PREFERENCE;
            negotiate::accept_encoding(black_box(&headers), offered)
                .map_or(0, |coding| coding as usize)
        }),
    );
    report(
        "CacheStatus::hit, to_value",
        measure(|| CacheStatus::hit(black_box(3600)).to_value().len()),
    );
    report("clone, for comparison", measure(|| black_box(&headers).clone().len()));
    report(
        "clone and strip_hop_by_hop",
        measure(|| {
            let mut headers = black_box(&headers).clone();
            forward::strip_hop_by_hop(&mut headers);
            headers.len()
        }),
    );
}

fn normalise(raw: &str) -> usize {
    path::normalise(black_box(raw)).map_or(0, |path| path.as_str().len())
}

fn measure(mut work: impl FnMut() -> usize) -> f64 {
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..RUNS {
            black_box(work());
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / f64::from(RUNS));
    }
    best_ns
}

/// What a browser sends for a style sheet.
fn browser_header() -> HeaderMap {
    let fields = [
        ("host", "shop.example"),
        ("connection", "keep-alive"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("accept", "text/css,*/*;q=0.1"),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("referer", "https://shop.example/"),
        ("sec-fetch-dest", "style"),
        ("sec-fetch-mode", "no-cors"),
        ("sec-fetch-site", "same-origin"),
        ("cookie", "session=0123456789abcdef; theme=dark"),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}
