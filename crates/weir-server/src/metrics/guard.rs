//! Overload control: what became of whom, by class and by rule, and who waits for which upstream.
//! All labels come from the configuration, none from clients.

use std::sync::atomic::Ordering::Relaxed;

use weir_config::GuardRule;
use weir_guard::{ClassCounts, ClassId, Count, DELAY_BOUNDS_NS, Rules, ShedReason};

use super::render::{Page, seconds};
use crate::guard::{Guard, Offer};
use crate::shared::Shared;

/// Renders the part of the page that is about overload control.
pub(super) fn guard(page: &mut Page, shared: &Shared) {
    let guard = &shared.guard;
    let rules = guard.rules();
    classes(page, guard, &rules);
    self::rules(page, guard, &rules);
    enforced(page, guard);
    overload(page, guard);
    keys(page, guard, &rules);
    kernel(page, guard);
    upstreams(page, shared, &rules);
}

fn classes(page: &mut Page, guard: &Guard, rules: &Rules) {
    let name = "weir_guard_class_requests_total";
    page.family(name, "counter", "Requests by class and by what became of them.");
    for (class, id) in rules.classes().all().iter().zip(0..) {
        for offer in Offer::ALL {
            let labels = [("class", &*class.name), ("result", offer.as_str())];
            page.sample(name, &labels, guard.classes.counted(ClassId(id), offer));
        }
    }
}

fn rules(page: &mut Page, guard: &Guard, rules: &Rules) {
    let name = "weir_guard_rule_total";
    page.family(name, "counter", "Requests and connections that a rule meant, and its refusals.");
    // The rules in force are those of `in_force`, but for a moment while they are changed.
    let configured = guard.in_force();
    for ((rule, state), of) in rules.states().zip(&configured.guard.rules) {
        for count in Count::ALL.into_iter().filter(|count| can_count(of, *count)) {
            let labels = [("rule", rule), ("result", count.as_str())];
            page.sample(name, &labels, state.counted(count));
        }
    }
    page.single(
        "weir_guard_connections_reset_total",
        "counter",
        "Connections reset by rules right after they were accepted.",
        guard.turned_away.load(Relaxed),
    );
}

/// Whether a rule has what is counted: with thousands of rules, zeros for ever are dear.
fn can_count(rule: &GuardRule, count: Count) -> bool {
    let limits = rule.refuse || rule.rate.is_some() || rule.concurrency.is_some();
    let refuses = limits && !rule.dry_run;
    match count {
        Count::Met => true,
        Count::Rate => refuses && rule.rate.is_some() && !rule.refuse,
        Count::Concurrency => refuses && rule.concurrency.is_some() && !rule.refuse,
        Count::Refused => refuses && rule.refuse,
        Count::DryRun => rule.dry_run,
        Count::Spared => limits && !rule.always,
    }
}

fn enforced(page: &mut Page, guard: &Guard) {
    let enforced = guard.enforced();
    let name = "weir_guard_enforced";
    page.family(name, "gauge", "Rules in force, by where they are enforced.");
    for (place, rules) in
        [("kernel", enforced.kernel), ("accept", enforced.accept), ("request", enforced.request)]
    {
        page.sample(name, &[("where", place)], rules);
    }
    let name = "weir_guard_kernel_program";
    page.family(name, "gauge", "1 while a program in the kernel does its part.");
    for (program, is_there) in [
        ("policing", enforced.policing),
        ("steering", enforced.steering),
        ("interface", enforced.interface),
    ] {
        page.sample(name, &[("program", program)], u8::from(is_there));
    }
}

fn overload(page: &mut Page, guard: &Guard) {
    let name = "weir_guard_overloaded";
    page.family(name, "gauge", "1 while what is ready waits too long for the worker.");
    let mut begun = 0;
    for (worker, load) in guard.loads().iter().enumerate() {
        let worker = worker.to_string();
        page.sample(name, &[("worker", &worker)], u8::from(load.is_overloaded()));
        begun += load.begun.load(Relaxed);
    }
    page.single("weir_guard_overloads_total", "counter", "Overloads of workers that began.", begun);
}

fn keys(page: &mut Page, guard: &Guard, rules: &Rules) {
    let keys = rules.keys();
    page.single(
        "weir_guard_keys",
        "gauge",
        "Buckets by source, prefix, header or cookie that are not full; estimated from a sample.",
        keys.busy(guard.now_ns()),
    );
    page.single("weir_guard_keys_limit", "gauge", "Most of them.", keys.room());
    page.single(
        "weir_guard_keys_forgotten_total",
        "counter",
        "Buckets that were forgotten before they were full, for want of room.",
        keys.forgotten.load(Relaxed),
    );
    let (penalties, most) = rules.bans(guard.now_ns());
    let name = "weir_guard_penalties";
    page.single(name, "gauge", "Sources that are not let in, for their refusals.", penalties);
    page.single("weir_guard_penalties_limit", "gauge", "Most of them.", most);
}

fn kernel(page: &mut Page, guard: &Guard) {
    let counters = guard.kernel().map(|kernel| kernel.counters()).unwrap_or_default();
    let name = "weir_guard_kernel_rule_connections_total";
    page.family(name, "counter", "Connections that a rule meant in the kernel, and those dropped.");
    for rule in &counters.rules {
        let counts = [
            ("offered", Some(rule.offered)),
            ("dropped", Some(rule.dropped).filter(|_| rule.dry_run.is_none())),
            ("spared", rule.spared),
            ("dry-run", rule.dry_run),
        ];
        for (result, count) in counts {
            if let Some(count) = count {
                page.sample(name, &[("rule", &*rule.name), ("result", result)], count);
            }
        }
    }
    let name = "weir_guard_kernel_class_connections_total";
    page.family(name, "counter", "Connections that the kernel put into a class's queue.");
    for (class, count) in &counters.classes {
        page.sample(name, &[("class", class)], count);
    }
    let families = [
        (
            "weir_guard_kernel_penalised_total",
            "Connections dropped since their source was refused too often.",
            counters.penalised,
        ),
        (
            "weir_guard_kernel_keys_forgotten_total",
            "Buckets in the kernel that were forgotten before they were full.",
            counters.forgotten,
        ),
        (
            "weir_guard_kernel_contended_total",
            "Connections dropped since processors met at their bucket; among those of rules.",
            counters.contended,
        ),
        (
            "weir_guard_kernel_unsteered_total",
            "Connections for which no socket of their class was found.",
            counters.unsteered,
        ),
    ];
    for (name, help, count) in families {
        page.single(name, "counter", help, count);
    }
}

/// What one upstream's gate says.
struct Gate {
    upstream: String,
    is_overloaded: bool,
    overloads: u64,
    limit: u32,
    in_flight: u32,
    left_behind: usize,
    counts: Vec<ClassCounts>,
    waiting: Vec<usize>,
}

fn upstreams(page: &mut Page, shared: &Shared, rules: &Rules) {
    let live = shared.live.load();
    let mut gates: Vec<Gate> = live
        .groups
        .iter()
        .map(|(name, upstream)| {
            upstream.gate.look(|gate, now_ns| Gate {
                upstream: name.clone(),
                is_overloaded: gate.is_overloaded(now_ns),
                overloads: upstream.gate.begun.load(Relaxed),
                limit: gate.limit(),
                in_flight: gate.in_flight(),
                left_behind: gate.left_behind(),
                counts: gate.counts().to_vec(),
                waiting: (0..gate.counts().len()).map(|class| gate.class_waiting(class)).collect(),
            })
        })
        .collect();
    gates.sort_by(|a, b| a.upstream.cmp(&b.upstream));
    type Value = fn(&Gate) -> u32;
    let families: [(&str, &str, Value); 4] = [
        ("weir_upstream_overloaded", "1 while requests cannot but wait.", |gate| {
            gate.is_overloaded.into()
        }),
        ("weir_upstream_limit", "Requests that may be in flight.", |gate| gate.limit),
        ("weir_upstream_limit_used", "Requests that are, as the limit counts them.", |gate| {
            gate.in_flight
        }),
        ("weir_upstream_left_behind", "Among these, those whose clients have gone.", |gate| {
            u32::try_from(gate.left_behind).unwrap_or(u32::MAX)
        }),
    ];
    for (name, help, value) in families {
        page.family(name, "gauge", help);
        for gate in &gates {
            page.sample(name, &[("upstream", &*gate.upstream)], value(gate));
        }
    }
    let name = "weir_upstream_overloads_total";
    page.family(name, "counter", "Overloads that began.");
    for gate in &gates {
        page.sample(name, &[("upstream", &*gate.upstream)], gate.overloads);
    }
    by_class(page, &gates, rules);
}

fn by_class(page: &mut Page, gates: &[Gate], rules: &Rules) {
    let classes = rules.classes().all();
    let rows = || {
        gates.iter().flat_map(|gate| {
            let counts = classes.iter().zip(&gate.counts).zip(&gate.waiting);
            counts.map(|((class, counts), waiting)| {
                ([("upstream", gate.upstream.as_str()), ("class", &*class.name)], counts, *waiting)
            })
        })
    };
    page.family("weir_upstream_waiting", "gauge", "Requests that wait for the upstream.");
    for (labels, _, waiting) in rows() {
        page.sample("weir_upstream_waiting", &labels, waiting);
    }
    type Value = fn(&ClassCounts) -> u64;
    let families: [(&str, &str, Value); 4] = [
        ("weir_upstream_offered_total", "Requests that came.", |counts| counts.offered),
        ("weir_upstream_admitted_total", "Requests let through.", |counts| counts.admitted),
        ("weir_upstream_queued_total", "Requests that had to wait.", |counts| counts.queued),
        ("weir_upstream_cancelled_total", "Waiting requests whose client left.", |counts| {
            counts.cancelled
        }),
    ];
    for (name, help, value) in families {
        page.family(name, "counter", help);
        for (labels, counts, _) in rows() {
            page.sample(name, &labels, value(counts));
        }
    }
    let name = "weir_upstream_shed_total";
    page.family(name, "counter", "Requests refused instead of let through, by reason.");
    for (labels, counts, _) in rows() {
        for reason in ShedReason::ALL {
            let labels = [labels[0], labels[1], ("reason", reason.as_str())];
            page.sample(name, &labels, counts.shed[reason.index()]);
        }
    }
    let name = "weir_upstream_queue_seconds";
    page.family(name, "histogram", "How long requests waited that were let through.");
    for (labels, counts, _) in rows().filter(|(_, counts, _)| counts.admitted > 0) {
        let delay = &counts.delay;
        let mut cumulative = 0;
        let bounds = DELAY_BOUNDS_NS.iter().map(|bound_ns| Some(seconds(*bound_ns)));
        let buckets = bounds.chain([None]).zip(delay.buckets).map(|(bound, count)| {
            cumulative += count;
            (bound, cumulative)
        });
        page.histogram(name, &labels, buckets, seconds(delay.sum_ns), counts.admitted);
    }
}
