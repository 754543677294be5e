//! What a contender is to shield the application with, and the same said in each contender's own
//! words; the templates under `peers/` take it in.

use std::fmt::Write;

use super::adaptation::Adaptation;

/// Addresses of clients, as rules name them.
pub mod blocks {
    /// Those who are to be served whatever the others do.
    pub const GOLD: &str = "10.77.1.0/24";
    /// Those who come next.
    pub const SILVER: &str = "10.77.2.0/24";
    /// Those who come last.
    pub const BRONZE: &str = "10.77.3.0/24";
    /// Everyone else: room for 4,000.
    pub const OTHERS: &str = "10.77.16.0/20";
}

/// Pages by what rules call them.
pub mod pages {
    /// Of those who are to be served.
    pub const HIGH: &str = "/page/high";
    /// Of the others.
    pub const LOW: &str = "/page/low";
}

/// What a contender does. By default nothing: whatever comes is passed on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// What the block of others may have.
    pub others: Option<Pace>,
    /// What the page of the others may have.
    pub low_page: Option<Pace>,
    /// What the first class may have.
    pub gold: Option<Pace>,
    /// Who goes first.
    pub classes: Classes,
    /// What the last of them gets of the turns, in percent, if somebody else would have all.
    pub last_share: Option<u32>,
    /// Where connections are counted.
    pub place: Place,
    /// Pages that the application makes at a time, for those who must be told.
    pub servers: Option<usize>,
    /// Limits concurrency by measured latency, where that has to be asked for.
    pub adapts: bool,
    /// Rules about paths that nobody asks for, in front of everything else.
    pub idle_rules: usize,
    /// A rule after them about these paths.
    pub matched: Vec<String>,
    /// What is adapted, of what it lets in.
    pub adaptation: Adaptation,
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Per second.
    pub rate: u32,
    /// At once.
    pub burst: u32,
}

/// How requests are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Classes {
    /// Not at all.
    #[default]
    None,
    /// Three classes by the client's address.
    ByAddress,
    /// Two by the page.
    ByPage,
}

/// Where Weir counts and refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the kernel: a SYN too many is dropped.
    #[default]
    Kernel,
    /// After accept: a connection too many is reset.
    Accept,
    /// At the request, which gets an answer.
    Admit,
}

impl Pace {
    /// So many per second, and a tenth of it at once, which is Weir's default.
    #[must_use]
    pub fn per_second(rate: f64) -> Pace {
        let rate = (rate.round() as u32).max(1);
        Pace { rate, burst: (rate / 10).max(1) }
    }
}

impl Policy {
    /// The values of templates.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let guard = vec![
            ("weir-guard", self.weir()),
            ("nginx-zones", self.nginx_zones()),
            ("nginx-limits", self.nginx_limits()),
            ("haproxy-limits", self.haproxy_limits()),
            ("haproxy-server", self.haproxy_server()),
            ("envoy-filters", self.envoy_filters()),
            ("envoy-limit", self.envoy_limit()),
        ];
        guard.into_iter().chain(self.adaptation.values()).collect()
    }

    /// A configuration of Weir with these rules, which serves nothing else.
    #[must_use]
    pub fn weir_file(&self) -> String {
        let rules = self.weir();
        format!("guard {{\n{rules}}}\nsite \"*\" {{\n{NOTHING}\n}}\n")
    }

    fn weir(&self) -> String {
        let mut text = String::new();
        let mut line = |line: &str| text += &format!("    {line}\n");
        if self.place == Place::Accept {
            line("kernel \"off\"");
        }
        let unit = if self.place == Place::Admit { "; unit \"requests\"" } else { "" };
        let rate = |pace: &Pace| format!("rate {} burst={}; always", pace.rate, pace.burst);
        if self.classes != Classes::None {
            // All wait as long as in HAProxy's queue.
            for (priority, name) in (1..).zip(["gold", "silver", "bronze", "default"]) {
                let share = self.last_share.filter(|_| name == "bronze");
                let share = share.map_or_else(String::new, |share| format!(" share={share}"));
                line(&format!("class {name:?} priority={priority} wait=\"500ms\"{share}"));
            }
        }
        for number in 0..self.idle_rules {
            line(&idle_rule(number));
        }
        if !self.matched.is_empty() {
            let paths: Vec<String> = self.matched.iter().map(|path| format!("{path:?}")).collect();
            line(&format!("rule \"matched\" {{ path {}; class \"default\" }}", paths.join(" ")));
        }
        match self.classes {
            Classes::None => {}
            Classes::ByAddress => {
                let gold = self.gold.iter().map(|pace| format!("; {}{unit}", rate(pace)));
                let gold: String = gold.collect();
                line(&format!("rule \"gold\" {{ from {:?}; class \"gold\"{gold} }}", blocks::GOLD));
                for (name, block) in [("silver", blocks::SILVER), ("bronze", blocks::BRONZE)] {
                    line(&format!("rule {name:?} {{ from {block:?}; class {name:?} }}"));
                }
            }
            Classes::ByPage => {
                for (name, page) in [("gold", pages::HIGH), ("silver", pages::LOW)] {
                    line(&format!("rule {name:?} {{ path {page:?}; class {name:?} }}"));
                }
            }
        }
        if let Some(pace) = &self.others {
            let limit = rate(pace);
            line(&format!("rule \"others\" {{ from {:?}; {limit}{unit} }}", blocks::OTHERS));
        }
        if let Some(pace) = &self.low_page {
            line(&format!("rule \"page\" {{ path {:?}; {} }}", pages::LOW, rate(pace)));
        }
        text
    }

    fn nginx_zones(&self) -> String {
        let mut text = String::new();
        // An empty key is not limited.
        if let Some(pace) = self.others {
            let _ = writeln!(text, "geo $others {{ default \"\"; {} 1; }}", blocks::OTHERS);
            let _ = writeln!(text, "limit_req_zone $others zone=others:1m rate={}r/s;", pace.rate);
        }
        if let Some(pace) = self.low_page {
            let _ = writeln!(text, "map $uri $low {{ default \"\"; {} 1; }}", pages::LOW);
            let _ = writeln!(text, "limit_req_zone $low zone=low:1m rate={}r/s;", pace.rate);
        }
        text
    }

    fn nginx_limits(&self) -> String {
        let limits = [("others", self.others), ("low", self.low_page)];
        let set = limits.into_iter().filter_map(|(zone, pace)| Some((zone, pace?)));
        // One request is let in beyond the burst.
        set.map(|(zone, pace)| {
            let burst = pace.burst - 1;
            format!("limit_req zone={zone} burst={burst} nodelay;\n")
        })
        .collect()
    }

    fn haproxy_limits(&self) -> String {
        let mut text = String::new();
        let mut line = |line: &str| text += &format!("    {line}\n");
        // Looked up first and counted only if let in: with the count in front, one that is refused
        // would count too, and nobody would be let in while more come than may.
        if let Some(pace) = self.others {
            line(&format!("acl others src {}", blocks::OTHERS));
            line(&format!(
                "tcp-request connection reject if others {{ dst,table_conn_rate(others) ge {} }}",
                pace.rate
            ));
            line("tcp-request connection track-sc0 dst table others if others");
        }
        if let Some(pace) = self.gold {
            line(&format!("acl gold src {}", blocks::GOLD));
            line(&format!(
                "tcp-request connection reject if gold {{ dst,table_conn_rate(gold) ge {} }}",
                pace.rate
            ));
            line("tcp-request connection track-sc2 dst table gold if gold");
        }
        if let Some(pace) = self.low_page {
            line(&format!("acl low path {}", pages::LOW));
            line(&format!(
                "http-request deny deny_status 503 if low {{ dst,table_http_req_rate(low) ge {} }}",
                pace.rate
            ));
            line("http-request track-sc1 dst table low if low");
        }
        let classes: &[(i32, &str, &str)] = match self.classes {
            Classes::None => &[],
            Classes::ByAddress => &[
                (-10, "src", blocks::GOLD),
                (0, "src", blocks::SILVER),
                (10, "src", blocks::BRONZE),
            ],
            Classes::ByPage => &[(-10, "path", pages::HIGH), (10, "path", pages::LOW)],
        };
        for (class, what, value) in classes {
            line(&format!("http-request set-priority-class int({class}) if {{ {what} {value} }}"));
        }
        text
    }

    fn haproxy_server(&self) -> String {
        self.servers.map_or_else(String::new, |servers| format!(" maxconn {servers}"))
    }

    fn envoy_filters(&self) -> String {
        let mut text = String::new();
        if self.low_page.is_some() {
            text += ENVOY_LOCAL_LIMIT;
        }
        if self.adapts {
            text += ENVOY_ADAPTIVE;
        }
        text
    }

    /// What the route of the others' page is limited to.
    fn envoy_limit(&self) -> String {
        let Some(pace) = self.low_page else { return "{}".to_owned() };
        // Tokens come in steps of 50 ms at the least.
        let tokens = (f64::from(pace.rate) * 0.05).ceil();
        let interval_s = tokens / f64::from(pace.rate);
        let full = r#"{ default_value: { numerator: 100, denominator: HUNDRED } }"#;
        format!(
            "{{ limit: {{ \"@type\": {ENVOY_LIMIT_TYPE}, stat_prefix: low, token_bucket: {{ \
             max_tokens: {}, tokens_per_fill: {tokens}, fill_interval: {interval_s:.6}s }}, \
             filter_enabled: {full}, filter_enforced: {full}, \
             status: {{ code: ServiceUnavailable }} }} }}",
            pace.burst.max(tokens as u32)
        )
    }
}

/// What the rest of a configuration of rules is.
const NOTHING: &str = "    listen \":80\"\n    route \"/*\" { respond \"\" }";

const ENVOY_LIMIT_TYPE: &str = "type.googleapis.com/\
     envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";

/// The limit itself is the route's.
const ENVOY_LOCAL_LIMIT: &str = r#"
          - name: limit
            typed_config:
              "@type": "type.googleapis.com/\
                envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
              stat_prefix: all"#;

/// As in its manual, but for the time to the first measurement.
const ENVOY_ADAPTIVE: &str = r#"
          - name: adaptive
            typed_config:
              "@type": "type.googleapis.com/\
                envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency"
              gradient_controller_config:
                sample_aggregate_percentile: { value: 90 }
                concurrency_limit_params: { concurrency_update_interval: 0.1s }
                min_rtt_calc_params:
                  jitter: { value: 10 }
                  interval: 60s
                  request_count: 50"#;

/// A rule about a path that nobody asks for: exact ones, beginnings and patterns, and a half of
/// them in the folder that is asked for.
fn idle_rule(number: usize) -> String {
    let folder = if number.is_multiple_of(2) { "static" } else { "shop" };
    let path = match number % 3 {
        0 => format!("/{folder}/item-{number}.html"),
        1 => format!("/{folder}/area-{number}/*"),
        _ => format!("/{folder}/user-{number}/*/edit"),
    };
    format!("rule \"idle-{number}\" {{ path {path:?}; rate 10 }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_by_default() {
        for (name, text) in Policy::default().values() {
            let is_nothing = text.is_empty() || text == "{}" || name == "weir-adapt";
            assert!(is_nothing, "{name}: {text}");
        }
    }

    #[test]
    fn weir_reads_every_policy() {
        let pace = Some(Pace::per_second(80.0));
        let policies = [
            Policy { others: pace, ..Policy::default() },
            Policy { others: pace, place: Place::Admit, ..Policy::default() },
            Policy { others: pace, place: Place::Accept, ..Policy::default() },
            Policy { low_page: pace, ..Policy::default() },
            Policy { gold: pace, classes: Classes::ByAddress, ..Policy::default() },
            Policy { classes: Classes::ByPage, ..Policy::default() },
            Policy { idle_rules: 7, matched: vec!["/a".to_owned()], ..Policy::default() },
        ];
        for policy in policies {
            let text = policy.weir();
            let config = weir_config::parse("the lab's", &policy.weir_file());
            let config = config.unwrap_or_else(|error| panic!("{text}\n{error}"));
            let limits = config.guard.rules.iter().filter(|rule| rule.rate.is_some()).count();
            assert!(limits > 0 || policy.classes == Classes::ByPage, "{text}");
            let kernel = config
                .guard
                .rules
                .iter()
                .any(|rule| rule.name == "others" && rule.is_of_connections());
            let expect = policy.others.is_some() && policy.place != Place::Admit;
            assert_eq!(kernel, expect, "{text}");
        }
    }
}
