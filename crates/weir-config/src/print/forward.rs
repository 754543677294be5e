//! Prints the block `forward` of routes.

use std::fmt::Display;

use crate::build::PORTS_DEFAULT;
use crate::model::{Forward, ForwardConnect, ForwardRule};

use super::{Printer, path, property, quote, size, switch, time};

impl Printer {
    pub(super) fn forward(&mut self, forward: &Forward) {
        let mut line = "forward".to_owned();
        property(&mut line, "connect-timeout", time(forward.connect_timeout));
        property(&mut line, "first-byte-timeout", time(forward.first_byte_timeout));
        property(&mut line, "idle-timeout", time(forward.idle_timeout));
        self.block(line, |out| {
            out.values("from", forward.from.iter().map(text));
            if let Some(users) = &forward.users {
                let mut line = format!("users {}", path(&users.file));
                property(&mut line, "realm", quote(&users.realm));
                property(&mut line, "cleartext", switch(users.cleartext));
                out.line(line);
            }
            for rule in &forward.rules {
                out.line(rule_line(rule));
            }
            if forward.ports != PORTS_DEFAULT {
                out.ports("ports", &forward.ports);
            }
            out.values("private", forward.private.iter().map(text));
            if forward.connect != ForwardConnect::default() {
                out.forward_connect(&forward.connect);
            }
            if let Some(inspect) = &forward.inspect {
                let hosts: Vec<String> = inspect.hosts.iter().map(text).collect();
                let (ca, key) = (path(&inspect.ca), path(&inspect.key));
                out.line(format_args!("inspect {} ca={ca} key={key}", hosts.join(" ")));
            }
            if let Some(ca) = &forward.ca {
                out.line(format_args!("tls ca={}", path(ca)));
            }
        });
    }

    fn forward_connect(&mut self, connect: &ForwardConnect) {
        let ports = connect.ports.iter().map(|ports| format!(" {}", range(*ports)));
        let mut line = format!("connect{}", ports.collect::<String>());
        property(&mut line, "idle", time(connect.idle));
        if let Some(bytes) = connect.bytes {
            property(&mut line, "bytes", size(bytes));
        }
        property(&mut line, "open", connect.open);
        self.line(line);
    }
}

fn rule_line(rule: &ForwardRule) -> String {
    let to = rule.destinations.iter().map(|destination| quote(&destination.to_string()));
    let key = if rule.allows { "allow" } else { "deny" };
    let mut line = format!("{key} {}", to.collect::<Vec<_>>().join(" "));
    if let Some(ports) = rule.ports {
        property(&mut line, "port", range(ports));
    }
    line
}

fn text(value: impl Display) -> String {
    quote(&value.to_string())
}

fn range((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("\"{first}-{last}\"") }
}
