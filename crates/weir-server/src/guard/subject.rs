//! Requests as rules see them, whichever way they were parsed.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::HeaderMap;
use weir_guard::{Ends, Fields, Moment, Subject};
use weir_http::head::Head;

use super::is_proxy;
use crate::connection::Connection;

/// What rules are asked about.
pub(crate) struct Asked<'a> {
    pub(crate) site: &'a str,
    /// As [`Guard::seen`](super::Guard::seen) gives it.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) method: &'a str,
    pub(crate) verdict: &'a str,
    pub(crate) fields: &'a dyn Fields<'a>,
    /// The upstream that it would go to is overloaded.
    pub(crate) is_upstream_overloaded: bool,
    /// What may tell whom a trusted proxy speaks for.
    pub(crate) forwarding: Option<&'a HeaderMap>,
}

impl<'a> Asked<'a> {
    /// What a moment is to this request: an upstream's overload is its own, too.
    pub(super) fn at(&self, moment: Moment) -> Moment {
        let is_overloaded = moment.is_overloaded || self.is_upstream_overloaded;
        Moment { is_overloaded, ..moment }
    }

    /// The request, and whether it is to be counted as a connection is: its own comes from a
    /// trusted proxy and says nothing of its client.
    pub(super) fn subject(&self, connection: &'a Connection) -> (Subject<'a>, bool) {
        let as_connection = self.forwarding.is_some() && is_proxy(connection);
        let source = match self.forwarding.filter(|_| as_connection) {
            None => connection.client,
            Some(headers) => connection.client_of(headers).map(|ip| SocketAddr::new(ip, 0)),
        };
        let server_name = connection.session.get().and_then(|session| session.server_name());
        let subject = Subject {
            ends: Ends { source, destination: connection.destination },
            site: self.site,
            path: self.path,
            query: self.query,
            method: self.method,
            server_name,
            verdict: self.verdict,
            fields: self.fields,
        };
        (subject, as_connection)
    }
}

/// A path as rules see it: several slashes in a row count as one. To most applications they are,
/// and whoever doubles one must not get round a rule.
pub(crate) fn one_slash(path: &str) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    // To the end in any case: that takes a sixteenth of the steps.
    let pairs = bytes.iter().zip(&bytes[bytes.len().min(1)..]);
    let has_some = pairs.fold(false, |has, (a, b)| has | ((*a == b'/') & (*b == b'/')));
    if !has_some {
        return Cow::Borrowed(path);
    }
    let mut last = None;
    let one = path.chars().filter(|&c| last.replace(c) != Some('/') || c != '/');
    Cow::Owned(one.collect())
}

/// A table of fields.
pub(crate) struct MapFields<'a>(pub(crate) &'a HeaderMap);

impl<'a> Fields<'a> for MapFields<'a> {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        for value in self.0.get_all(name) {
            see(value.as_bytes());
        }
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        self.0.iter().for_each(|(name, value)| see(name.as_ref(), value.as_bytes()));
    }
}

/// A head as it was read.
pub(crate) struct HeadFields<'h, 'a, 'r>(pub(crate) &'h Head<'a, 'r>);

impl<'a> Fields<'a> for HeadFields<'_, 'a, '_> {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        self.0.values(name).for_each(see);
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        self.0.all().for_each(|(name, value)| see(name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::one_slash;

    #[test]
    fn slashes_in_a_row_count_as_one() {
        for (path, expected) in [
            ("", ""),
            ("/", "/"),
            ("/login", "/login"),
            ("//login", "/login"),
            ("/a///b//", "/a/b/"),
            ("/a/b/", "/a/b/"),
            ("///", "/"),
        ] {
            assert_eq!(one_slash(path), expected, "{path}");
        }
    }
}
