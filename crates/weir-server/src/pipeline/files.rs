//! Files as a source: a miss is read once into the cache, whoever waits; a file too large for it is
//! streamed.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use tokio::task::spawn_blocking;
use weir_cache::{
    Cache, Collapse, Failure, Freshness, Head, Key, KeyRef, Lead, Object, Outcome, SourceStamp,
};
use weir_http::cache_status::CacheStatus;
use weir_origin::files::{Accepted, FileRoot, FilesError, Found, ListingFormat, OpenFile, Stamp};

use super::Ask;
use super::look_up::{self, Missed};
use super::made;
use super::refuse::Refusal;
use super::reply::Answer;
use super::settled;
use super::whole::Whole;
use crate::body::ReplyBody;
use crate::live::{FilesSource, Source};
use crate::metrics::CacheResult;
use crate::shared::unix_ms;
use crate::turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ALLOWED: &str = "GET, HEAD, OPTIONS";

/// A stored file is fresh as long as its stamp says so; the clock has no say.
const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Rounds of waiting for others before a request reads the file for itself.
pub(super) const FOLLOW_ROUNDS_MAX: usize = 3;

/// Answers a request for a file that is not in the cache.
pub(super) async fn answer(ask: Ask, missed: Missed) -> Response<ReplyBody> {
    let Source::Files(source) = &ask.route.source else {
        return ask.refuse(Refusal::NotFound, CacheResult::None);
    };
    match ask.head.method {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return options(ask, ALLOWED),
        _ => return ask.refuse(Refusal::MethodNotAllowed(ALLOWED), CacheResult::None),
    }
    let query = match Query::new(source, &ask, &missed) {
        Ok(query) => query,
        Err(refusal) => return ask.refuse(refusal, CacheResult::None),
    };
    if let Some(passage) = ask.passage.clone().filter(|passage| passage.fills()) {
        return made::answer(ask, missed, query, passage).await;
    }
    let (loaded, collapsed) = match missed.scope.filter(|_| !missed.pass) {
        Some(scope) => load_shared(&ask, query, scope).await,
        None => (load_alone(query).await, false),
    };
    finish(ask, &missed, loaded, collapsed).await
}

/// Answers with what is there, whatever plugins would make of it.
pub(super) async fn plain(ask: Ask, missed: &Missed, query: Query) -> Response<ReplyBody> {
    let loaded = load_alone(query).await;
    finish(ask, missed, loaded, false).await
}

async fn finish(
    ask: Ask,
    missed: &Missed,
    loaded: Result<Loaded, Refusal>,
    collapsed: bool,
) -> Response<ReplyBody> {
    let Source::Files(source) = &ask.route.source else {
        return ask.refuse(Refusal::NotFound, CacheResult::None);
    };
    let cache = match (missed.scope, collapsed) {
        (None, _) => CacheResult::None,
        (Some(_), true) => CacheResult::Collapsed,
        (Some(_), false) => CacheResult::Miss,
    };
    let stored = matches!(loaded, Ok(Loaded::Object(_))) && !collapsed;
    let forwarded = CacheStatus::forwarded(missed.forward);
    let cache_status = CacheStatus { stored, collapsed, ..forwarded };
    let (status, mut headers, whole) = match loaded {
        Ok(Loaded::Object(object)) => {
            return settled::answer(ask, Whole::Object(object), cache, cache_status).await;
        }
        Ok(Loaded::File(file)) => {
            (StatusCode::OK, file_headers(&file, None), Whole::File(Box::new(file)))
        }
        Ok(Loaded::Directory) => return redirect_to_directory(ask),
        Ok(Loaded::Listing(headers, body)) => (StatusCode::OK, headers, Whole::Bytes(body)),
        Err(refusal) => return ask.refuse(refusal, cache),
    };
    if let (Whole::File(_), Some(value)) = (&whole, &source.cache_control) {
        headers.insert(header::CACHE_CONTROL, value.clone());
    }
    let cache_status = missed.scope.is_some().then(|| cache_status.to_value());
    ask.finish(Answer { status, headers, whole, cache, cache_status })
}

/// What is looked for, in a form that a blocking thread can take.
pub(super) struct Query {
    root: FileRoot,
    path: Vec<u8>,
    trailing_slash: bool,
    accepted: Accepted,
    listing: ListingFormat,
    shown_path: String,
    cache_control: Option<HeaderValue>,
    workers: usize,
    /// Where a file is stored that has no precompressed siblings.
    plain_key: Key,
    now: SystemTime,
}

impl Query {
    fn new(source: &FilesSource, ask: &Ask, missed: &Missed) -> Result<Query, Refusal> {
        let prefix = match (&ask.route.pattern, source.strip_prefix) {
            (weir_config::Pattern::Prefix(prefix), true) => prefix.as_str(),
            _ => "",
        };
        let path = weir_http::path::normalise(ask.target.source_path())?;
        // A path that cannot name a file names none; that is no fault of the client's.
        let relative = path.relative(prefix).map_err(|_| Refusal::NotFound)?;
        let accept: Vec<&[u8]> =
            ask.head.headers.get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes).collect();
        Ok(Query {
            root: source.root.clone(),
            path: relative.into_owned(),
            trailing_slash: path.is_directory(),
            accepted: missed.accepted,
            listing: ListingFormat::from_accept(&accept.join(&b", "[..])),
            shown_path: ask.target.source_path().to_owned(),
            cache_control: source.cache_control.clone(),
            workers: ask.connection().worker.shared.workers,
            plain_key: plain_key(ask),
            now: ask.now,
        })
    }

    pub(super) fn find(&self) -> Result<Found, FilesError> {
        self.root.resolve(&self.path, self.trailing_slash, self.accepted, self.now)
    }
}

/// The head of a file as it is, and its own word on whether it is current.
pub(super) fn describe(
    file: &OpenFile,
    query: &Query,
) -> (HeaderMap, Arc<dyn SourceStamp + Send + Sync>) {
    let headers = file_headers(file, query.cache_control.as_ref());
    (headers, Arc::new(FileStamp::new(file.stamp(), query.workers)))
}

/// When a stored file may be used.
pub(super) fn freshness(now_ms: u64) -> Freshness {
    Freshness::for_lifetime(now_ms, LIFETIME.as_millis() as u64)
}

fn plain_key(ask: &Ask) -> Key {
    let scope = look_up::scope(&ask.route, ask.connection().tls, Accepted::default());
    let scope = scope ^ ask.target.variant;
    let authority = look_up::key_authority(&ask.route, &ask.target.host);
    KeyRef { scope, authority, path_and_query: &ask.target.path }.to_key()
}

/// What a path turned out to be.
enum Loaded {
    /// A file that is in the cache now, or at least in memory.
    Object(Arc<Object>),
    /// A file to stream.
    File(OpenFile),
    /// A directory without its slash.
    Directory,
    Listing(HeaderMap, Bytes),
}

/// Loads together with whoever else asks for the same, and stores.
async fn load_shared(ask: &Ask, query: Query, scope: u64) -> (Result<Loaded, Refusal>, bool) {
    let cache = &ask.connection().worker.shared.cache;
    let path = look_up::key_path(&ask.route, &ask.target, None);
    let authority = look_up::key_authority(&ask.route, &ask.target.host);
    let key = KeyRef { scope, authority, path_and_query: &path };
    let headers = &ask.head.headers;
    for _ in 0..FOLLOW_ROUNDS_MAX {
        match cache.collapse(&key, headers, &Default::default(), ask.now_ms()) {
            Collapse::Hit(object) => return (Ok(Loaded::Object(object)), true),
            Collapse::Pass(_) => break,
            Collapse::Lead(lead) => {
                ask.route.variants.hold(ask.target.variant, ask.now_ms());
                let cache = cache.clone();
                let loaded = spawn_blocking(move || lead_load(&cache, lead, &query)).await;
                return (loaded.unwrap_or_else(|_| Err(panicked())), false);
            }
            Collapse::Follow(follow) => {
                let limit = ask.route.cache.collapse_timeout;
                match tokio::time::timeout(limit, follow.wait(headers)).await {
                    Ok(Outcome::Object(object)) => return (Ok(Loaded::Object(object)), true),
                    Ok(Outcome::Failed(failure)) => {
                        return (Err(refusal(failure.status)), true);
                    }
                    Ok(Outcome::Retry) => {}
                    // Files are stored whole: there are no fills to read from.
                    Ok(Outcome::Pass(_) | Outcome::Fill(_)) | Err(_) => break,
                }
            }
        }
    }
    (load_alone(query).await, false)
}

/// Loads for this request alone, without storing.
async fn load_alone(query: Query) -> Result<Loaded, Refusal> {
    let load = move || match query.find() {
        Ok(found) => not_stored(found, &query),
        Err(error) => Err(failed(&error)),
    };
    spawn_blocking(load).await.unwrap_or_else(|_| Err(panicked()))
}

/// Finds and reads the file, and hands it to the cache and all who wait. Blocks on the disk.
fn lead_load(cache: &Cache, lead: Lead, query: &Query) -> Result<Loaded, Refusal> {
    let now_ms = unix_ms(query.now);
    let found = match query.find() {
        Ok(found) => found,
        Err(error) => {
            lead.fail(Failure::new(error.status(), error.to_string()));
            return Err(failed(&error));
        }
    };
    let Found::File(file) = found else {
        lead.pass(now_ms);
        return not_stored(found, query);
    };
    let Ok(mut destination) = cache.destination(file.len) else {
        lead.pass(now_ms);
        return Ok(Loaded::File(file));
    };
    // The stamp first: a change while reading must make it out of date.
    let stamp = file.stamp();
    if let Err(error) = file.read(&mut |piece| destination.write(piece)) {
        if matches!(error, FilesError::Changed { .. } | FilesError::Destination { .. }) {
            // Being edited, or no memory: stream what is there now, which has checks of its own.
            lead.pass(now_ms);
            return load_changed(query);
        }
        lead.fail(Failure::new(error.status(), error.to_string()));
        return Err(failed(&error));
    }
    file.drop_page_cache();
    let headers = file_headers(&file, query.cache_control.as_ref());
    let mut head = Head::new(StatusCode::OK, headers, freshness(now_ms));
    head.stamp = Some(Arc::new(FileStamp::new(stamp, query.workers)));
    let body = destination.freeze();
    if file.vary_on_encoding || query.accepted == Accepted::default() {
        return Ok(Loaded::Object(lead.complete(head, body, None)));
    }
    // Without siblings one stored file answers whatever codings a request accepts.
    let (object, _) = cache.insert(&query.plain_key.borrow(), head, body, None);
    lead.release(Arc::clone(&object));
    Ok(Loaded::Object(object))
}

fn load_changed(query: &Query) -> Result<Loaded, Refusal> {
    match query.find() {
        Ok(found) => not_stored(found, query),
        Err(error) => Err(failed(&error)),
    }
}

fn not_stored(found: Found, query: &Query) -> Result<Loaded, Refusal> {
    match found {
        Found::File(file) => Ok(Loaded::File(file)),
        Found::Redirect => Ok(Loaded::Directory),
        Found::Listing(directory) => {
            let listing = directory.list().map_err(|error| failed(&error))?;
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, query.listing.content_type());
            headers.insert(header::VARY, HeaderValue::from_static("accept"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            Ok(Loaded::Listing(headers, listing.render(query.listing, &query.shown_path)))
        }
    }
}

/// The stored file's own word on whether it is current. Asking the file system costs as much as a
/// tenth of a request, so a worker asks once a turn.
struct FileStamp {
    stamp: Stamp,
    /// By worker: the last turn in which the file was found current.
    current_in: Box<[AtomicU64]>,
}

impl FileStamp {
    fn new(stamp: Stamp, workers: usize) -> FileStamp {
        FileStamp { stamp, current_in: (0..workers).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl SourceStamp for FileStamp {
    fn is_current(&self) -> bool {
        let turn = turn::current();
        let known = turn.and_then(|turn| Some((turn.number, self.current_in.get(turn.worker)?)));
        if known.is_some_and(|(number, current_in)| current_in.load(Relaxed) == number) {
            return true;
        }
        let current = self.stamp.is_current(SystemTime::now());
        if let Some((number, current_in)) = known.filter(|_| current) {
            current_in.store(number, Relaxed);
            turn::use_until_end();
        }
        current
    }
}

fn file_headers(file: &OpenFile, cache_control: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, file.content_type.clone());
    headers.insert(header::ETAG, file.etag.clone());
    headers.insert(header::LAST_MODIFIED, weir_http::date::format(file.modified));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(coding) = file.coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
    }
    if file.vary_on_encoding {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(value) = cache_control {
        headers.insert(header::CACHE_CONTROL, value.clone());
    }
    headers
}

pub(super) fn redirect_to_directory(ask: Ask) -> Response<ReplyBody> {
    let (path, query) = match ask.target.forward.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (ask.target.forward.as_str(), None),
    };
    // A path that starts with two slashes would name another host.
    let mut location = format!("/{}/", path.trim_start_matches('/'));
    if let Some(query) = query {
        location.push('?');
        location.push_str(query);
    }
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, value);
    }
    simple(ask, StatusCode::MOVED_PERMANENTLY, headers)
}

/// An answer to OPTIONS of Weir's own.
pub(super) fn options(ask: Ask, allowed: &'static str) -> Response<ReplyBody> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
    simple(ask, StatusCode::NO_CONTENT, headers)
}

fn simple(ask: Ask, status: StatusCode, headers: HeaderMap) -> Response<ReplyBody> {
    let whole = Whole::Bytes(Bytes::new());
    ask.finish(Answer { status, headers, whole, cache: CacheResult::None, cache_status: None })
}

pub(super) fn failed(error: &FilesError) -> Refusal {
    let refusal = refusal(error.status());
    // What the system refused was logged where it was met.
    let is_logged = matches!(error, FilesError::Unavailable { .. } | FilesError::Io { .. });
    if matches!(refusal, Refusal::Source(..)) && !is_logged {
        tracing::error!(cause = %error, "cannot serve a file");
    }
    refusal
}

fn refusal(status: StatusCode) -> Refusal {
    match status {
        StatusCode::NOT_FOUND => Refusal::NotFound,
        StatusCode::FORBIDDEN => Refusal::Forbidden,
        status => Refusal::Source(status, "the file cannot be read"),
    }
}

pub(super) fn panicked() -> Refusal {
    Refusal::Source(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
}
