//! The `icap` blocks, and a route's `icap` line.

use crate::check::{Line, Lines};
use crate::limits::ICAP_MAX;
use crate::model::{Icap, OnFailure};
use crate::rules::icap::icap_url;
use crate::suggest;

use super::Build;

impl Build<'_, '_> {
    /// All services, by unique names.
    pub(super) fn icap(&mut self, lines: &Lines) -> Option<()> {
        let mut is_right = true;
        for line in lines.all("icap") {
            if self.icap.len() == ICAP_MAX {
                self.source.error(line.span, format!("more than {ICAP_MAX} `icap` blocks"));
                return None;
            }
            match self.icap_block(line) {
                Some(icap) => self.icap.push(icap),
                None => is_right = false,
            }
        }
        is_right.then_some(())
    }

    fn icap_block(&mut self, line: &Line) -> Option<Icap> {
        let lines = &line.lines;
        let name: String = line.value("name")?;
        if self.icap.iter().any(|other| other.name == name) {
            let message = format!("there is an `icap` block \"{name}\" already");
            self.source.error(line.span_of("name"), message);
            return None;
        }
        if lines.lacks("reqmod") && lines.lacks("respmod") {
            let error = self.source.error(line.span, "this service is shown nothing");
            error.expect(["`reqmod \"icap://…\"`", "`respmod \"icap://…\"`"]);
            return None;
        }
        // What the key table lets pass can be read.
        let url = |name| lines.value::<String>(name).and_then(|text| icap_url(&text).ok());
        Some(Icap {
            name,
            reqmod: url("reqmod"),
            respmod: url("respmod"),
            timeout: lines.value("timeout")?,
            connections: lines.value("connections")?,
            client_address: lines.value("client-address")?,
            on_failure: match lines.value::<&str>("on-failure")? {
                "pass" => OnFailure::Pass,
                _ => OnFailure::Fail,
            },
        })
    }

    /// The `icap` line of a route: a service's name.
    pub(super) fn route_icap(&mut self, route: &Line) -> Option<Option<String>> {
        let Some(line) = route.lines.one("icap") else { return Some(None) };
        let name: String = line.value("name")?;
        let Some(icap) = self.icap.iter().find(|icap| icap.name == name) else {
            let known = self.icap.iter().map(|icap| icap.name.clone());
            let known: Vec<String> = known.take(20).collect();
            let near = suggest::nearest(&name, known.iter().map(String::as_str));
            let near = near.map(str::to_owned);
            let message = format!("there is no `icap` block \"{name}\"");
            self.source.error(line.span_of("name"), message).suggest(near).expect(known);
            return None;
        };
        let has_origin = !route.lines.lacks("proxy") || !route.lines.lacks("forward");
        if icap.reqmod.is_none() && !has_origin {
            let message = format!("\"{name}\" sees responses of origins only");
            let error = self.source.error(line.span_of("name"), message);
            error.expect(["`proxy`", "`forward`"]);
            return None;
        }
        Some(Some(name))
    }
}
