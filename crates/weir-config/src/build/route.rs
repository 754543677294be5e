//! The `route` block.

use std::time::Duration;

use crate::check::Line;
use crate::keys::INDEX_DEFAULT;
use crate::limits::HEADER_EDITS_MAX;
use crate::model::{Files, HeaderEdit, Proxy, Route, RouteCache, Source};
use crate::url::ProxyTarget;

use super::{Build, Expected};

/// The keys that say what answers; a route has exactly one.
const SOURCES: [&str; 5] = ["files", "proxy", "redirect", "respond", "forward"];

impl Build<'_, '_> {
    pub(super) fn route(&mut self, line: &Line) -> Option<Route> {
        let lines = &line.lines;
        let source = self.route_source(line);
        let cache = self.route_cache(line);
        let response_headers = lines.one("header").and_then(|line| self.header_edits(line, false));
        let request_headers = match lines.one("request-header") {
            Some(edits) => self.header_edits(edits, true)?,
            None => Vec::new(),
        };
        if let Some(first) = lines.one("request-header").and_then(|line| line.lines.iter().next())
            && lines.one("proxy").or_else(|| lines.one("forward")).is_none()
        {
            let message = "`request-header` has no meaning without `proxy` or `forward`";
            self.source.error(first.span, message);
        }
        let plugins = self.uses(line);
        let adapt = self.route_adapt(line);
        let icap = self.route_icap(line);
        let limit = |name| lines.one("limits").and_then(|limits| limits.value(name));
        Some(Route {
            pattern: line.value("pattern")?,
            source: source?,
            cache: cache?,
            response_headers: response_headers?,
            request_headers,
            body_size: limit("body-size"),
            body_buffer: limit("body-buffer"),
            body_min_rate: limit("body-min-rate"),
            plugins: plugins?,
            adapt: adapt?,
            icap: icap?,
        })
    }

    fn route_source(&mut self, route: &Line) -> Option<Source> {
        let mut sources = route.lines.iter().filter(|line| SOURCES.contains(&line.key.name));
        let Some(line) = sources.next() else {
            if route.lines.lacks("files") {
                self.source.error(route.span, "nothing answers this route").expect(SOURCES);
            }
            return None;
        };
        for other in sources {
            let number = self.source.line_of(line.span.start);
            let first = line.key.name;
            let message = format!("`{first}` on line {number} answers this route already");
            self.source.error(other.span, message);
        }
        match line.key.name {
            "files" => self.files(line).map(Source::Files),
            "proxy" => self.proxy(line).map(Source::Proxy),
            "forward" => self.forward(line).map(|forward| Source::Forward(Box::new(forward))),
            "redirect" => Some(Source::Redirect {
                status: line.value("status")?,
                location: line.value("location")?,
            }),
            _ => self.respond(line),
        }
    }

    fn files(&mut self, line: &Line) -> Option<Files> {
        let root: String = line.value("root")?;
        let index = match line.lines.one("index") {
            Some(index) => {
                index.values::<String>("name").into_iter().map(|(name, _)| name).collect()
            }
            None => vec![INDEX_DEFAULT.to_owned()],
        };
        Some(Files {
            root: self.file(
                &root,
                "the directory of the files",
                Expected::Directory,
                line.span_of("root"),
            ),
            index,
            listing: line.value("listing")?,
            precompressed: line.value("precompressed")?,
            strip_prefix: line.value("strip-prefix")?,
            cache_control: line.value("cache-control"),
        })
    }

    fn proxy(&mut self, line: &Line) -> Option<Proxy> {
        let prefix: Option<String> = line.value("path-prefix");
        let (upstream, path_prefix) = match line.value::<ProxyTarget>("target")? {
            ProxyTarget::Name(name) => {
                let url = "a URL such as \"http://…\"";
                self.check_upstream(&name, line.span_of("target"), Some(url));
                (name, prefix.unwrap_or_default())
            }
            ProxyTarget::Url(origin, path) => {
                if !path.is_empty() && prefix.is_some() {
                    let message = "the URL has a path already";
                    self.source.error(line.span_of("path-prefix"), message);
                }
                (self.anonymous_upstream(origin), prefix.unwrap_or(path))
            }
        };
        Some(Proxy {
            upstream,
            strip_prefix: line.value("strip-prefix")?,
            path_prefix,
            host: line.value("host")?,
        })
    }

    fn respond(&mut self, line: &Line) -> Option<Source> {
        let status: u16 = line.value("status")?;
        let body: String = line.value("body")?;
        if !body.is_empty() && matches!(status, 204 | 205 | 304) {
            // RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5: these have no content.
            let message = format!("a response with status {status} has no body");
            self.source.error(line.span_of("body"), message).expect(["\"\""]);
        }
        Some(Source::Respond { status, body, content_type: line.value("content-type")? })
    }

    fn route_cache(&mut self, route: &Line) -> Option<RouteCache> {
        let line = route.lines.one("cache")?;
        let times = ["ttl", "default-ttl", "stale-while-revalidate", "stale-if-error"];
        let times = times.into_iter().chain(["collapse-timeout"]);
        let written = times.into_iter().find(|slot| line.is_written(slot));
        let is_off = line.is_written("off");
        if (is_off || written.is_some()) && is_never_stored(route) {
            self.source
                .error(line.span, "`cache` has no meaning here: this answer is never stored");
        }
        if let Some(slot) = written.filter(|_| is_off) {
            let message = format!("`{slot}` has no meaning where the cache is off");
            self.source.error(line.span_of(slot), message);
        }
        if line.is_written("ttl") && line.is_written("default-ttl") {
            let message =
                "`default-ttl` has no meaning beside `ttl`, which holds for all responses";
            self.source.error(line.span_of("default-ttl"), message);
        }
        let time = |slot| line.value::<Duration>(slot);
        Some(RouteCache {
            enabled: !is_off,
            ttl: time("ttl"),
            default_ttl: time("default-ttl"),
            stale_while_revalidate: time("stale-while-revalidate"),
            stale_if_error: time("stale-if-error"),
            collapse_timeout: time("collapse-timeout")?,
        })
    }

    fn header_edits(&mut self, line: &Line, to_origin: bool) -> Option<Vec<HeaderEdit>> {
        if line.lines.iter().count() > HEADER_EDITS_MAX {
            self.source.error(line.span, format!("more than {HEADER_EDITS_MAX} edits"));
        }
        let mut edits = Vec::new();
        for edit in line.lines.iter() {
            let name: String = edit.value("name")?;
            if to_origin && name == "host" {
                let message = "the `Host` sent to an origin is a property of `proxy`";
                self.source.error(edit.span_of("name"), message).expect(["proxy … host=\"…\""]);
            }
            edits.push(match edit.key.name {
                "set" => HeaderEdit::Set(name, edit.value("value")?),
                "add" => HeaderEdit::Add(name, edit.value("value")?),
                _ => HeaderEdit::Remove(name),
            });
        }
        Some(edits)
    }
}

/// True if what answers the route is known, and made anew for each request.
pub(super) fn is_never_stored(route: &Line) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| route.lines.one(key).is_some());
    has(&SOURCES) && !has(&["files", "proxy", "forward"])
}
