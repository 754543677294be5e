//! Single changes of a plugin's policy, and the ranges of its values, which are those of the
//! configuration.

use std::time::Duration;

use serde::Deserialize;
use weir_config::{Names, OnFailure, PluginPolicy};

use crate::problem::PluginError;

/// Changes of a policy; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyEdits {
    /// CPU time of one call, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Bytes of memory of one instance.
    pub memory: Option<u64>,
    /// Elements of all tables of one instance.
    pub tables: Option<u32>,
    /// Calls expected to take longer leave the worker, in milliseconds.
    pub long_ms: Option<u64>,
    /// Lines a second that it may log.
    pub log_per_s: Option<u32>,
    /// What becomes of a request on which it fails.
    pub on_failure: Option<OnFailure>,
    /// Upstreams that it may call, instead of those so far; `*` is all.
    pub allow_upstreams: Option<Vec<String>>,
    /// Shared data of others that it may use, instead of those so far; `*` is all.
    pub allow_shared: Option<Vec<String>>,
    /// Whether it may manage stored content.
    pub allow_cache: Option<bool>,
    /// Whether it may see bodies of requests.
    pub allow_request_body: Option<bool>,
    /// Whether it may see bodies of responses.
    pub allow_response_body: Option<bool>,
}

impl PolicyEdits {
    /// Makes the changes.
    pub fn apply(&self, policy: &mut PluginPolicy) {
        fn set<T: Clone>(place: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                *place = value.clone();
            }
        }
        set(&mut policy.cpu, self.cpu_ms.map(Duration::from_millis).as_ref());
        set(&mut policy.memory, self.memory.as_ref());
        set(&mut policy.tables, self.tables.as_ref());
        set(&mut policy.long, self.long_ms.map(Duration::from_millis).as_ref());
        set(&mut policy.log_per_s, self.log_per_s.as_ref());
        set(&mut policy.on_failure, self.on_failure.as_ref());
        let allow = &mut policy.allow;
        set(&mut allow.upstreams, self.allow_upstreams.as_deref().map(names).as_ref());
        set(&mut allow.shared, self.allow_shared.as_deref().map(names).as_ref());
        set(&mut allow.cache, self.allow_cache.as_ref());
        set(&mut allow.request_body, self.allow_request_body.as_ref());
        set(&mut allow.response_body, self.allow_response_body.as_ref());
    }
}

fn names(names: &[String]) -> Names {
    match names.iter().any(|name| name == "*") {
        true => Names::All,
        false => Names::These(names.to_vec()),
    }
}

/// Checks the values of a policy that did not come through the configuration.
///
/// # Errors
/// [`PluginError::Value`].
pub(crate) fn check(policy: &PluginPolicy) -> Result<(), PluginError> {
    let (cpu, long) = (policy.cpu.as_millis(), policy.long.as_millis());
    let quarantine = &policy.quarantine;
    let checks = [
        ("cpu", "from 1ms to 10s", (1..=10_000).contains(&cpu), format!("{cpu}ms")),
        (
            "memory",
            "from 64KiB to 4GiB",
            (64 << 10..=4 << 30).contains(&policy.memory),
            format!("{} bytes", policy.memory),
        ),
        ("tables", "at most 10000000", policy.tables <= 10_000_000, policy.tables.to_string()),
        ("long", "from 1ms to 1s", (1..=1000).contains(&long), format!("{long}ms")),
        (
            "log",
            "from 1 to 100000 lines a second",
            (1..=100_000).contains(&policy.log_per_s),
            policy.log_per_s.to_string(),
        ),
        (
            "failures before a quarantine",
            "1 or more",
            quarantine.failures >= 1,
            quarantine.failures.to_string(),
        ),
        (
            "the back-off of a quarantine",
            "over 0 and at most its maximum",
            !quarantine.back_off.is_zero() && quarantine.back_off <= quarantine.back_off_max,
            format!("{:?} of {:?}", quarantine.back_off, quarantine.back_off_max),
        ),
    ];
    match checks.into_iter().find(|(_, _, fits, _)| !fits) {
        Some((what, expected, _, given)) => Err(PluginError::Value { what, expected, given }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays() {
        let mut policy = PluginPolicy::default();
        PolicyEdits::default().apply(&mut policy);
        assert_eq!(policy, PluginPolicy::default());
        let edits: PolicyEdits = serde_json::from_str(
            r#"{"cpu_ms": 7, "on_failure": "fail", "allow_upstreams": ["a", "b"]}"#,
        )
        .unwrap();
        edits.apply(&mut policy);
        let cpu = Duration::from_millis(7);
        let mut expected =
            PluginPolicy { cpu, on_failure: OnFailure::Fail, ..PluginPolicy::default() };
        expected.allow.upstreams = Names::These(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(policy, expected);
        let all = PolicyEdits { allow_shared: Some(vec!["*".to_owned()]), ..Default::default() };
        all.apply(&mut policy);
        assert_eq!(policy.allow.shared, Names::All);
    }

    #[test]
    fn values_have_ranges() {
        let check = |edits: PolicyEdits, word: &str| {
            let mut policy = PluginPolicy::default();
            edits.apply(&mut policy);
            let error = super::check(&policy).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        let edits = PolicyEdits::default;
        assert!(super::check(&PluginPolicy::default()).is_ok());
        check(PolicyEdits { cpu_ms: Some(0), ..edits() }, "cpu must be from 1ms to 10s, not 0ms");
        check(PolicyEdits { cpu_ms: Some(10_001), ..edits() }, "cpu");
        check(PolicyEdits { memory: Some(1000), ..edits() }, "memory must be from 64KiB");
        check(PolicyEdits { memory: Some(5 << 30), ..edits() }, "memory");
        check(PolicyEdits { tables: Some(u32::MAX), ..edits() }, "tables");
        check(PolicyEdits { long_ms: Some(0), ..edits() }, "long");
        check(PolicyEdits { log_per_s: Some(0), ..edits() }, "log");
    }
}
