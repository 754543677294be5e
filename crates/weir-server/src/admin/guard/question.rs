//! A request that rules are asked about, as somebody writes it, and where it would go.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use serde::{Deserialize, Serialize};
use weir_config::{Address, Config, Listener, Pattern, Route, Site};
use weir_http::{host, path};

use crate::admin::wanted::decode;
use crate::guard::one_slash;
use crate::live::addresses;
use crate::router::{Hosts, Paths};

/// A request that rules are asked about: the body of `POST /guard/test`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Question {
    /// `GET` without one.
    pub method: Option<String>,
    /// A whole URL, or a path where `host` says the rest.
    pub url: String,
    /// The host, where the URL has none. Where there is but one site, it may be left out.
    pub host: Option<String>,
    /// The client's address, and its port if rules ask for it.
    pub from: Option<String>,
    /// Where it connects to; without it, the first listener that the URL fits, by loopback if that
    /// has all addresses.
    pub to: Option<String>,
    /// Header fields.
    pub headers: BTreeMap<String, OneOrMore>,
    /// Cookies.
    pub cookies: BTreeMap<String, OneOrMore>,
    /// The name asked for in the TLS handshake; without it, the host where the listener has TLS.
    pub server_name: Option<String>,
    /// What plugins make of it.
    pub verdict: Option<String>,
    /// Whether there is overload; without it, as it is.
    pub overloaded: Option<bool>,
}

/// Values of a field.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl OneOrMore {
    /// Adds a value to a field.
    pub fn add(fields: &mut BTreeMap<String, OneOrMore>, name: &str, value: &str) {
        let values = fields.entry(name.to_owned()).or_insert(OneOrMore::More(Vec::new()));
        if let OneOrMore::One(first) = values {
            *values = OneOrMore::More(vec![std::mem::take(first)]);
        }
        if let OneOrMore::More(values) = values {
            values.push(value.to_owned());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &String> {
        match self {
            OneOrMore::One(value) => std::slice::from_ref(value),
            OneOrMore::More(values) => values,
        }
        .iter()
    }
}

/// Everything that can be said in a URL, for errors.
const NAMES: &str =
    "method, url, host, from, to, header, cookie, server-name, verdict and overloaded";

impl Question {
    /// A question in the parameters of a URL.
    ///
    /// # Errors
    /// What is wrong with the first that is, for people.
    pub(super) fn from_query(query: &str) -> Result<Question, String> {
        let mut question = Question::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let text = match &*name {
                "url" => {
                    question.url = value;
                    continue;
                }
                "header" => {
                    question.add_header(&value)?;
                    continue;
                }
                "cookie" => {
                    question.add_cookie(&value)?;
                    continue;
                }
                "overloaded" => {
                    let truth = value.parse().map_err(|_| {
                        format!("overloaded: expected true or false, not {value:?}")
                    })?;
                    question.overloaded = Some(truth);
                    continue;
                }
                "method" => &mut question.method,
                "host" => &mut question.host,
                "from" => &mut question.from,
                "to" => &mut question.to,
                "server-name" => &mut question.server_name,
                "verdict" => &mut question.verdict,
                _ => return Err(format!("{name}: no such parameter; there are {NAMES}")),
            };
            *text = Some(value);
        }
        Ok(question)
    }

    /// Adds a field as `NAME: VALUE`.
    ///
    /// # Errors
    /// If there is no colon.
    pub fn add_header(&mut self, field: &str) -> Result<(), String> {
        let (name, value) = field.split_once(':').ok_or_else(|| {
            format!("{field:?} is no header field; expected one such as \"User-Agent: curl\"")
        })?;
        OneOrMore::add(&mut self.headers, name.trim(), value.trim());
        Ok(())
    }

    /// Adds a cookie as `NAME=VALUE`.
    ///
    /// # Errors
    /// If there is no equals sign.
    pub fn add_cookie(&mut self, cookie: &str) -> Result<(), String> {
        let (name, value) = cookie.split_once('=').ok_or_else(|| {
            format!("{cookie:?} is no cookie; expected one such as \"session=1\"")
        })?;
        OneOrMore::add(&mut self.cookies, name.trim(), value.trim());
        Ok(())
    }
}

/// A question that has been understood.
pub(super) struct Asked<'a> {
    pub(super) method: Method,
    pub(super) site: &'a Site,
    pub(super) route: &'a Route,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) from: Option<SocketAddr>,
    pub(super) to: Option<SocketAddr>,
    /// What `to` is where the question does not say.
    pub(super) to_assumed: Option<&'static str>,
    pub(super) server_name: Option<String>,
}

impl<'a> Asked<'a> {
    /// Reads a question, and finds the site and the route that it would reach.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn new(config: &'a Config, question: &Question) -> Result<Asked<'a>, String> {
        let url = &question.url;
        let uri: Uri = url.parse().map_err(|cause| {
            format!("url: {url:?} is none: {cause}; expected \"/path\" or \"http://host/path\"")
        })?;
        let method = question.method.as_deref().unwrap_or("GET");
        let method: Method = method.parse().map_err(|_| format!("method: {method:?} is none"))?;
        let authority = uri.authority().map(|authority| authority.as_str());
        if authority.is_some() && question.host.is_some() {
            return Err("the host is in the URL and beside it; one of them is enough".to_owned());
        }
        let authority = authority.or(question.host.as_deref());
        let host = authority.map(|text| {
            host::parse(text.as_bytes()).map_err(|cause| format!("host: {text:?}: {cause}"))
        });
        let host = host.transpose()?;
        let path = path::normalise(uri.path()).map_err(|cause| format!("url: {cause}"))?;
        let to = question.to.as_deref().map(|text| address("to", text)).transpose()?;
        let tls = uri.scheme_str().map(|scheme| scheme == "https");
        let port = |host: &host::Host<'_>| match tls {
            Some(tls) => Some(host.port_or_default(tls)),
            None => host.port,
        };
        let name = host.as_ref().map(|host| &*host.name);
        let wish = Wish { host: name, port: host.as_ref().and_then(port), tls, to };
        let (site, listener) = wish.find(config)?;
        let route = route_of(site, path.as_str()).ok_or_else(|| {
            let name = name_of(site);
            format!("the site {name:?} has no route for {:?}", path.as_str())
        })?;
        let server_name = question.server_name.clone().map(|name| name.to_ascii_lowercase());
        let from = question.from.as_deref().map(|text| address("from", text)).transpose()?;
        let (to, assumed) = destination(to, &listener.address, from);
        // Where there is one only, nothing was assumed.
        let is_sure = assumed == Some(LISTENER) && site.listeners.len() == 1;
        let to_assumed = assumed.filter(|_| !is_sure);
        let asked_for = host.as_ref().filter(|_| listener.tls.is_some());
        Ok(Asked {
            method,
            site,
            route,
            path: one_slash(path.as_str()).into_owned(),
            query: uri.query().map(str::to_owned),
            headers: fields(question, authority)?,
            from,
            to,
            to_assumed,
            server_name: server_name.or(asked_for.map(|host| host.name.clone().into_owned())),
        })
    }
}

/// What is assumed of a destination: that it is a listener's own address.
const LISTENER: &str = "listener";

/// Where a request comes to: what the question says, or else the listener; for one that listens on
/// all addresses, the one that every machine has, of the client's kind. And what was assumed.
fn destination(
    asked: Option<SocketAddr>,
    listener: &Address,
    from: Option<SocketAddr>,
) -> (Option<SocketAddr>, Option<&'static str>) {
    let Address::Tcp(listener) = listener else { return (asked, None) };
    if let Some(asked) = asked {
        return (Some(SocketAddr::new(asked.ip(), listener.port())), None);
    }
    if !listener.ip().is_unspecified() {
        return (Some(*listener), Some(LISTENER));
    }
    // A listener of IPv6 takes connections of IPv4, too.
    let is_v6 = listener.is_ipv6() && from.is_some_and(|from| from.ip().to_canonical().is_ipv6());
    let loopback: IpAddr =
        if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    (Some(SocketAddr::new(loopback, listener.port())), Some("loopback"))
}

/// A site's name in logs and metrics.
pub(super) fn name_of(site: &Site) -> &str {
    site.names.first().map_or("", String::as_str)
}

/// What is known of where a request goes.
struct Wish<'w> {
    host: Option<&'w str>,
    port: Option<u16>,
    tls: Option<bool>,
    to: Option<SocketAddr>,
}

impl Wish<'_> {
    /// The site that serves it, and the listener it comes by.
    fn find<'a>(&self, config: &'a Config) -> Result<(&'a Site, &'a Listener), String> {
        let mut candidates = addresses(config);
        candidates.retain(|address| self.may_be_at(address));
        if candidates.is_empty() {
            let to = self.to.map(|to| to.to_string()).unwrap_or_default();
            let all: Vec<String> = addresses(config).iter().map(ToString::to_string).collect();
            return Err(format!("to: nothing listens on {to}; there are {}", all.join(", ")));
        }
        let found = candidates.iter().filter_map(|address| {
            let mut hosts = Hosts::default();
            for site in &config.sites {
                if let Some(listener) = site.listeners.iter().find(|l| l.address == **address) {
                    site.names.iter().for_each(|name| hosts.insert(name, (site, listener)));
                }
            }
            let (site, listener) = match (self.host, &config.sites[..]) {
                (Some(host), _) => hosts.find(host).copied(),
                (None, [site]) => hosts.find(name_of(site)).copied(),
                (None, _) => None,
            }?;
            let has_name = self.host.is_some_and(|host| site.names.iter().any(|n| n == host));
            Some(((self.unlikeness(address, listener), !has_name), (site, listener)))
        });
        let found = found.min_by_key(|(unlikeness, _)| *unlikeness).map(|(_, found)| found);
        found.ok_or_else(|| {
            let names: Vec<&str> = config.sites.iter().map(name_of).collect();
            let names = names.join(", ");
            match self.host {
                Some(host) => format!("no site is called {host:?} there; there are: {names}"),
                None => format!("the host is missing; there are the sites {names}"),
            }
        })
    }

    fn may_be_at(&self, address: &Address) -> bool {
        let Some(to) = self.to else { return true };
        match address {
            Address::Tcp(tcp) => {
                // An address alone is of any listener there.
                [0, tcp.port()].contains(&to.port())
                    && (tcp.ip().is_unspecified() || tcp.ip() == to.ip())
            }
            Address::Unix(_) => false,
        }
    }

    fn unlikeness(&self, address: &Address, listener: &Listener) -> u8 {
        let other_tls = self.tls.is_some_and(|tls| tls != listener.tls.is_some());
        let other_port = match address {
            Address::Tcp(tcp) => self.port.is_some_and(|port| port != tcp.port()),
            Address::Unix(_) => true,
        };
        u8::from(other_tls) * 2 + u8::from(other_port)
    }
}

fn route_of<'a>(site: &'a Site, path: &str) -> Option<&'a Route> {
    let mut paths = Paths::default();
    site.routes.iter().for_each(|route| paths.insert(&route.pattern, route));
    paths.find(path).copied()
}

/// A route as the configuration writes it.
pub(super) fn label_of(route: &Route) -> String {
    match &route.pattern {
        Pattern::Exact(path) => path.clone(),
        Pattern::Prefix(prefix) => format!("{prefix}*"),
    }
}

/// An address with or without a port.
fn address(what: &str, text: &str) -> Result<SocketAddr, String> {
    let alone = |text: &str| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    text.parse().or_else(|_| alone(text)).map_err(|_| {
        format!("{what}: {text:?} is no address; expected one such as 10.1.2.3 or [::1]:443")
    })
}

fn fields(question: &Question, authority: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| format!("{text:?} is no value of a header field"))
    };
    if let Some(authority) = authority {
        headers.insert(header::HOST, value(authority)?);
    }
    for (name, values) in &question.headers {
        let name: HeaderName =
            name.parse().map_err(|_| format!("{name:?} is no name of a header field"))?;
        for text in values.iter() {
            headers.append(name.clone(), value(text)?);
        }
    }
    for (name, values) in &question.cookies {
        for text in values.iter() {
            headers.append(header::COOKIE, value(&format!("{name}={text}"))?);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
        site "a.example" "*.a.example" {
            listen "127.0.0.1:80"
            listen "127.0.0.1:443" tls="self-signed"
            listen "0.0.0.0:8080"
            route "/*" { respond "" }
            route "/x" { respond "" }
        }
        site "b.example" { listen "127.0.0.1:80"; route "/only/*" { respond "" } }
        site "*" { listen "0.0.0.0:8080"; listen "unix:/b"; route "/*" { respond "" } }
    "#;

    /// What a question reaches: site, route, where, and the name asked for in a handshake.
    #[test]
    fn requests_find_their_site_and_listener() {
        let config = weir_config::parse("test.kdl", CONFIG).unwrap();
        let check = |url: &str, to: Option<&str>, expected: &str| {
            let to = to.map(str::to_owned);
            let question = Question { url: url.to_owned(), to, ..Question::default() };
            let told = match Asked::new(&config, &question) {
                Ok(asked) => {
                    let to = asked.to.map_or("-".to_owned(), |to| to.to_string());
                    let name = asked.server_name.as_deref().unwrap_or("-");
                    format!("{}{} {to} {name}", name_of(asked.site), label_of(asked.route))
                }
                Err(why) => why,
            };
            assert_eq!(told, expected, "{url} {:?}", question.to);
        };
        check("http://a.example/", None, "a.example/* 127.0.0.1:80 -");
        check("http://A.example./x?y", None, "a.example/x 127.0.0.1:80 -");
        check("http://www.a.example:8080/%78", None, "a.example/x 127.0.0.1:8080 -");
        check("https://www.a.example/", None, "a.example/* 127.0.0.1:443 www.a.example");
        // A proxy in front may speak TLS, at another port.
        check("https://b.example:8443/only/", None, "b.example/only/* 127.0.0.1:80 -");
        check("http://a.example/", Some("10.0.0.1:8080"), "a.example/* 10.0.0.1:8080 -");
        check("http://b.example/", Some("10.0.0.1:8080"), "*/* 10.0.0.1:8080 -");
        check("http://c.example/", None, "*/* 127.0.0.1:8080 -");
        check("http://c.example/", Some("10.0.0.1"), "*/* 10.0.0.1:8080 -");
        check(
            "http://c.example/",
            Some("127.0.0.1:443"),
            "no site is called \"c.example\" there; there are: a.example, b.example, *",
        );
        check(
            "http://a.example/",
            Some("10.0.0.1:80"),
            "to: nothing listens on 10.0.0.1:80; there are 0.0.0.0:8080, 127.0.0.1:80, \
             127.0.0.1:443, unix:/b",
        );
        check("/", None, "the host is missing; there are the sites a.example, b.example, *");
    }

    #[test]
    fn a_destination_that_is_not_said_is_assumed() {
        let check = |asked: Option<&str>, listener: &str, from: Option<&str>, expected: &str| {
            let parse = |text: &str| address("an end", text).unwrap();
            let listener = Address::Tcp(listener.parse().unwrap());
            let (to, assumed) = destination(asked.map(parse), &listener, from.map(parse));
            let told = format!("{} {}", to.unwrap(), assumed.unwrap_or("-"));
            assert_eq!(told, expected, "{asked:?} {listener} {from:?}");
        };
        check(Some("192.0.2.1:80"), "[::]:80", None, "192.0.2.1:80 -");
        check(Some("192.0.2.1"), "[::]:80", None, "192.0.2.1:80 -");
        check(None, "192.0.2.1:80", Some("::1"), "192.0.2.1:80 listener");
        check(None, "[::]:80", None, "127.0.0.1:80 loopback");
        check(None, "[::]:80", Some("10.0.0.1"), "127.0.0.1:80 loopback");
        check(None, "[::]:80", Some("::ffff:10.0.0.1"), "127.0.0.1:80 loopback");
        check(None, "[::]:80", Some("2001:db8::1"), "[::1]:80 loopback");
        check(None, "0.0.0.0:80", Some("2001:db8::1"), "127.0.0.1:80 loopback");
        assert_eq!(destination(None, &Address::Unix("/a".into()), None), (None, None));
    }

    #[test]
    fn a_question_may_stand_in_a_url() {
        let query = "method=POST&url=/a%3Fb&host=x&from=::1&header=A:+b&header=A:c&cookie=d=e%3D\
                     &server-name=y&verdict=bot&overloaded=false";
        let json = serde_json::json!({
            "method": "POST", "url": "/a?b", "host": "x", "from": "::1", "server_name": "y",
            "headers": {"A": ["b", "c"]}, "cookies": {"d": ["e="]}, "verdict": "bot",
            "overloaded": false,
        });
        let question: Question = serde_json::from_value(json).unwrap();
        assert_eq!(Question::from_query(query), Ok(question));
        let headers = fields(&Question::from_query(query).unwrap(), Some("x")).unwrap();
        let all = |name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(all("a"), ["b", "c"]);
        assert_eq!(all("cookie"), ["d=e="]);
        assert_eq!(all("host"), ["x"]);
    }
}
