//! Connects the experiment to proxy-wasm: a request is sent its variant's way, and a visitor who
//! has no cookie gets one with the answer.

use std::cell::Cell;
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};

use crate::split::{Experiment, Sticky, without_port};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(Plugin::default()));
}}

#[derive(Default)]
struct Plugin {
    experiment: Option<Rc<Experiment>>,
    /// Visitors without a cookie so far.
    newcomers: Rc<Cell<u64>>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _size: usize) -> bool {
        match Experiment::parse(&self.get_plugin_configuration().unwrap_or_default()) {
            Ok(experiment) => {
                self.experiment = Some(Rc::new(experiment));
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
        Some(Box::new(Exchange {
            experiment: Rc::clone(self.experiment.as_ref()?),
            newcomers: Rc::clone(&self.newcomers),
            set_cookie: None,
        }))
    }
}

struct Exchange {
    experiment: Rc<Experiment>,
    newcomers: Rc<Cell<u64>>,
    /// What the response is to carry.
    set_cookie: Option<String>,
}

impl Context for Exchange {}

impl HttpContext for Exchange {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        let chosen = self.choose();
        // `choose` and `remembered` return places in this list.
        let variant = &self.experiment.variants[chosen];
        for (name, value) in &variant.set {
            self.set_http_request_header(name, Some(value));
        }
        let target = self.get_http_request_header(":path").unwrap_or_default();
        if let Some(target) = variant.rewrite(&target) {
            self.set_http_request_header(":path", Some(&target));
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        if let Some(cookie) = &self.set_cookie {
            self.add_http_response_header("set-cookie", cookie);
        }
        Action::Continue
    }
}

impl Exchange {
    fn choose(&mut self) -> usize {
        let address = self.get_property(vec!["source", "address"]).unwrap_or_default();
        if self.experiment.sticky == Sticky::Client {
            // With its port the next connection would be another visitor.
            return self.experiment.choose(without_port(&address));
        }
        let cookies = self.get_http_request_header("cookie").unwrap_or_default();
        if let Some(remembered) = self.experiment.remembered(&cookies) {
            return remembered;
        }
        let chosen = self.experiment.choose(&self.chance(address));
        self.set_cookie = Some(self.experiment.set_cookie(&self.experiment.variants[chosen]));
        chosen
    }

    /// Different for every newcomer: as random as dividing traffic needs.
    fn chance(&self, mut key: Vec<u8>) -> Vec<u8> {
        let time = self.get_current_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        let count = self.newcomers.get().wrapping_add(1);
        self.newcomers.set(count);
        key.extend(time.as_nanos().to_le_bytes());
        key.extend(count.to_le_bytes());
        key
    }
}
