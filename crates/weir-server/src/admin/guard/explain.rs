//! `POST /guard/test`: what rules would make of a request, and why. The same without a server, from
//! a configuration alone.

use std::net::IpAddr;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use weir_config::{Config, Prefix, RefusalAnswer};
use weir_guard::{Ban, ClassId, Count, Ends, Explained, Limit, Met, Moment, Rules, Subject};

use super::question::{Asked, Question, label_of, name_of};
use crate::Server;
use crate::admin::handle::{Reply, error, json};
use crate::guard::MapFields;

/// What rules would make of a request.
#[derive(Debug, Serialize)]
pub struct Explanation {
    method: String,
    site: String,
    route: String,
    path: String,
    from: Option<String>,
    to: Option<String>,
    /// What stands for a destination that was not asked about.
    to_assumed: Option<&'static str>,
    /// Whether limits hold that are not for always.
    overloaded: bool,
    class: String,
    priority: u8,
    /// The rule that gave the class.
    class_rule: Option<String>,
    admitted: bool,
    /// Nobody of the source's prefix is let in at the moment.
    penalty: Option<Penalty>,
    refused_by: Option<String>,
    /// The limit of that rule.
    reason: Option<&'static str>,
    rules: Vec<RuleExplanation>,
    /// Rules that are not looked at, since the search ends before.
    rules_left: usize,
}

/// Why nobody of a prefix is let in.
#[derive(Debug, Serialize)]
struct Penalty {
    prefix: String,
    left_ms: u64,
}

/// What one rule makes of it.
#[derive(Debug, Serialize)]
struct RuleExplanation {
    rule: String,
    matches: bool,
    /// The first condition that does not hold.
    fails: Option<String>,
    gives_class: Option<String>,
    limit: Option<LimitExplanation>,
    refuses: bool,
    /// It would, but is only tried.
    would_refuse: bool,
    /// No rule after it is looked at.
    ends: bool,
}

/// What it limits.
#[derive(Debug, Serialize)]
struct LimitExplanation {
    /// `requests` or `connections`.
    counts: &'static str,
    /// The kernel does it, and has its buckets.
    in_kernel: bool,
    always: bool,
    /// It holds now.
    holds: bool,
    /// It refuses nothing.
    dry_run: bool,
    refuses_all: bool,
    tokens_left: Option<u64>,
    running: Option<u32>,
    running_max: Option<u32>,
    /// Why the next one would be refused, if the limit held.
    exhausted: Option<&'static str>,
    answer: Answer,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    Status(u16),
    Word(&'static str),
}

/// Answers the question in a body or, without one, in the parameters of the URL.
pub(super) fn reply(server: &Server, query: &str, body: &Bytes) -> Reply {
    let question = match body.is_empty() {
        true => Question::from_query(query),
        false => serde_json::from_slice(body).map_err(|cause| cause.to_string()),
    };
    let question = match question {
        Ok(question) => question,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why),
    };
    let shared = server.shared();
    let (live, guard) = (shared.live.load(), &shared.guard);
    let state = State {
        rules: &guard.rules(),
        now_ns: guard.now_ns(),
        is_overloaded: guard.is_overloaded(),
        polices: &|rule| guard.kernel().is_some_and(|kernel| kernel.polices(rule)),
        tokens: &|rule, source| guard.kernel()?.tokens_left(rule, source),
    };
    match state.explain(&live.config, &question) {
        Ok(explanation) => json(StatusCode::OK, &explanation),
        Err(why) => error(StatusCode::BAD_REQUEST, &why),
    }
}

/// What the rules of a configuration would make of a request, with buckets that are full.
///
/// # Errors
/// What is wrong with the question, for people.
pub fn explain(config: &Config, question: &Question) -> Result<Explanation, String> {
    let rules = Rules::new(&config.guard, 1, None);
    let state = State {
        rules: &rules,
        now_ns: 0,
        is_overloaded: false,
        polices: &|_| false,
        tokens: &|_, _| None,
    };
    state.explain(config, question)
}

/// Rules at a moment.
struct State<'a> {
    rules: &'a Rules,
    now_ns: u64,
    is_overloaded: bool,
    /// Whether the kernel enforces a rule.
    polices: &'a dyn Fn(&str) -> bool,
    /// What its bucket there has left for a source.
    tokens: &'a dyn Fn(&str, Option<IpAddr>) -> Option<u64>,
}

impl State<'_> {
    fn explain(&self, config: &Config, question: &Question) -> Result<Explanation, String> {
        let asked = Asked::new(config, question)?;
        let is_overloaded = question.overloaded.unwrap_or(self.is_overloaded);
        let moment = Moment { now_ns: self.now_ns, is_overloaded, worker: 0 };
        let fields = MapFields(&asked.headers);
        let subject = Subject {
            ends: Ends { source: asked.from, destination: asked.to },
            site: name_of(asked.site),
            path: &asked.path,
            query: asked.query.as_deref(),
            method: asked.method.as_str(),
            server_name: asked.server_name.as_deref(),
            verdict: question.verdict.as_deref().unwrap_or_default(),
            fields: &fields,
        };
        let explained = self.rules.explain_with(&subject, &moment, &|rule| {
            (self.tokens)(rule, asked.from.map(|from| from.ip()))
        });
        let ban = self.rules.ban(&subject.ends, self.now_ns);
        let penalty = ban.zip(asked.from).map(|(ban, from)| Penalty::new(&ban, from.ip()));
        Ok(self.told(&asked, is_overloaded, explained, penalty))
    }

    fn told(
        &self,
        asked: &Asked<'_>,
        overloaded: bool,
        explained: Explained,
        penalty: Option<Penalty>,
    ) -> Explanation {
        let Explained { class, rules, refused_by } = explained;
        let classes = self.rules.classes();
        let class_rule = rules.iter().find(|met| met.gives_class.is_some());
        let refusing = refused_by.and_then(|at| rules.get(at));
        // A port that was not asked about is not known.
        let shown = |end: Option<std::net::SocketAddr>| {
            end.map(|end| if end.port() == 0 { end.ip().to_string() } else { end.to_string() })
        };
        Explanation {
            method: asked.method.to_string(),
            site: name_of(asked.site).to_owned(),
            route: label_of(asked.route),
            path: asked.path.clone(),
            from: shown(asked.from),
            to: shown(asked.to),
            to_assumed: asked.to_assumed,
            overloaded,
            class: self.class_name(class),
            priority: classes.info(class).priority,
            class_rule: class_rule.map(|met| met.rule.clone()),
            admitted: refused_by.is_none() && penalty.is_none(),
            penalty,
            refused_by: refusing.map(|met| met.rule.clone()),
            reason: refusing.and_then(|met| met.limit.as_ref()).and_then(exhausted),
            rules_left: self.rules.states().count() - rules.len(),
            rules: rules
                .into_iter()
                .enumerate()
                .map(|(at, met)| self.rule(met, refused_by == Some(at)))
                .collect(),
        }
    }

    fn rule(&self, met: Met, refuses: bool) -> RuleExplanation {
        let Met { rule, fails, gives_class, limit, ends } = met;
        let would_refuse = limit.as_ref().is_some_and(|it| it.dry_run && it.is_exceeded());
        let limit = limit.map(|limit| {
            let in_kernel = limit.of_connections && (self.polices)(&rule);
            LimitExplanation {
                counts: if limit.of_connections { "connections" } else { "requests" },
                in_kernel,
                always: limit.always,
                holds: limit.holds,
                dry_run: limit.dry_run,
                refuses_all: limit.refuses_all,
                tokens_left: limit.tokens_left,
                running: limit.running.map(|(running, _)| running),
                running_max: limit.running.map(|(_, most)| most),
                exhausted: exhausted(&limit),
                answer: answer(&limit, in_kernel),
            }
        });
        RuleExplanation {
            matches: fails.is_none(),
            fails,
            gives_class: gives_class.map(|class| self.class_name(class)),
            limit,
            refuses,
            would_refuse,
            ends,
            rule,
        }
    }

    fn class_name(&self, class: ClassId) -> String {
        self.rules.classes().name(class).unwrap_or_default().to_owned()
    }
}

impl Penalty {
    fn new(ban: &Ban, source: IpAddr) -> Penalty {
        let source = source.to_canonical();
        let bits = if source.is_ipv4() { ban.by.v4 } else { ban.by.v6 };
        let prefix = Prefix::new(source, bits).map(|prefix| prefix.to_string());
        let left_ms = u64::try_from(ban.lasts.as_millis()).unwrap_or(u64::MAX);
        Penalty { prefix: prefix.unwrap_or_else(|| source.to_string()), left_ms }
    }
}

/// Which part of a limit is used up.
fn exhausted(limit: &Limit) -> Option<&'static str> {
    let is_full = limit.running.is_some_and(|(running, most)| running >= most);
    let count = match (limit.refuses_all, limit.tokens_left) {
        (true, _) => Count::Refused,
        (false, Some(0)) => Count::Rate,
        (false, _) if is_full => Count::Concurrency,
        (false, _) => return None,
    };
    Some(count.as_str())
}

/// What whoever is refused gets.
fn answer(limit: &Limit, in_kernel: bool) -> Answer {
    match limit.answer {
        _ if limit.of_connections && in_kernel => Answer::Word("dropped"),
        _ if limit.of_connections => Answer::Word("reset"),
        RefusalAnswer::Reset => Answer::Word("reset"),
        RefusalAnswer::Status(status) => Answer::Status(status),
    }
}
