//! Connects the check to proxy-wasm: reads the request, answers 401, and pauses a request while
//! another server is asked.

use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};

use crate::config::{Config, Remote};
use crate::credentials::{is_open, token, without_cookie};
use crate::verdict::{Reason, Verdict, challenge, is_field_value, verdict};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(Plugin { config: None }));
}}

struct Plugin {
    config: Option<Rc<Config>>,
}

impl Context for Plugin {}

impl RootContext for Plugin {
    fn on_configure(&mut self, _size: usize) -> bool {
        match Config::parse(&self.get_plugin_configuration().unwrap_or_default()) {
            Ok(config) => {
                self.config = Some(Rc::new(config));
                true
            }
            Err(error) => {
                log(LogLevel::Error, &format!("configuration: {error}"));
                false
            }
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        let config = self.config.as_ref()?;
        Some(Box::new(Exchange { config: Rc::clone(config) }))
    }
}

struct Exchange {
    config: Rc<Config>,
}

impl HttpContext for Exchange {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        for name in self.config.own_fields() {
            self.remove_http_request_header(name);
        }
        let target = self.get_http_request_header(":path").unwrap_or_default();
        if is_open(&self.config.open, &target) {
            return Action::Continue;
        }
        let authorization = self.get_http_request_header("authorization");
        let cookies = self.get_http_request_header("cookie");
        let name = self.config.cookie.as_deref();
        let token = token(authorization.as_deref(), cookies.as_deref(), name);
        match verdict(&self.config, token, self.now_s()) {
            Verdict::Pass(subject) => {
                self.pass(subject.as_deref());
                Action::Continue
            }
            Verdict::Refuse(reason) => self.refuse(reason),
            Verdict::Ask => match (&self.config.remote, token) {
                (Some(remote), Some(token)) => self.ask(remote, token),
                _ => self.refuse(Reason::Invalid),
            },
        }
    }
}

impl Context for Exchange {
    fn on_http_call_response(
        &mut self,
        _call: u32,
        headers: usize,
        _body: usize,
        _trailers: usize,
    ) {
        let status = self.get_http_call_response_header(":status");
        let status = status.and_then(|status| status.parse::<u16>().ok()).filter(|_| headers > 0);
        match status {
            Some(200..=299) => {
                let passed = self.config.remote.iter().flat_map(|remote| &remote.pass);
                for name in passed {
                    if let Some(value) = self.get_http_call_response_header(name) {
                        self.set_http_request_header(name, Some(&value));
                    }
                }
                self.pass(None);
                self.resume_http_request();
            }
            Some(401 | 403) => {
                self.refuse(Reason::Invalid);
            }
            other => {
                log(LogLevel::Warn, &format!("the token could not be checked: {other:?}"));
                self.unavailable();
            }
        }
    }
}

impl Exchange {
    fn now_s(&self) -> u64 {
        self.get_current_time().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// Makes the request what the application is to see.
    fn pass(&self, subject: Option<&str>) {
        if let (Some(name), Some(subject)) = (&self.config.subject_header, subject)
            && is_field_value(subject)
        {
            self.set_http_request_header(name, Some(subject));
        }
        if !self.config.strip {
            return;
        }
        self.remove_http_request_header("authorization");
        if let (Some(name), Some(cookies)) =
            (&self.config.cookie, self.get_http_request_header("cookie"))
        {
            let rest = without_cookie(&cookies, name);
            let rest = Some(rest.as_str()).filter(|rest| !rest.is_empty());
            self.set_http_request_header("cookie", rest);
        }
    }

    fn refuse(&self, reason: Reason) -> Action {
        let challenge = challenge(&self.config.realm, reason);
        let fields = vec![
            ("www-authenticate", challenge.as_str()),
            ("cache-control", "no-store"),
            ("content-type", "text/plain; charset=utf-8"),
        ];
        self.send_http_response(401, fields, Some(b"A valid token is needed.\n"));
        Action::Pause
    }

    fn unavailable(&self) -> Action {
        let fields = vec![
            ("retry-after", "5"),
            ("cache-control", "no-store"),
            ("content-type", "text/plain; charset=utf-8"),
        ];
        self.send_http_response(503, fields, Some(b"The token could not be checked.\n"));
        Action::Pause
    }

    fn ask(&self, remote: &Remote, token: &str) -> Action {
        let bearer = format!("Bearer {token}");
        let fields = vec![
            (":method", "GET"),
            (":path", remote.path.as_str()),
            (":authority", remote.authority.as_deref().unwrap_or(&remote.upstream)),
            ("authorization", bearer.as_str()),
        ];
        let timeout = Duration::from_millis(remote.timeout_ms);
        match self.dispatch_http_call(&remote.upstream, fields, None, vec![], timeout) {
            Ok(_) => Action::Pause,
            Err(status) => {
                log(LogLevel::Error, &format!("cannot ask “{}”: {status:?}", remote.upstream));
                self.unavailable()
            }
        }
    }
}

fn log(level: LogLevel, message: &str) {
    // A host that takes no log lines gets none.
    let _ = hostcalls::log(level, message);
}
