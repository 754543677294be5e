//! The `forward` block, and what a site must be that has one.

use crate::check::Line;
use crate::limits::{FORWARD_RANGES_MAX, FORWARD_RULES_MAX};
use crate::model::{
    Address, Destination, Forward, ForwardConnect, ForwardInspect, ForwardRule, ForwardUsers,
};
use crate::prefix::Prefix;
use crate::value::FromValue;

use super::{Build, Expected};

/// Ports where `ports` is left out: those of `http` and `https`.
pub(crate) const PORTS_DEFAULT: [(u16, u16); 2] = [(80, 80), (443, 443)];

impl Build<'_, '_> {
    pub(super) fn forward(&mut self, line: &Line) -> Option<Forward> {
        let lines = &line.lines;
        let rules = self.forward_rules(line);
        let ca = match lines.one("tls") {
            Some(tls) => {
                let (path, span) = (tls.value::<String>("ca")?, tls.span_of("ca"));
                Some(self.file(&path, "the origins' CA certificates", Expected::File, span))
            }
            None => None,
        };
        let users = match lines.one("users") {
            Some(users) => Some(self.forward_users(users)?),
            None => None,
        };
        let inspect = match lines.one("inspect") {
            Some(inspect) => Some(self.forward_inspect(inspect)?),
            None => None,
        };
        Some(Forward {
            users,
            inspect,
            from: self.ranges::<Prefix>(line, "from", "client"),
            rules: rules?,
            ports: match lines.one("ports") {
                Some(_) => self.ranges(line, "ports", "port"),
                None => PORTS_DEFAULT.to_vec(),
            },
            private: self.ranges::<Prefix>(line, "private", "range"),
            connect: self.forward_connect(line)?,
            connect_timeout: line.value("connect-timeout")?,
            first_byte_timeout: line.value("first-byte-timeout")?,
            idle_timeout: line.value("idle-timeout")?,
            ca,
        })
    }

    fn forward_users(&mut self, line: &Line) -> Option<ForwardUsers> {
        let (file, span) = (line.value::<String>("file")?, line.span_of("file"));
        Some(ForwardUsers {
            file: self.file(&file, "the users' names and passwords", Expected::File, span),
            realm: line.value("realm")?,
            cleartext: line.value("cleartext")?,
        })
    }

    fn forward_inspect(&mut self, line: &Line) -> Option<ForwardInspect> {
        let hosts = line.values::<Destination>("host");
        if hosts.len() > FORWARD_RANGES_MAX {
            self.source.error(line.span, format!("more than {FORWARD_RANGES_MAX} hosts"));
        }
        let (ca, key) = (line.value::<String>("ca")?, line.value::<String>("key")?);
        Some(ForwardInspect {
            hosts: hosts.into_iter().map(|(host, _)| host).collect(),
            ca: self.file(&ca, "the authority's certificate", Expected::File, line.span_of("ca")),
            key: self.file(&key, "the authority's key", Expected::File, line.span_of("key")),
        })
    }

    fn forward_connect(&mut self, forward: &Line) -> Option<ForwardConnect> {
        let Some(line) = forward.lines.one("connect") else {
            return Some(ForwardConnect::default());
        };
        Some(ForwardConnect {
            ports: self.ranges(forward, "connect", "port"),
            idle: line.value("idle")?,
            bytes: line.value("bytes"),
            open: line.value("open")?,
        })
    }

    /// The values of one of its lines.
    fn ranges<T: FromValue>(&mut self, forward: &Line, key: &str, slot: &'static str) -> Vec<T> {
        let Some(line) = forward.lines.one(key) else { return Vec::new() };
        let written = line.values::<T>(slot);
        if written.len() > FORWARD_RANGES_MAX {
            self.source.error(line.span, format!("more than {FORWARD_RANGES_MAX} values"));
        }
        written.into_iter().map(|(value, _)| value).collect()
    }

    fn forward_rules(&mut self, forward: &Line) -> Option<Vec<ForwardRule>> {
        let mut rules = Vec::new();
        let mut count = 0;
        let lines = forward.lines.iter();
        for line in lines.filter(|line| matches!(line.key.name, "allow" | "deny")) {
            let destinations = line.values::<Destination>("destination");
            let destinations: Vec<_> = destinations.into_iter().map(|(value, _)| value).collect();
            count += destinations.len();
            if count > FORWARD_RULES_MAX {
                let message = format!("more than {FORWARD_RULES_MAX} destinations");
                self.source.error(line.span, message);
                return None;
            }
            let (allows, ports) = (line.key.name == "allow", line.value("port"));
            rules.push(ForwardRule { allows, destinations, ports });
        }
        Some(rules)
    }

    /// A forward proxy answers for any host, and must not serve the whole world by accident.
    pub(super) fn check_forward(&mut self, site: &Line) {
        let routes = site.lines.all("route").filter_map(|route| route.lines.one("forward"));
        let names = site.values::<String>("name");
        for forward in routes {
            if !names.is_empty() && !names.iter().any(|(name, _)| name == "*") {
                let message = "a forward proxy answers for any host, and this site does not";
                self.source.error(forward.span, message).expect(["site \"*\" { … }"]);
            }
            let users = forward.lines.one("users");
            if users.is_none() && forward.lines.one("from").is_none() {
                self.check_closed(site, forward);
            }
            if let Some(users) = users.filter(|users| users.value("cleartext") == Some(false)) {
                self.check_encrypted(site, users);
            }
        }
    }

    fn check_closed(&mut self, site: &Line, forward: &Line) {
        let Some(listen) =
            site.lines.all("listen").find(|listen| is_open(listen) || is_passed_on(listen))
        else {
            return;
        };
        let number = self.source.line_of(listen.span.start);
        let message =
            format!("anybody who reaches the listener on line {number} could use this proxy");
        let expected =
            ["`from \"10.0.0.0/8\"` in it", "`users \"users\"`", "a listener on 127.0.0.1"];
        self.source.error(forward.span, message).expect(expected);
    }

    fn check_encrypted(&mut self, site: &Line, users: &Line) {
        let is_readable = |listen: &&Line| is_open(listen) && !listen.is_written("tls");
        let Some(listen) = site.lines.all("listen").find(is_readable) else { return };
        let number = self.source.line_of(listen.span.start);
        let message =
            format!("passwords could be read on their way to the listener on line {number}");
        let expected = ["`tls=\"auto\"` of the listener", "cleartext=#true"];
        self.source.error(users.span, message).expect(expected);
    }
}

/// Whether somebody else takes the connections and hands them on: then from wherever.
fn is_passed_on(listen: &Line) -> bool {
    listen.value::<bool>("proxy-protocol") == Some(true)
}

/// Whether a listener may be reached from another machine.
fn is_open(listen: &Line) -> bool {
    match listen.value::<Address>("address") {
        Some(Address::Tcp(address)) => !address.ip().to_canonical().is_loopback(),
        Some(Address::Unix(_)) | None => false,
    }
}
