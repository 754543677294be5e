//! Cache directives: Cache-Control of requests and responses (RFC 9111 §5.2, RFC 5861, RFC 8246),
//! Pragma, and CDN-Cache-Control (RFC 9213). What follows from them is `weir-cache`'s to decide.

use std::time::Duration;

use http::header::{self, HeaderMap};
use http::{HeaderName, HeaderValue};

/// What a number of seconds too large to represent becomes (RFC 9111 §1.2.2).
pub const DELTA_SECONDS_MAX: u64 = 1 << 31;

/// Field names in one qualified directive beyond which it is read as unqualified, the stricter.
const FIELDS_MAX: usize = 32;

const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Directives of a request (RFC 9111 §5.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `max-age`: no response older than this.
    pub max_age: Option<Duration>,
    /// `max-stale`: a response may be stale by this much; `Duration::MAX` where no limit is given.
    pub max_stale: Option<Duration>,
    /// `min-fresh`: a response must stay fresh for this long.
    pub min_fresh: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4): may be stale by this much if the origin fails.
    pub stale_if_error: Option<Duration>,
    /// `no-cache`, or `Pragma: no-cache` without Cache-Control.
    pub no_cache: bool,
    /// `no-store`
    pub no_store: bool,
    /// `no-transform`
    pub no_transform: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
}

/// Directives of a response (RFC 9111 §5.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// They come from CDN-Cache-Control: Cache-Control and Expires are to be ignored (RFC 9213
    /// §2.2).
    pub targeted: bool,
    /// `max-age`
    pub max_age: Option<Duration>,
    /// `s-maxage`
    pub s_maxage: Option<Duration>,
    /// `stale-while-revalidate` (RFC 5861 §3)
    pub stale_while_revalidate: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4)
    pub stale_if_error: Option<Duration>,
    /// `no-cache`
    pub no_cache: Option<Scope>,
    /// `private`
    pub private: Option<Scope>,
    /// `public`
    pub public: bool,
    /// `no-store`
    pub no_store: bool,
    /// `no-transform`
    pub no_transform: bool,
    /// `must-revalidate`
    pub must_revalidate: bool,
    /// `proxy-revalidate`
    pub proxy_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `immutable` (RFC 8246)
    pub immutable: bool,
}

/// What a `no-cache` or `private` directive covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole response.
    Response,
    /// These fields of it (`no-cache="set-cookie"`).
    Fields(Vec<HeaderName>),
}

impl RequestDirectives {
    /// Reads a request's Cache-Control, or Pragma if there is none (RFC 9111 §5.4).
    pub fn of(request: &HeaderMap) -> RequestDirectives {
        let mut directives = RequestDirectives::default();
        if request.contains_key(header::CACHE_CONTROL) {
            for value in request.get_all(header::CACHE_CONTROL) {
                directives.read(value.as_bytes());
            }
        } else {
            directives.no_cache = request
                .get_all(header::PRAGMA)
                .iter()
                .flat_map(|value| crate::syntax::split(value.as_bytes(), b','))
                .any(|member| member.eq_ignore_ascii_case(b"no-cache"));
        }
        directives
    }

    /// Parses one Cache-Control value.
    pub fn parse(value: &[u8]) -> RequestDirectives {
        let mut directives = RequestDirectives::default();
        directives.read(value);
        directives
    }

    /// Of repeated directives the first counts. A number that is none becomes what asks most of
    /// the cache: 0 for `max-age`, and no leave at all to be stale.
    fn read(&mut self, value: &[u8]) {
        for Directive { name, argument } in directives(value) {
            let seconds = || argument.as_ref().and_then(Argument::seconds);
            match name.as_str() {
                "max-age" => {
                    self.max_age.get_or_insert_with(|| seconds().unwrap_or_default());
                }
                "min-fresh" => self.min_fresh = self.min_fresh.or_else(seconds),
                "max-stale" if argument.is_none() => {
                    self.max_stale.get_or_insert(Duration::MAX);
                }
                "max-stale" => {
                    self.max_stale.get_or_insert_with(|| seconds().unwrap_or_default());
                }
                "stale-if-error" => self.stale_if_error = self.stale_if_error.or_else(seconds),
                "no-cache" => self.no_cache = true,
                "no-store" => self.no_store = true,
                "no-transform" => self.no_transform = true,
                "only-if-cached" => self.only_if_cached = true,
                _ => {}
            }
        }
    }
}

impl ResponseDirectives {
    /// Reads a response's CDN-Cache-Control if it has a valid one, else its Cache-Control
    /// (RFC 9213 §2.2).
    pub fn of(response: &HeaderMap) -> ResponseDirectives {
        if response.contains_key(&CDN_CACHE_CONTROL) {
            let lines: Vec<_> =
                response.get_all(&CDN_CACHE_CONTROL).iter().map(HeaderValue::as_bytes).collect();
            if let Some(directives) = ResponseDirectives::parse_targeted(&lines.join(&b", "[..])) {
                return directives;
            }
        }
        let mut directives = ResponseDirectives::default();
        for value in response.get_all(header::CACHE_CONTROL) {
            directives.read(value.as_bytes());
        }
        directives
    }

    /// Whether a response says `no-store` at first sight, for callers that expect it and would
    /// rather not read all directives. It errs to `true` if the word is part of a quoted list, and
    /// to `false` if another directive may have the last word.
    pub fn glance_no_store(response: &HeaderMap) -> bool {
        let mut no_store = false;
        for value in response.get_all(header::CACHE_CONTROL) {
            for member in value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                no_store |= member.eq_ignore_ascii_case(b"no-store");
                if member.eq_ignore_ascii_case(b"must-understand") {
                    return false;
                }
            }
        }
        no_store && !response.contains_key(&CDN_CACHE_CONTROL)
    }

    /// Parses one Cache-Control value.
    pub fn parse(value: &[u8]) -> ResponseDirectives {
        let mut directives = ResponseDirectives::default();
        directives.read(value);
        directives
    }

    /// Parses a targeted field, all lines joined, as the structured dictionary it must be. `None`
    /// if it is empty or not one: then it counts as absent (RFC 9213 §2.1).
    pub fn parse_targeted(value: &[u8]) -> Option<ResponseDirectives> {
        let dictionary: sfv::Dictionary = sfv::Parser::new(value).parse().ok()?;
        if dictionary.is_empty() {
            return None;
        }
        let mut directives = ResponseDirectives { targeted: true, ..Default::default() };
        for (name, entry) in &dictionary {
            let sfv::ListEntry::Item(item) = entry else { continue };
            let argument = match &item.bare_item {
                sfv::BareItem::Boolean(true) => None,
                sfv::BareItem::Integer(number) => Some(Argument::Number(i64::from(*number))),
                sfv::BareItem::String(text) => {
                    Some(Argument::Text(text.as_str().as_bytes().to_vec()))
                }
                // `?0` switches nothing on; other types mean nothing here.
                _ => continue,
            };
            directives.apply(name.as_str(), argument.as_ref());
        }
        Some(directives)
    }

    fn read(&mut self, value: &[u8]) {
        for Directive { name, argument } in directives(value) {
            self.apply(&name, argument.as_ref());
        }
    }

    /// Of repeated directives the first counts. A lifetime that is no number is 0: the response is
    /// to be considered stale (RFC 9111 §4.2.1).
    fn apply(&mut self, name: &str, argument: Option<&Argument>) {
        let seconds = || argument.and_then(Argument::seconds);
        match name {
            "max-age" => {
                self.max_age.get_or_insert_with(|| seconds().unwrap_or_default());
            }
            "s-maxage" => {
                self.s_maxage.get_or_insert_with(|| seconds().unwrap_or_default());
            }
            "stale-while-revalidate" => {
                self.stale_while_revalidate = self.stale_while_revalidate.or_else(seconds);
            }
            "stale-if-error" => self.stale_if_error = self.stale_if_error.or_else(seconds),
            "no-cache" => widen(&mut self.no_cache, argument),
            "private" => widen(&mut self.private, argument),
            "public" => self.public = true,
            "no-store" => self.no_store = true,
            "no-transform" => self.no_transform = true,
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "must-understand" => self.must_understand = true,
            "immutable" => self.immutable = true,
            _ => {}
        }
    }
}

/// Whether the Cache-Control of a request or a response says `no-transform` (RFC 9111 §5.2.1.6,
/// §5.2.2.6), for callers who need nothing else of it: no other directive has a say in that.
pub fn forbids_transformation(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CACHE_CONTROL).into_iter();
    let mut members = lines.flat_map(|line| crate::syntax::split(line.as_bytes(), b','));
    members.any(|member| {
        let end = member.iter().position(|&byte| byte == b'=').unwrap_or(member.len());
        crate::syntax::trim(&member[..end]).eq_ignore_ascii_case(b"no-transform")
    })
}

/// Adds a directive's argument to what its earlier occurrences cover. An argument that is not a
/// list of field names covers everything, to be safe.
fn widen(scope: &mut Option<Scope>, argument: Option<&Argument>) {
    let names = argument.and_then(Argument::field_names);
    *scope = match (scope.take(), names) {
        (Some(Scope::Response), _) | (_, None) => Some(Scope::Response),
        (None, Some(names)) => Some(Scope::Fields(names)),
        (Some(Scope::Fields(mut all)), Some(names)) => {
            all.extend(names);
            Some(if all.len() > FIELDS_MAX { Scope::Response } else { Scope::Fields(all) })
        }
    };
}

struct Directive {
    /// In lower case.
    name: String,
    argument: Option<Argument>,
}

enum Argument {
    /// From a structured field.
    Number(i64),
    /// Content of a token or a quoted-string.
    Text(Vec<u8>),
    /// Neither: `max-age='5'`, `max-age="5`, `max-age= 5`.
    Invalid,
}

impl Argument {
    fn seconds(&self) -> Option<Duration> {
        let seconds = match self {
            Argument::Number(number) => u64::try_from(*number).ok()?,
            Argument::Text(text) => crate::syntax::digits(text)?,
            Argument::Invalid => return None,
        };
        Some(Duration::from_secs(seconds.min(DELTA_SECONDS_MAX)))
    }

    fn field_names(&self) -> Option<Vec<HeaderName>> {
        let Argument::Text(text) = self else { return None };
        let names: Vec<_> = crate::syntax::split(text, b',')
            .map(|name| HeaderName::from_bytes(name).ok())
            .collect::<Option<_>>()?;
        (!names.is_empty() && names.len() <= FIELDS_MAX).then_some(names)
    }
}

/// The directives of one field line. Those whose name is not a token are left out.
fn directives(value: &[u8]) -> impl Iterator<Item = Directive> {
    crate::syntax::split(value, b',').filter_map(|member| {
        let equals = member.iter().position(|&byte| byte == b'=');
        let (name, argument) = match equals {
            Some(index) => (&member[..index], Some(argument(&member[index + 1..]))),
            None => (member, None),
        };
        // `max-age =5` is not allowed, but is closer to a wrong max-age than to none.
        let trimmed = crate::syntax::trim(name);
        let argument = if trimmed.len() == name.len() { argument } else { Some(Argument::Invalid) };
        let name = std::str::from_utf8(trimmed).ok()?;
        let valid = crate::syntax::is_token(trimmed);
        valid.then(|| Directive { name: name.to_ascii_lowercase(), argument })
    })
}

/// Both forms are allowed for every directive (RFC 9111 §5.2).
fn argument(text: &[u8]) -> Argument {
    if crate::syntax::is_token(text) {
        return Argument::Text(text.to_vec());
    }
    crate::syntax::unquote(text).map_or(Argument::Invalid, Argument::Text)
}

#[cfg(test)]
#[path = "cache_control_tests.rs"]
mod tests;
