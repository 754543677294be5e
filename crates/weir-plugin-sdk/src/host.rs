//! What the host does for plugins. Outside of it, in tests, every function fails with
//! [`HostError::Failed`], except the log, which is silent.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::edits::Edits;

/// Why the host did not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostError {
    /// There is no such thing.
    NotFound,
    /// An argument is none that the function takes.
    BadArgument,
    /// The plugin's policy does not allow it.
    NotAllowed,
    /// An address is not in the plugin's memory.
    BadMemory,
    /// A limit is reached.
    Limit,
    /// It did not work.
    Failed,
    /// Somebody else has set the value meanwhile.
    Mismatch,
    /// The queue is empty.
    Empty,
}

impl HostError {
    fn new(code: i64) -> HostError {
        match code {
            -1 => HostError::NotFound,
            -2 => HostError::BadArgument,
            -3 => HostError::NotAllowed,
            -4 => HostError::BadMemory,
            -5 => HostError::Limit,
            -7 => HostError::Mismatch,
            -8 => HostError::Empty,
            _ => HostError::Failed,
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostError::NotFound => "not found",
            HostError::BadArgument => "bad argument",
            HostError::NotAllowed => "not allowed",
            HostError::BadMemory => "address outside the plugin's memory",
            HostError::Limit => "a limit is reached",
            HostError::Failed => "failed",
            HostError::Mismatch => "changed by somebody else",
            HostError::Empty => "empty",
        })
    }
}

impl core::error::Error for HostError {}

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every step.
    Trace,
    /// For debugging.
    Debug,
    /// Of interest.
    Info,
    /// Something to look at.
    Warn,
    /// Something failed.
    Error,
    /// Everything fails.
    Critical,
}

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts values by size.
    Histogram,
}

/// A metric that the plugin has defined; exported at `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric(u32);

/// A shared queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue(u32);

/// What is known of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredInfo {
    /// Status code.
    pub status: u16,
    /// Freshness lifetime left, in milliseconds; negative if it is stale.
    pub ttl_ms: i64,
    /// Age, in milliseconds.
    pub age_ms: u64,
    /// Times it was used.
    pub hits: u64,
    /// Bytes of its body.
    pub body_bytes: u64,
}

type Result<T> = core::result::Result<T, HostError>;

#[cfg(target_family = "wasm")]
use crate::raw;

#[cfg(not(target_family = "wasm"))]
use self::outside as raw;

/// There is no host.
#[cfg(not(target_family = "wasm"))]
mod outside {
    macro_rules! failing {
        ($($name:ident($($parameter:ty),*) -> $result:ty;)*) => {
            $(pub(super) fn $name($(_: $parameter),*) -> $result { -6 })*
        };
    }

    failing! {
        log(u32, *const u8, usize) -> i32;
        now() -> i64;
        random(*mut u8, usize) -> i32;
        tick(u32) -> i32;
        property(*const u8, usize) -> i64;
        property_set(*const u8, usize, *const u8, usize) -> i32;
        call(*const u8, usize, u32) -> i32;
        shared_get(*const u8, usize, *mut u32) -> i64;
        shared_set(*const u8, usize, *const u8, usize, u32) -> i32;
        queue_open(*const u8, usize) -> i32;
        queue_push(u32, *const u8, usize) -> i32;
        queue_pop(u32) -> i64;
        metric(u32, *const u8, usize) -> i32;
        metric_add(u32, i64) -> i32;
        metric_set(u32, u64) -> i32;
        metric_get(u32, *mut u64) -> i32;
        cache_query(*const u8, usize, *mut [u64; 5]) -> i32;
        cache_fields(*const u8, usize) -> i64;
        cache_read(*const u8, usize, u64, u32) -> i64;
        cache_inject(*const u8, usize, *const u8, usize, u64) -> i32;
        cache_expire(*const u8, usize) -> i32;
        cache_purge(*const u8, usize) -> i32;
    }

    pub(super) fn results(_: usize) -> alloc::vec::Vec<u8> {
        alloc::vec::Vec::new()
    }
}

fn number(code: i32) -> Result<u32> {
    u32::try_from(code).map_err(|_| HostError::new(code.into()))
}

fn done(code: i32) -> Result<()> {
    number(code).map(drop)
}

fn bytes(result: i64) -> Result<Vec<u8>> {
    match result < 0 {
        true => Err(HostError::new(result)),
        // The length is the lower half.
        false => Ok(raw::results((result & 0xffff_ffff) as usize)),
    }
}

/// Writes a line into the server's log. What the policy or the log's level does not let through is
/// dropped.
pub fn log(level: Level, text: &str) {
    raw::log(level as u32, text.as_ptr(), text.len());
}

/// The time, since 1970.
pub fn now() -> Duration {
    Duration::from_nanos(u64::try_from(raw::now()).unwrap_or(0))
}

/// Fills a buffer with random bytes, good enough for keys.
///
/// # Errors
/// [`HostError::Limit`] for more than a mebibyte.
pub fn random(to: &mut [u8]) -> Result<()> {
    done(raw::random(to.as_mut_ptr(), to.len()))
}

/// Calls [`Plugin::on_tick`](crate::Plugin::on_tick) every `period` from now on, in this instance;
/// zero stops it.
///
/// # Errors
/// [`HostError::BadArgument`] for more than 49 days.
pub fn tick(period: Duration) -> Result<()> {
    let ms = u32::try_from(period.as_millis()).map_err(|_| HostError::BadArgument)?;
    done(raw::tick(ms))
}

/// A property, such as `request.protocol` or `source.address`: text as it is, numbers and times (in
/// nanoseconds) as 8 bytes, little endian, a truth as one byte.
///
/// # Errors
/// [`HostError::NotFound`].
pub fn property(path: &str) -> Result<Vec<u8>> {
    bytes(raw::property(path.as_ptr(), path.len()))
}

/// Sets a property of the request in hand, for the plugins after this one and for its own later
/// hooks.
///
/// # Errors
/// [`HostError::NotFound`] without a request in hand, [`HostError::Limit`].
pub fn set_property(path: &str, value: &[u8]) -> Result<()> {
    done(raw::property_set(path.as_ptr(), path.len(), value.as_ptr(), value.len()))
}

/// Sends a request to an upstream. `request` says it in edits: an upstream, and if need be method,
/// target, authority, fields, body, trailers. The answer comes to
/// [`Plugin::on_call`](crate::Plugin::on_call) with the number that is returned.
///
/// # Errors
/// [`HostError::NotAllowed`], [`HostError::NotFound`] for the upstream, [`HostError::BadArgument`]
/// for the request, [`HostError::Limit`] for too many calls in flight.
pub fn call(request: &mut Edits, timeout: Duration) -> Result<u32> {
    let ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    let list = request.finish();
    number(raw::call(list.as_ptr(), list.len(), ms))
}

/// What a key of the shared data must hold for its value to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything, or nothing.
    Any,
    /// Nothing: of several that set it first, one does.
    Absent,
    /// The value with this number, which [`shared_get`] gave.
    Cas(u32),
}

/// A value of the shared data, and the number that changes when it does. Keys are the plugin's own;
/// `name/key` is the key of somebody else, if the policy allows that name.
///
/// # Errors
/// [`HostError::NotFound`].
pub fn shared_get(key: &str) -> Result<(Vec<u8>, u32)> {
    let mut cas = 0;
    let value = bytes(raw::shared_get(key.as_ptr(), key.len(), &raw mut cas))?;
    Ok((value, cas))
}

/// Sets a value of the shared data, if the key holds what is expected.
///
/// # Errors
/// [`HostError::Mismatch`], [`HostError::Limit`].
pub fn shared_set(key: &str, value: &[u8], expect: Expect) -> Result<()> {
    let (ptr, len) = (value.as_ptr(), value.len());
    let cas = match expect {
        Expect::Any => 0,
        Expect::Absent => u32::MAX,
        Expect::Cas(cas) => cas,
    };
    done(raw::shared_set(key.as_ptr(), key.len(), ptr, len, cas))
}

impl Queue {
    /// Opens a queue, which is made if it is not there; `name/queue` is somebody else's, and must
    /// be there.
    ///
    /// # Errors
    /// [`HostError::NotFound`], [`HostError::Limit`].
    pub fn open(name: &str) -> Result<Queue> {
        number(raw::queue_open(name.as_ptr(), name.len())).map(Queue)
    }

    /// Puts something at its end.
    ///
    /// # Errors
    /// [`HostError::Limit`] if it is full.
    pub fn push(self, item: &[u8]) -> Result<()> {
        done(raw::queue_push(self.0, item.as_ptr(), item.len()))
    }

    /// Takes what is at its front.
    ///
    /// # Errors
    /// [`HostError::Empty`].
    pub fn pop(self) -> Result<Vec<u8>> {
        bytes(raw::queue_pop(self.0))
    }
}

impl Metric {
    /// Defines a metric, or finds it if it is defined.
    ///
    /// # Errors
    /// [`HostError::BadArgument`] if it is defined as another kind, [`HostError::Limit`].
    pub fn define(kind: MetricKind, name: &str) -> Result<Metric> {
        number(raw::metric(kind as u32, name.as_ptr(), name.len())).map(Metric)
    }

    /// Changes a counter or a gauge.
    ///
    /// # Errors
    /// [`HostError::BadArgument`] for what its kind does not do.
    pub fn add(&self, delta: i64) -> Result<()> {
        done(raw::metric_add(self.0, delta))
    }

    /// Sets a counter or a gauge, adds a value to a histogram.
    ///
    /// # Errors
    /// None for a metric that [`Metric::define`] returned.
    pub fn record(self, value: u64) -> Result<()> {
        done(raw::metric_set(self.0, value))
    }

    /// The value of a counter or a gauge.
    ///
    /// # Errors
    /// [`HostError::BadArgument`] for a histogram.
    pub fn value(self) -> Result<u64> {
        let mut value = 0;
        done(raw::metric_get(self.0, &raw mut value))?;
        Ok(value)
    }
}

/// What is known of the response stored for GET of a URL.
///
/// # Errors
/// [`HostError::NotAllowed`], [`HostError::NotFound`], [`HostError::BadArgument`] for the URL.
pub fn cache_query(url: &str) -> Result<StoredInfo> {
    let mut info = [0; 5];
    done(raw::cache_query(url.as_ptr(), url.len(), &raw mut info))?;
    let [status, ttl_ms, age_ms, hits, body_bytes] = info;
    // The host writes a status code.
    Ok(StoredInfo { status: status as u16, ttl_ms: ttl_ms.cast_signed(), age_ms, hits, body_bytes })
}

/// The fields of the response stored for GET of a URL.
///
/// # Errors
/// As [`cache_query`].
pub fn cache_fields(url: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let encoded = bytes(raw::cache_fields(url.as_ptr(), url.len()))?;
    Ok(lines(&encoded))
}

/// Lines of names and values, as the host writes them where it writes several: in
/// [`cache_fields`], and in properties that have names and values.
pub fn lines(mut encoded: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut lines = Vec::new();
    while let Some(([a, b, c, d, e, f, g, h], rest)) = encoded.split_first_chunk() {
        let name_len = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let value_len = u32::from_le_bytes([*e, *f, *g, *h]) as usize;
        let Some((name, rest)) = rest.split_at_checked(name_len) else { break };
        let Some((value, rest)) = rest.split_at_checked(value_len) else { break };
        lines.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
        encoded = rest;
    }
    lines
}

/// Bytes of the body of the response stored for GET of a URL: from `offset` on, `max` at most, and
/// never more than a mebibyte.
///
/// # Errors
/// As [`cache_query`].
pub fn cache_read(url: &str, offset: u64, max: u32) -> Result<Vec<u8>> {
    bytes(raw::cache_read(url.as_ptr(), url.len(), offset, max))
}

/// Stores a response for GET of a URL. `response` says it in edits: status (200 if it does not),
/// fields, body.
///
/// # Errors
/// As [`cache_query`]; [`HostError::Limit`] if it does not fit.
pub fn cache_inject(url: &str, response: &mut Edits, ttl: Duration) -> Result<()> {
    let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let list = response.finish();
    done(raw::cache_inject(url.as_ptr(), url.len(), list.as_ptr(), list.len(), ms))
}

/// Makes what is stored for a URL stale. Returns how many responses that were.
///
/// # Errors
/// As [`cache_query`].
pub fn cache_expire(url: &str) -> Result<u32> {
    number(raw::cache_expire(url.as_ptr(), url.len()))
}

/// Removes what is stored for a URL. Returns how many responses that were.
///
/// # Errors
/// As [`cache_query`].
pub fn cache_purge(url: &str) -> Result<u32> {
    number(raw::cache_purge(url.as_ptr(), url.len()))
}
