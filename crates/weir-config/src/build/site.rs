//! The `site` block.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::check::Line;
use crate::limits::{LISTENERS_MAX, NAMES_MAX, ROUTES_MAX};
use crate::model::{
    AccessLog, Certificate, Listener, ListenerTls, LogFormat, Pattern, Route, Site,
};
use crate::source::Span;

use super::{Build, Expected};

impl Build<'_, '_> {
    pub(super) fn site(&mut self, line: &Line) -> Option<Site> {
        let names = self.names(line);
        let listeners: Option<Vec<Listener>> = line.lines.all("listen").map(listener).collect();
        let certificates: Vec<Option<Certificate>> =
            line.lines.all("certificate").map(|line| self.certificate(line)).collect();
        let access_log = line.lines.one("access-log").map(|line| self.access_log(line));
        self.check_tls(line);
        self.check_count(line, "listen", LISTENERS_MAX, "listen \":80\"");
        let plugins = self.names_used(line);
        let routes = self.routes(line);
        self.check_forward(line);
        Some(Site {
            names,
            listeners: listeners?,
            certificates: certificates.into_iter().collect::<Option<_>>()?,
            access_log: match access_log {
                Some(access_log) => Some(access_log?),
                None => None,
            },
            plugins: plugins?,
            routes: routes?,
        })
    }

    fn names(&mut self, line: &Line) -> Vec<String> {
        let names = line.values::<String>("name");
        if names.len() > NAMES_MAX {
            self.source.error(line.span, format!("more than {NAMES_MAX} names"));
        }
        let mut seen = HashMap::new();
        for (name, span) in &names {
            if seen.insert(name, ()).is_some() {
                self.source.error(*span, format!("the site has the name \"{name}\" already"));
            }
        }
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// There is at least one line of a key, and there are not too many.
    fn check_count(&mut self, site: &Line, key: &str, max: usize, example: &str) {
        match site.lines.all(key).count() {
            0 if site.lines.lacks(key) => {
                let message = format!("this site has no `{key}` line");
                self.source.error(site.span, message).expect([format!("`{example}` in its block")]);
            }
            count if count > max => {
                self.source.error(site.span, format!("more than {max} `{key}` lines"));
            }
            _ => {}
        }
    }

    fn certificate(&mut self, line: &Line) -> Option<Certificate> {
        let chain: String = line.value("chain")?;
        let key: String = line.value("key")?;
        Some(Certificate {
            chain: self.file(&chain, "the certificate", Expected::File, line.span_of("chain")),
            key: self.file(&key, "the certificate's key", Expected::File, line.span_of("key")),
        })
    }

    /// Listeners with `tls="auto"` and certificates need each other.
    fn check_tls(&mut self, site: &Line) {
        let is_auto = |line: &&Line| line.value::<&str>("tls") == Some("auto");
        let listen = site.lines.all("listen").find(is_auto);
        let certificate = site.lines.all("certificate").next();
        match (listen, certificate) {
            (Some(listen), None) => {
                let span = listen.span_of("tls");
                self.source.error(span, "this site has no certificate").expect([
                    "`certificate \"chain.pem\" key=\"key.pem\"` in the site",
                    "tls=\"self-signed\" for development",
                ]);
            }
            (None, Some(certificate)) => {
                let message = "no listener of this site uses the certificate";
                self.source
                    .error(certificate.span, message)
                    .expect(["`listen \":443\" tls=\"auto\"`"]);
            }
            _ => {}
        }
    }

    fn access_log(&mut self, line: &Line) -> Option<AccessLog> {
        let path: String = line.value("path")?;
        let path = if path == "-" {
            PathBuf::from(path)
        } else {
            // The log itself is made when it is missing; its directory is not.
            self.directory_of(&path, "the access log's directory", line.span_of("path"))
        };
        let format = match line.value::<&str>("format")? {
            "json" => LogFormat::Json,
            _ => LogFormat::Combined,
        };
        Some(AccessLog { path, format })
    }

    fn routes(&mut self, site: &Line) -> Option<Vec<Route>> {
        self.check_count(site, "route", ROUTES_MAX, "route \"/*\" { files \"/srv/www\" }");
        let mut routes = Vec::new();
        let mut first: HashMap<Pattern, Span> = HashMap::new();
        for line in site.lines.all("route") {
            if self.source.is_full() {
                return None;
            }
            if let Some(pattern) = line.value::<Pattern>("pattern") {
                let span = line.span_of("pattern");
                if let Some(earlier) = first.insert(pattern, span) {
                    let number = self.source.line_of(earlier.start);
                    self.source
                        .error(span, format!("this path has a route on line {number} already"));
                }
            }
            routes.push(self.route(line));
        }
        routes.into_iter().collect()
    }
}

fn listener(line: &Line) -> Option<Listener> {
    Some(Listener {
        address: line.value("address")?,
        tls: line.value::<&str>("tls").map(|tls| match tls {
            "self-signed" => ListenerTls::SelfSigned,
            _ => ListenerTls::Files,
        }),
        proxy_protocol: line.value("proxy-protocol")?,
    })
}
