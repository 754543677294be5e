//! What a deployment is to be, from the parameters of a request: those of its URL, and the parts of
//! a form.

use std::borrow::Cow;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use weir_config::{At, OnFailure, PluginPolicy, is_root_id};
use weir_plugin::{Attachment, CanaryPlan, Deployment};

use super::quantity;

/// Everything that can be said of a deployment, for errors.
const NAMES: &str = "module, config, vm-config, root-id, route, at, canary, for, cpu, memory, \
                     tables, long, log, on-failure, allow-upstream, allow-shared, allow-cache, \
                     allow-request-body, allow-response-body, policy";

/// Collects parameters.
#[derive(Default)]
pub(super) struct Wanted {
    module: Option<Bytes>,
    routes: Vec<Attachment>,
    at: Option<At>,
    share: Option<f64>,
    duration: Option<std::time::Duration>,
    parts: Parts,
    seen: Vec<String>,
}

/// What goes into the deployment as it is.
#[derive(Default)]
struct Parts {
    config: Option<String>,
    vm_config: Option<String>,
    root_id: Option<String>,
    policy: Option<PluginPolicy>,
    edits: weir_plugin::PolicyEdits,
}

impl Wanted {
    /// The parameters of a URL.
    ///
    /// # Errors
    /// What is wrong with the first that is, for people.
    pub(super) fn from_query(query: &str) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            wanted.set(&name, value.as_bytes().to_vec().into())?;
        }
        Ok(wanted)
    }

    /// One parameter.
    ///
    /// # Errors
    /// As above.
    pub(super) fn set(&mut self, name: &str, value: Bytes) -> Result<(), String> {
        let repeats = matches!(name, "route" | "allow-upstream" | "allow-shared");
        if !repeats && self.seen.iter().any(|seen| seen == name) {
            return Err(format!("{name} is given twice"));
        }
        self.seen.push(name.to_owned());
        if name == "module" {
            self.module = Some(value);
            return Ok(());
        }
        let text = std::str::from_utf8(&value).map_err(|_| format!("{name} is no UTF-8 text"))?;
        self.set_text(name, text).map_err(|why| format!("{name}: {why}"))
    }

    fn set_text(&mut self, name: &str, text: &str) -> Result<(), String> {
        let edits = &mut self.parts.edits;
        match name {
            "config" => self.parts.config = Some(text.to_owned()),
            "vm-config" => self.parts.vm_config = Some(text.to_owned()),
            "root-id" if is_root_id(text) => self.parts.root_id = Some(text.to_owned()),
            "root-id" => return Err("at most 256 bytes without control characters".to_owned()),
            "route" => self.routes.push(text.parse().map_err(str::to_owned)?),
            "at" => {
                let choices = [("delivery", At::Delivery), ("fill", At::Fill)];
                self.at = Some(choice(text, &choices)?);
            }
            "canary" => self.share = Some(quantity::share(text)?),
            "for" => self.duration = Some(quantity::time(text)?),
            "cpu" => edits.cpu_ms = Some(milliseconds(text)?),
            "memory" => edits.memory = Some(quantity::size(text)?),
            "tables" => edits.tables = Some(number(text)?),
            "long" => edits.long_ms = Some(milliseconds(text)?),
            "log" => edits.log_per_s = Some(number(text)?),
            "on-failure" => {
                let choices = [("pass", OnFailure::Pass), ("fail", OnFailure::Fail)];
                edits.on_failure = Some(choice(text, &choices)?);
            }
            "allow-upstream" => add(&mut edits.allow_upstreams, text),
            "allow-shared" => add(&mut edits.allow_shared, text),
            "allow-cache" => edits.allow_cache = Some(truth(text)?),
            "allow-request-body" => edits.allow_request_body = Some(truth(text)?),
            "allow-response-body" => edits.allow_response_body = Some(truth(text)?),
            "policy" => {
                self.parts.policy = Some(policy(text)?);
            }
            _ => return Err(format!("no such parameter; there are {NAMES}")),
        }
        Ok(())
    }

    /// The deployment. `body` is the module where it is the whole body of the request.
    ///
    /// # Errors
    /// What is missing, or does not fit together.
    pub(super) fn deployment(self, name: &str, body: Option<Bytes>) -> Result<Deployment, String> {
        let module = self.module.or(body).filter(|module| !module.is_empty()).ok_or(
            "there is no module: send it as the body (Content-Type: application/wasm), or as the \
             part \"module\" of multipart/form-data",
        )?;
        let mut routes = self.routes;
        match self.at {
            Some(_) if routes.is_empty() => {
                return Err("\"at\" goes with \"route\", which is missing".to_owned());
            }
            Some(at) => routes.iter_mut().for_each(|route| route.at = at),
            None => {}
        }
        let canary = match (self.share, self.duration) {
            (Some(share), Some(duration)) => Some(CanaryPlan { share, duration }),
            (None, None) => None,
            _ => return Err("\"canary\" and \"for\" go together".to_owned()),
        };
        let Parts { config, vm_config, root_id, policy, edits } = self.parts;
        let deployment = Deployment::new(name, module);
        Ok(Deployment { config, vm_config, root_id, policy, edits, routes, canary, ..deployment })
    }
}

/// A whole policy, of which nothing is left out of account. The store is read with more patience:
/// it may be that of another version.
fn policy(text: &str) -> Result<PluginPolicy, String> {
    let given: Value = serde_json::from_str(text).map_err(|cause| cause.to_string())?;
    // The default's values are plain data.
    let known = serde_json::to_value(PluginPolicy::default()).unwrap_or_default();
    check_keys(&given, &known, "a policy")?;
    serde_json::from_value(given).map_err(|cause| cause.to_string())
}

fn check_keys(given: &Value, known: &Value, what: &str) -> Result<(), String> {
    let (given, known) = match (given, known) {
        (Value::Object(given), Value::Object(known)) => (given, known),
        // serde would take its values in order.
        (Value::Array(_), Value::Object(_)) => return Err(format!("{what} is no list")),
        _ => return Ok(()),
    };
    for (key, value) in given {
        let Some(known) = known.get(key) else {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(format!("{what} has no {key:?}; there are {}", names.join(", ")));
        };
        check_keys(value, known, &format!("{key:?} of {what}"))?;
    }
    Ok(())
}

/// As forms encode it: a plus sign is a space.
pub(super) fn decode(text: &str) -> Result<String, String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|_| format!("{text:?} is no UTF-8 text"))
}

fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("expected {}, not {text:?}", names.join(" or "))
    })
}

fn truth(text: &str) -> Result<bool, String> {
    choice(text, &[("true", true), ("false", false)])
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number, not {text:?}"))
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let time = quantity::time(text)?;
    match time.subsec_nanos() % 1_000_000 {
        0 => Ok(time.as_millis() as u64),
        _ => Err(format!("expected whole milliseconds, not {text}")),
    }
}

fn add(names: &mut Option<Vec<String>>, name: &str) {
    let names = names.get_or_insert_default();
    // An empty name alone takes away what was allowed.
    if !name.is_empty() {
        names.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Deployment, String> {
        Wanted::from_query(query)?.deployment("gray", Some(Bytes::from_static(b"wasm")))
    }

    #[test]
    fn everything_can_be_said_in_a_url() {
        let deployment = parse(
            "config=%7B%22a%22:+1%7D&route=shop.example/i%2F*&route=/b&at=fill&canary=5%25&for=60s\
             &cpu=5ms&memory=16MiB&on-failure=fail&allow-upstream=a&allow-upstream=b\
             &allow-cache=true",
        );
        let deployment = deployment.unwrap();
        assert_eq!(deployment.config.as_deref(), Some("{\"a\": 1}"));
        let routes: Vec<String> = deployment.routes.iter().map(ToString::to_string).collect();
        assert_eq!(routes, ["shop.example/i/*", "/b"]);
        assert!(deployment.routes.iter().all(|route| route.at == At::Fill));
        let canary = deployment.canary.unwrap();
        assert_eq!((canary.share, canary.duration.as_secs()), (0.05, 60));
        let edits = deployment.edits;
        assert_eq!((edits.cpu_ms, edits.memory), (Some(5), Some(16 << 20)));
        assert_eq!(edits.on_failure, Some(OnFailure::Fail));
        assert_eq!(edits.allow_upstreams, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((edits.allow_cache, edits.allow_shared), (Some(true), None));
        let nothing = parse("").unwrap();
        assert_eq!((nothing.config, nothing.routes.len(), nothing.canary), (None, 0, None));
        let whole = parse(
            "policy={\"on_failure\":\"fail\",\
             \"allow\":{\"upstreams\":\"all\",\"environment\":[[\"A\",\"b\"]]}}",
        );
        let whole = whole.unwrap().policy.unwrap();
        assert_eq!((whole.on_failure, whole.allow.environment.len()), (OnFailure::Fail, 1));
        let none = parse("allow-upstream=").unwrap();
        assert_eq!(none.edits.allow_upstreams, Some(vec![]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |query: &str, word: &str| match parse(query) {
            Ok(_) => panic!("{query} was taken"),
            Err(why) => assert!(why.contains(word), "{query}: {why}"),
        };
        check("rout=/a", "rout: no such parameter; there are module, config,");
        check("cpu=5", "cpu: \"5\" is no time; expected one such as 50ms");
        check("cpu=1.5ms", "whole milliseconds");
        check("memory=64MB", "memory: \"64MB\" is no size");
        check("canary=5%25", "\"canary\" and \"for\" go together");
        check("canary=105%25&for=1s", "at most 100%");
        check("at=fill", "\"at\" goes with \"route\"");
        check("at=moon&route=/a", "expected delivery or fill, not \"moon\"");
        check("on-failure=explode", "expected pass or fail, not \"explode\"");
        check("allow-cache=1", "expected true or false");
        check("config=a&config=b", "config is given twice");
        check("root-id=%00", "root-id: at most 256 bytes");
        check("config=%ff", "no UTF-8");
        check("policy={", "policy: EOF");
        check(
            "policy={\"bogus\":1}",
            "policy: a policy has no \"bogus\"; there are allow, cpu_ms,",
        );
        check("policy={\"on-failure\":\"fail\"}", "on_failure");
        check("policy={\"on_failure\":\"explode\"}", "explode");
        check("policy={\"allow\":{\"upstream\":[]}}", "\"allow\" of a policy has no \"upstream\"");
        check(
            "policy={\"allow\":{\"upstreams\":{\"some\":[]}}}",
            "has no \"some\"; there are these",
        );
        check("policy=[]", "policy: a policy is no list");
        check("policy={\"quarantine\":[1]}", "\"quarantine\" of a policy is no list");
        check("tables=-1", "expected a whole number, not \"-1\"");
        check("route=", "expected [SITE]/PATTERN");
        let empty = Wanted::default().deployment("gray", Some(Bytes::new())).unwrap_err();
        assert!(empty.contains("there is no module"), "{empty}");
    }
}
