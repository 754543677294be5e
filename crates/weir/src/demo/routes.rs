//! What the demo's origin answers to each path.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ACCEPT_LANGUAGE, ALLOW, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, HOST,
    HeaderMap, RETRY_AFTER, VARY,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;

use super::answer::{Body, HTML, KEEP, TEXT, refuse, reply, reply_with_validators, set};
use super::crowd::{Crowds, Sales};
use super::gallery::{Gallery, ROUTES};
use super::pictures::{self, Picture};
use super::plugin::GRAY;
use super::sale::Sale;
use super::{Front, GUARDED, UNGUARDED};

/// Bytes of `/large`.
pub(super) const LARGE_BYTES: usize = 5_000_000;
/// Bytes of a body that `/echo` takes.
pub(super) const ECHO_BYTES_MAX: usize = 64 << 10;
/// Events of one `/stream`.
pub(super) const EVENTS: u32 = 20;
const EVENT_INTERVAL: Duration = Duration::from_millis(250);
const SLOW_DEFAULT: Duration = Duration::from_millis(800);
const SLOW_MAX: Duration = Duration::from_secs(10);

const INDEX: &str = include_str!("assets/index.html");
const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/try.js");
const WATER: &str = include_str!("assets/water.html");
const PLUGIN: &str = include_str!("assets/plugin.html");
const PLUGIN_SCRIPT: &str = include_str!("assets/plugin.js");
const CROWD: &str = include_str!("assets/crowd.html");
const CROWD_SCRIPT: &str = include_str!("assets/crowd.js");
const GALLERY: &str = include_str!("assets/adapt.html");
const GALLERY_SCRIPT: &str = include_str!("assets/adapt.js");
const PAPER: &str = include_str!("assets/paper.html");
const NOTE: &str = include_str!("assets/note.js");
const AD: &str = include_str!("assets/banner.svg");
const AD_SCRIPT: &str = include_str!("assets/count.js");

/// Some 25 KB of text as people write it.
const PAGES: &str = concat!(
    include_str!("assets/index.html"),
    include_str!("assets/style.css"),
    include_str!("assets/water.html"),
    include_str!("assets/plugin.html"),
    include_str!("assets/plugin.js"),
    include_str!("assets/crowd.html"),
    include_str!("assets/adapt.html"),
    include_str!("assets/adapt.js"),
);

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

const QUOTES: [(&str, &str); 5] = [
    ("A weir does not stop the river; it decides how high the water stands.", "the demo"),
    ("The fastest answer is the one that was ready before the question.", "a cache"),
    ("Nobody misses the request that never left the building.", "an origin"),
    ("Stale is a matter of agreement.", "RFC 9111, freely"),
    ("What is asked twice deserves to be remembered once.", "the demo"),
];

/// The demo's origin: its pictures and how often it was asked.
pub(super) struct Origin {
    started: SystemTime,
    answered: AtomicU64,
    pictures: Vec<Picture>,
    front: Front,
    crowds: Crowds,
    gallery: Gallery,
    sales: Sales,
}

impl Origin {
    pub(super) fn new(front: Front) -> Origin {
        Origin {
            started: SystemTime::now(),
            answered: AtomicU64::new(0),
            pictures: pictures::all(),
            front,
            crowds: Crowds::new(),
            gallery: Gallery::new(),
            sales: [Arc::new(Sale::new()), Arc::new(Sale::new())],
        }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let count = self.answered.fetch_add(1, Ordering::Relaxed) + 1;
        let (head, body) = request.into_parts();
        if head.uri.path() == "/echo" {
            return echo(&head, body).await;
        }
        if head.uri.path() == "/crowd/run" {
            return self.crowd(&head);
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD, please\n");
            set(&mut response, ALLOW, "GET, HEAD");
            return response;
        }
        match head.uri.path() {
            "/" => self.keep(&head, HTML, INDEX),
            "/style.css" => self.keep(&head, "text/css; charset=utf-8", STYLE),
            "/try.js" => self.keep(&head, JAVASCRIPT, SCRIPT),
            "/text/water.html" => self.keep(&head, HTML, WATER),
            "/plugin" => self.keep(&head, HTML, PLUGIN),
            "/plugin.js" => self.keep(&head, JAVASCRIPT, PLUGIN_SCRIPT),
            "/crowd" => self.keep(&head, HTML, CROWD),
            "/crowd.js" => self.keep(&head, JAVASCRIPT, CROWD_SCRIPT),
            "/adapt" => self.keep(&head, HTML, GALLERY),
            "/adapt.js" => self.keep(&head, JAVASCRIPT, GALLERY_SCRIPT),
            "/adapt/routes" => self.keep(&head, TEXT, ROUTES),
            "/adapt/figures" => self.figures(&head),
            "/paper/" => self.paper(&head),
            "/paper/note.js" => self.keep(&head, JAVASCRIPT, NOTE),
            "/paper/ads/banner.svg" => self.keep(&head, "image/svg+xml", AD),
            "/paper/ads/count.js" => self.keep(&head, JAVASCRIPT, AD_SCRIPT),
            UNGUARDED => sell(&self.sales[0]).await,
            GUARDED => sell(&self.sales[1]).await,
            "/gray.wasm" => self.keep(&head, "application/wasm", GRAY),
            "/text/long.txt" => self.keep(&head, TEXT, long_text()),
            "/text/pages.txt" => self.keep(&head, TEXT, PAGES),
            "/large" => {
                let mut response = self.keep(&head, "application/octet-stream", large());
                set(&mut response, CONTENT_DISPOSITION, "attachment; filename=\"large.bin\"");
                response
            }
            "/now" => reply(TEXT, "public, max-age=5", now(count)),
            "/stale" => reply(TEXT, "public, max-age=2, stale-while-revalidate=60", now(count)),
            "/slow" => slow(head.uri.query().unwrap_or_default(), count).await,
            "/api/quote" => quote(count),
            "/stream" => stream(),
            "/vary" => greet(&head.headers),
            "/etag" => self.validated(&head, TEXT, "public, no-cache", ETAG_TEXT),
            "/error" => {
                let mut response =
                    refuse(StatusCode::INTERNAL_SERVER_ERROR, "This page fails on purpose.\n");
                set(&mut response, RETRY_AFTER, "1");
                response
            }
            path => self.picture(path, &head).await,
        }
    }

    fn keep(
        &self,
        head: &Parts,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Response<Body> {
        self.validated(head, content_type, KEEP, body)
    }

    fn validated(
        &self,
        head: &Parts,
        content_type: &'static str,
        cache_control: &'static str,
        body: impl Into<Bytes>,
    ) -> Response<Body> {
        let request = (&head.method, &head.headers);
        reply_with_validators(request, content_type, cache_control, body.into(), self.started)
    }

    /// Sends crowds to the demo itself, and tells of them while they are there.
    fn crowd(&self, head: &Parts) -> Response<Body> {
        if head.method != Method::POST {
            let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "POST, please\n");
            set(&mut response, ALLOW, "POST");
            return response;
        }
        let Some(&front) = self.front.get() else {
            return refuse(StatusCode::CONFLICT, "Crowds come over TCP only.\n");
        };
        let query = head.uri.query().unwrap_or_default();
        let Some(report) = self.crowds.start(front, query, &self.sales) else {
            return refuse(StatusCode::CONFLICT, "There is a crowd already. It leaves soon.\n");
        };
        let mut response = reply(TEXT, "no-store", "");
        *response.body_mut() = report.boxed_unsync();
        response
    }

    /// What Weir answers where it adapts, as it is found out.
    fn figures(&self, head: &Parts) -> Response<Body> {
        let Some(&front) = self.front.get() else {
            return refuse(StatusCode::CONFLICT, "Figures are of Weir over TCP only.\n");
        };
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.map_or_else(|| front.to_string(), str::to_owned);
        let mut response = reply(TEXT, "no-store", "");
        *response.body_mut() = self.gallery.report(front, host).boxed_unsync();
        response
    }

    /// A page whose scripts are its own, or have its nonce.
    fn paper(&self, head: &Parts) -> Response<Body> {
        let mut response = self.keep(head, HTML, PAPER);
        set(&mut response, CONTENT_SECURITY_POLICY, "script-src 'self' 'nonce-of-the-demo'");
        response
    }

    async fn picture(&self, path: &str, head: &Parts) -> Response<Body> {
        let Some(picture) = self.pictures.iter().find(|picture| picture.path == path) else {
            return refuse(StatusCode::NOT_FOUND, "The demo has no such page.\n");
        };
        match picture.bytes().await {
            Ok(bytes) => self.keep(head, picture.content_type, bytes),
            Err(error) => {
                tracing::error!(%error, path, "demo origin: drawing");
                refuse(StatusCode::INTERNAL_SERVER_ERROR, "The picture could not be drawn.\n")
            }
        }
    }
}

const ETAG_TEXT: &str = "This page may be stored, but must be checked at every use (no-cache). \
The check is a request with If-None-Match, and its answer is a 304 without a body.\n";

fn now(count: u64) -> String {
    let date = weir_http::date::format(SystemTime::now());
    let date = date.to_str().unwrap_or_default();
    format!("{date}\nThis is the origin's answer number {count}.\n")
}

/// Waits as long as the query says: a page with a database behind it.
async fn slow(query: &str, count: u64) -> Response<Body> {
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("ms=")?.parse().ok());
    let pause = asked.map_or(SLOW_DEFAULT, Duration::from_millis).min(SLOW_MAX);
    tokio::time::sleep(pause).await;
    let text = format!("It took the origin {} ms to make this.\n{}", pause.as_millis(), now(count));
    reply(TEXT, "public, max-age=30", text)
}

/// The expensive page, which takes the longer the more want it.
async fn sell(sale: &Sale) -> Response<Body> {
    match sale.make().await {
        Some(work) => {
            reply(TEXT, "no-store", format!("It took {} ms to make this.\n", work.as_millis()))
        }
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "The application has too much to do.\n"),
    }
}

fn quote(count: u64) -> Response<Body> {
    let (text, by) = QUOTES[fastrand::usize(..QUOTES.len())];
    let body = json!({ "quote": text, "by": by, "answer": count }).to_string();
    reply("application/json", "no-store", body)
}

/// Server-sent events, a few a second: what must pass through at once and never be collected.
fn stream() -> Response<Body> {
    let (mut sender, body) = Channel::new(1);
    tokio::spawn(async move {
        for event in 1..=EVENTS {
            let text = format!("id: {event}\ndata: event {event} of {EVENTS}\n\n");
            if sender.send_data(text.into()).await.is_err() {
                return;
            }
            tokio::time::sleep(EVENT_INTERVAL).await;
        }
    });
    let mut response = reply("text/event-stream", "no-store", "");
    *response.body_mut() = body.boxed_unsync();
    response
}

/// One URL, three answers: the first language of the request that the origin speaks.
fn greet(headers: &HeaderMap) -> Response<Body> {
    let greetings = [
        ("en", "Good day. This is the English text of this page.\n"),
        ("de", "Guten Tag. Das ist der deutsche Text dieser Seite.\n"),
        ("fr", "Bonjour. Voici le texte français de cette page.\n"),
    ];
    let wanted = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    let (language, text) = wanted
        .unwrap_or_default()
        .split(',')
        .find_map(|range| {
            let primary = range.split(['-', ';']).next()?.trim();
            greetings.iter().find(|(language, _)| language.eq_ignore_ascii_case(primary))
        })
        .unwrap_or(&greetings[0]);
    let mut response = reply(TEXT, KEEP, *text);
    set(&mut response, VARY, "Accept-Language");
    set(&mut response, CONTENT_LANGUAGE, language);
    response
}

/// What arrived here: method, fields as Weir forwarded them, and the body.
async fn echo(head: &Parts, body: Incoming) -> Response<Body> {
    let Ok(body) = Limited::new(body, ECHO_BYTES_MAX).collect().await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "At most 64 KiB, please.\n");
    };
    let body = body.to_bytes();
    let fields: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let answer = json!({
        "method": head.method.as_str(),
        "target": head.uri.to_string(),
        "fields": fields,
        "bytes": body.len(),
        "body": String::from_utf8_lossy(&body),
    });
    reply("application/json", "no-store", format!("{answer:#}\n"))
}

/// Bytes that do not compress to nothing, the same in every run.
fn large() -> Bytes {
    static LARGE: OnceLock<Bytes> = OnceLock::new();
    let make = || {
        let mut random = fastrand::Rng::with_seed(1);
        let mut bytes = vec![0; LARGE_BYTES];
        random.fill(&mut bytes);
        bytes.into()
    };
    LARGE.get_or_init(make).clone()
}

/// Some 60 KB that compress well.
fn long_text() -> Bytes {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let make = || {
        let line = |at: u32| {
            let (metres, litres) = (at * 7 % 90 + 10, at * 131 % 4_000 + 500);
            format!("{at:4}  The gauge at kilometre {metres} reads {litres} litres a second.\n")
        };
        (1..=1_000).map(line).collect::<String>().into()
    };
    TEXT.get_or_init(make).clone()
}
