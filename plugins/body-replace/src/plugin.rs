//! Connects the replacements to proxy-wasm: makes sure that the source sends whole, plain text,
//! holds the body until it is complete, and puts the head right.

use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel, MetricType};

use crate::replace::{Config, weak};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(Plugin { config: None, too_large: None }));
}}

struct Plugin {
    config: Option<Rc<Config>>,
    /// Counts the bodies that passed unchanged for their size.
    too_large: Option<u32>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _size: usize) -> bool {
        self.too_large =
            hostcalls::define_metric(MetricType::Counter, "body_replace.too_large").ok();
        match Config::parse(&self.get_plugin_configuration().unwrap_or_default()) {
            Ok(config) => {
                self.config = Some(Rc::new(config));
                true
            }
            Err(error) => {
                let _ = hostcalls::log(LogLevel::Error, &format!("configuration: {error}"));
                false
            }
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        let config = Rc::clone(self.config.as_ref()?);
        Some(Box::new(Exchange { config, too_large: self.too_large, is_concerned: false }))
    }
}

struct Exchange {
    config: Rc<Config>,
    too_large: Option<u32>,
    /// Whether this response's body is rewritten.
    is_concerned: bool,
}

impl Context for Exchange {}

impl HttpContext for Exchange {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        // In compressed text, or in a part of a text, nothing can be found.
        for name in ["accept-encoding", "range", "if-range"] {
            self.remove_http_request_header(name);
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _count: usize, end: bool) -> Action {
        let field = |name: &str| self.get_http_response_header(name);
        let status = field(":status").unwrap_or_default();
        let kind = field("content-type").unwrap_or_default();
        if !self.config.concerns(&status, &kind, field("content-encoding").as_deref()) {
            return Action::Continue;
        }
        // The head of an answer to HEAD is rewritten as that of GET is.
        self.is_concerned = !end;
        // The new length is not known yet; the proxy frames the body anew.
        for name in ["content-length", "content-md5", "content-digest", "digest", "accept-ranges"] {
            self.remove_http_response_header(name);
        }
        if let Some(etag) = self.get_http_response_header("etag") {
            self.set_http_response_header("etag", Some(&weak(&etag)));
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end: bool) -> Action {
        if !self.is_concerned {
            return Action::Continue;
        }
        if size > self.config.max_bytes {
            self.is_concerned = false;
            if let Some(metric) = self.too_large {
                let _ = hostcalls::increment_metric(metric, 1);
            }
            return Action::Continue;
        }
        if !end {
            return Action::Pause;
        }
        let body = self.get_http_response_body(0, size).unwrap_or_default();
        if let Some(body) = self.config.apply(&body) {
            self.set_http_response_body(0, size, &body);
        }
        Action::Continue
    }
}
