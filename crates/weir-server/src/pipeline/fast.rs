//! The fast path: a plain GET for a stored document, answered from its bytes to bytes. It runs the
//! stages of [`super::serve`] with the same functions and the same result; what it leaves out are
//! the tables of fields in between. Anything but a fresh hit is handed over to the full path.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, StatusCode};
use weir_cache::Object;
use weir_http::date::Ticker;
use weir_http::path;
use weir_http::plain;
use weir_http::request::Framing;

use super::{admit, look_up, reply, route};
use crate::connection::Connection;
use crate::live::Route;
use crate::metrics::CacheResult;
use crate::record::Record;
use crate::shared::coarse_unix_ms;

/// Bytes set aside for a response's head; most need two thirds.
const HEAD_BYTES: usize = 512;

/// A response to a plain request.
pub(crate) struct Hit {
    pub(crate) record: Record,
    /// Status line and fields, as they are sent.
    pub(crate) head: Vec<u8>,
    /// Whose body follows.
    pub(crate) object: Arc<Object>,
    /// Bytes of the request.
    pub(crate) request_len: usize,
    /// The connection ends with this response.
    pub(crate) last: bool,
}

/// Answers the request at the beginning of `bytes`, if it is whole, plain and a hit.
pub(crate) fn answer(connection: &Arc<Connection>, bytes: &[u8]) -> Option<Hit> {
    let shared = &connection.worker.shared;
    let live = shared.live.load();
    let limits = &live.config.server.limits;
    let request = plain::parse(bytes, limits.header_size, limits.header_count)?;
    let started = Instant::now();

    // Route.
    let site = route::site(&live, connection, &request.host.name).ok()?;
    let (raw_path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.target, None),
    };
    let path = path::normalise(raw_path).ok()?;
    let route = site.routes.find(path.as_str())?;

    // Admit.
    admit::admit(route, &Method::GET, Framing::Empty).ok()?;

    // Cache.
    let now_ms = coarse_unix_ms();
    let asked = look_up::Asked { host: &request.host.name, path: path.as_str(), query };
    let object = look_up::plain_hit(connection, route, &asked, now_ms)?;
    let fields = Fields::of(route, &object, now_ms)?;

    // Reply.
    let mut record = Record::start(connection, started);
    record.set_plain_route(route, &request);
    route.metrics.count_fast(connection.worker.index);
    record.status = StatusCode::OK.as_u16();
    record.cache = CacheResult::Hit;
    let last = request.closes || shared.is_draining();
    let head = write_head(&fields, object.body().len(), now_ms, last);
    Some(Hit { record, head, object, request_len: request.len, last })
}

/// The fields of a response.
enum Fields<'a> {
    /// As stored, but for those that every hit gets anew.
    Stored { stored: &'a HeaderMap, own: reply::HitFields },
    /// After the route's edits.
    Edited(HeaderMap),
}

impl Fields<'_> {
    /// `None` if they say how the message is framed, which is hyper's business.
    fn of<'a>(route: &Route, object: &'a Object, now_ms: u64) -> Option<Fields<'a>> {
        let own = reply::HitFields::of(route, object, now_ms);
        if route.response_edits.is_empty() {
            return Some(Fields::Stored { stored: object.headers(), own });
        }
        let mut headers = HeaderMap::new();
        reply::copy(object.headers(), &mut headers);
        own.set(&mut headers);
        reply::edit(&mut headers, &route.response_edits);
        let framing = [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
        let frames = framing.iter().any(|name| headers.contains_key(name));
        (!frames).then_some(Fields::Edited(headers))
    }
}

/// A head as hyper writes it.
fn write_head(fields: &Fields<'_>, length: u64, now_ms: u64, last: bool) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    let mut dated = false;
    match fields {
        Fields::Stored { stored, own } => {
            for (name, value) in *stored {
                if !own.replace(name) {
                    dated |= *name == header::DATE;
                    write_field(&mut head, name, value.as_bytes());
                }
            }
            own.each(|name, value| write_field(&mut head, name, value.as_bytes()));
        }
        Fields::Edited(headers) => {
            for (name, value) in headers {
                dated |= *name == header::DATE;
                write_field(&mut head, name, value.as_bytes());
            }
        }
    }
    if last {
        write_field(&mut head, &header::CONNECTION, b"close");
    }
    let mut digits = itoa::Buffer::new();
    write_field(&mut head, &header::CONTENT_LENGTH, digits.format(length).as_bytes());
    if !dated {
        DATE.with_borrow_mut(|date| {
            let now = UNIX_EPOCH + Duration::from_millis(now_ms);
            let ticker = date.get_or_insert_with(|| Ticker::new(now));
            write_field(&mut head, &header::DATE, ticker.at(now).as_bytes());
        });
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn write_field(head: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    let name = name.as_str().as_bytes();
    head.reserve(name.len() + value.len() + 4);
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

thread_local! {
    static DATE: RefCell<Option<Ticker>> = const { RefCell::new(None) };
}
