//! `GET /guard`, and the same part of `GET /status`.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::UNIX_EPOCH;

use serde::Serialize;
use weir_config::GuardRule;
use weir_guard::{ClassCounts, ClassId, ClassInfo, Count, Rules, ShedReason};
use weir_kernel::{Counters, RuleCounters};

use crate::Server;
use crate::guard::{Enforced, Guard, Offer};
use crate::shared::Shared;
use crate::upstream::Upstream;

/// Overload control at one moment.
#[derive(Debug, Serialize)]
pub(in crate::admin) struct GuardStatus {
    /// Whether any worker is.
    overloaded: bool,
    overloaded_workers: usize,
    /// Overloads that began, over all workers; those of upstreams are theirs.
    overloads: u64,
    /// When rules were set that are not those of the configuration.
    rules_set_unix_ms: Option<u64>,
    /// What is enforced where, a line each.
    enforcement: Vec<String>,
    enforced: Enforced,
    kernel: Option<KernelStatus>,
    connections_reset: u64,
    keys: Keys,
    penalties: Penalties,
    classes: Vec<ClassStatus>,
    rules: Vec<RuleStatus>,
    upstreams: Vec<UpstreamStatus>,
}

/// What programs in the kernel have counted that is no rule's.
#[derive(Debug, Serialize)]
struct KernelStatus {
    penalised: u64,
    keys_forgotten: u64,
    contended: u64,
    unsteered: u64,
}

/// Buckets by source, prefix, header or cookie.
#[derive(Debug, Serialize)]
struct Keys {
    /// Those that are not full.
    in_use: usize,
    limit: usize,
    forgotten: u64,
}

/// Sources that are kept out.
#[derive(Debug, Serialize)]
struct Penalties {
    in_force: usize,
    limit: usize,
}

#[derive(Debug, Serialize)]
struct ClassStatus {
    name: String,
    priority: u8,
    share: u8,
    admitted: u64,
    refused: u64,
    shed: u64,
    /// Means over the last ten seconds.
    admitted_per_s: f64,
    refused_per_s: f64,
    shed_per_s: f64,
    /// Connections that the kernel put into its queue.
    connections: Option<u64>,
}

#[derive(Debug, Serialize)]
struct RuleStatus {
    name: String,
    counts: &'static str,
    met: u64,
    rate: u64,
    concurrency: u64,
    refused: u64,
    spared: u64,
    /// What it would have refused, in the kernel, too, of a rule that is only tried.
    dry_run: Option<u64>,
    /// What the kernel has seen of it, and dropped.
    kernel_offered: Option<u64>,
    kernel_dropped: Option<u64>,
    /// What it would have dropped under overload; not known of rules with buckets by source.
    kernel_spared: Option<u64>,
}

#[derive(Debug, Serialize)]
struct UpstreamStatus {
    name: String,
    overloaded: bool,
    overloads: u64,
    /// `null` without one.
    limit: Option<u32>,
    /// It follows what is measured.
    adaptive: bool,
    /// It is lowered for a moment, to see the latency without a queue.
    probing: bool,
    in_flight: u32,
    /// Among them, those whose clients have gone.
    left_behind: usize,
    waiting: usize,
    /// What the upstream needs without a queue.
    baseline_us: Option<u64>,
    classes: Vec<UpstreamClass>,
}

#[derive(Debug, Serialize)]
struct UpstreamClass {
    name: String,
    waiting: usize,
    offered: u64,
    admitted: u64,
    queued: u64,
    cancelled: u64,
    raised: u64,
    shed: HashMap<&'static str, u64>,
    mean_wait_us: Option<u64>,
}

/// Takes the state.
pub(in crate::admin) fn status(server: &Server) -> GuardStatus {
    let shared = server.shared();
    let guard = &shared.guard;
    let (rules, in_force) = (guard.rules(), guard.in_force());
    let kernel = guard.kernel();
    let counters = kernel.map(|kernel| kernel.counters());
    let (keys, now_ns) = (rules.keys(), guard.now_ns());
    let (in_force_now, penalties_max) = rules.bans(now_ns);
    let set_at = in_force.set_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    GuardStatus {
        overloaded: guard.is_overloaded(),
        overloaded_workers: guard.loads().iter().filter(|load| load.is_overloaded()).count(),
        overloads: guard.loads().iter().map(|load| load.begun.load(Relaxed)).sum(),
        rules_set_unix_ms: set_at.map(|since| since.as_millis() as u64),
        enforcement: kernel.map(|kernel| kernel.enforcement().facts()).unwrap_or_default(),
        enforced: guard.enforced(),
        kernel: counters.as_ref().map(KernelStatus::new),
        connections_reset: guard.turned_away.load(Relaxed),
        keys: Keys {
            in_use: keys.busy(now_ns),
            limit: keys.room(),
            forgotten: keys.forgotten.load(Relaxed),
        },
        penalties: Penalties { in_force: in_force_now, limit: penalties_max },
        classes: classes(guard, &rules, counters.as_ref()),
        rules: self::rules(&rules, &in_force.guard.rules, counters.as_ref()),
        upstreams: upstreams(shared, rules.classes().all()),
    }
}

impl KernelStatus {
    fn new(counters: &Counters) -> KernelStatus {
        KernelStatus {
            penalised: counters.penalised,
            keys_forgotten: counters.forgotten,
            contended: counters.contended,
            unsteered: counters.unsteered,
        }
    }
}

fn classes(guard: &Guard, rules: &Rules, counters: Option<&Counters>) -> Vec<ClassStatus> {
    let rates = guard.rates.per_second(guard.now_ns(), &guard.classes);
    let steered: HashMap<&str, u64> = counters
        .iter()
        .flat_map(|counters| &counters.classes)
        .map(|(name, count)| (name.as_str(), *count))
        .collect();
    let class = |(class, rank): (&ClassInfo, u8)| {
        let counted = |offer| guard.classes.counted(ClassId(rank), offer);
        let [admitted_per_s, refused_per_s, shed_per_s] = rates[usize::from(rank)];
        ClassStatus {
            name: class.name.to_string(),
            priority: class.priority,
            share: class.share,
            admitted: counted(Offer::Admitted),
            refused: counted(Offer::Refused),
            shed: counted(Offer::Shed),
            admitted_per_s,
            refused_per_s,
            shed_per_s,
            connections: steered.get(&*class.name).copied(),
        }
    };
    rules.classes().all().iter().zip(0..).map(class).collect()
}

fn rules(rules: &Rules, configured: &[GuardRule], counters: Option<&Counters>) -> Vec<RuleStatus> {
    let in_kernel: HashMap<&str, &RuleCounters> = counters
        .iter()
        .flat_map(|counters| &counters.rules)
        .map(|rule| (rule.name.as_str(), rule))
        .collect();
    let rows = rules.states().zip(configured).map(|((name, state), rule)| {
        let kernel = in_kernel.get(name);
        RuleStatus {
            name: name.to_owned(),
            counts: if rule.is_of_connections() { "connections" } else { "requests" },
            met: state.counted(Count::Met),
            rate: state.counted(Count::Rate),
            concurrency: state.counted(Count::Concurrency),
            refused: state.counted(Count::Refused),
            spared: state.counted(Count::Spared),
            dry_run: rule.dry_run.then(|| {
                let in_kernel = kernel.and_then(|kernel| kernel.dry_run).unwrap_or(0);
                state.counted(Count::DryRun) + in_kernel
            }),
            kernel_offered: kernel.map(|kernel| kernel.offered),
            kernel_dropped: kernel.map(|kernel| kernel.dropped),
            kernel_spared: kernel.and_then(|kernel| kernel.spared),
        }
    });
    rows.collect()
}

fn upstreams(shared: &Shared, classes: &[ClassInfo]) -> Vec<UpstreamStatus> {
    let live = shared.live.load();
    let mut all: Vec<UpstreamStatus> =
        live.groups.iter().map(|(name, upstream)| one(name, upstream, classes)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn one(name: &str, upstream: &Upstream, classes: &[ClassInfo]) -> UpstreamStatus {
    upstream.gate.look(|gate, now_ns| {
        let overloaded = gate.is_overloaded(now_ns);
        let limit = gate.adaptive_limit();
        let counts = classes.iter().zip(gate.counts()).enumerate();
        UpstreamStatus {
            name: name.to_owned(),
            overloaded,
            overloads: upstream.gate.begun.load(Relaxed),
            limit: Some(gate.limit()).filter(|limit| *limit < u32::MAX),
            adaptive: matches!(limit.settings(), weir_guard::LimitSettings::Adaptive { .. }),
            probing: limit.is_probing(),
            in_flight: gate.in_flight(),
            left_behind: gate.left_behind(),
            waiting: gate.waiting(),
            baseline_us: limit.baseline_ns().map(|ns| ns / 1000),
            classes: counts
                .map(|(at, (class, counts))| of_class(class, counts, gate.class_waiting(at)))
                .collect(),
        }
    })
}

fn of_class(class: &ClassInfo, counts: &ClassCounts, waiting: usize) -> UpstreamClass {
    let shed = ShedReason::ALL.map(|reason| (reason.as_str(), counts.shed[reason.index()]));
    UpstreamClass {
        name: class.name.to_string(),
        waiting,
        offered: counts.offered,
        admitted: counts.admitted,
        queued: counts.queued,
        cancelled: counts.cancelled,
        raised: counts.raised,
        shed: shed.into(),
        mean_wait_us: counts.delay.sum_ns.checked_div(counts.admitted).map(|ns| ns / 1000),
    }
}
