//! Connects the rules to proxy-wasm: which callback applies which, and the host's fields as
//! `Fields`.

use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel, MapType};

use crate::rules::{Config, Fields, Rules};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Plugin {
    config: Rc<Config>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _size: usize) -> bool {
        match Config::parse(&self.get_plugin_configuration().unwrap_or_default()) {
            Ok(config) => {
                self.config = Rc::new(config);
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
        Some(Box::new(Exchange { config: Rc::clone(&self.config) }))
    }
}

struct Exchange {
    config: Rc<Config>,
}

impl Context for Exchange {}

impl HttpContext for Exchange {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        rewrite(&self.config.request, MapType::HttpRequestHeaders)
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        rewrite(&self.config.response, MapType::HttpResponseHeaders)
    }
}

fn rewrite(rules: &Rules, map: MapType) -> Action {
    if !rules.is_empty() {
        rules.apply(&mut HostFields(map));
    }
    Action::Continue
}

/// The host's own copy of the fields. A call that the host refuses leaves the field as it is.
struct HostFields(MapType);

impl Fields for HostFields {
    fn values(&self, name: &str) -> Vec<Vec<u8>> {
        // The call for one field returns one value only.
        let all = hostcalls::get_map_bytes(self.0).unwrap_or_default();
        all.into_iter().filter(|(n, _)| n == name).map(|(_, value)| value).collect()
    }

    fn remove(&mut self, name: &str) {
        let _ = hostcalls::remove_map_value(self.0, name);
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        let _ = hostcalls::set_map_value_bytes(self.0, name, Some(value));
    }

    fn add(&mut self, name: &str, value: &[u8]) {
        let _ = hostcalls::add_map_value_bytes(self.0, name, value);
    }
}
