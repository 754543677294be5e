//! What is kept when policies change, what privileges are needed, and what is left at the end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::CapabilitySet;
use weir_config::{BucketKey, Guard, GuardRule, Interface, Rate};

use super::*;
use crate::enforcement::Steering;
use crate::privilege;
use crate::sys::objects;
use crate::testing::*;
use crate::testnet::{connect, listen};

fn kernel(rules: Vec<GuardRule>) -> Option<Kernel> {
    let kernel = Kernel::start(&policy(rules));
    let enforcement = kernel.enforcement();
    if enforcement.reasons.iter().any(|reason| reason.contains("not permitted")) {
        println!("skipped: {enforcement}");
        return None;
    }
    assert!(enforcement.reasons.is_empty(), "{enforcement}");
    Some(kernel)
}

fn policy(rules: Vec<GuardRule>) -> Policy {
    Policy::new(&guard(&["gold"], rules), 1)
}

fn few(name: &str, burst: u32, by: BucketKey) -> GuardRule {
    rule(name, |rule| (rule.rate, rule.by) = (per_hour(1, burst), by))
}

/// Of so many connections over loopback, how many came about.
fn connected(address: std::net::SocketAddr, times: usize) -> usize {
    let to = address.to_string();
    // A SYN that is dropped is not sent again before this.
    let patience = Duration::from_millis(300);
    (0..times).filter(|_| connect("127.0.0.1:0", &to, patience).is_ok()).count()
}

#[test]
fn buckets_are_kept_by_the_names_of_rules() {
    for by in [BucketKey::Rule, BucketKey::Source] {
        let few = |burst| few("few", burst, by.clone());
        let Some(kernel) = kernel(vec![few(3)]) else { return };
        let listener = listen("127.0.0.1:0", 64);
        let address = listener.local_addr().unwrap();
        let _attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
        let left = || kernel.tokens_left("few", "127.0.0.1".parse().ok());
        assert_eq!(left(), Some(3));
        assert_eq!((connected(address, 2), left()), (2, Some(1)));
        // Another program, with the rule in another place.
        kernel.replace(&policy(vec![rule("first", |_| {}), few(3)]));
        assert_eq!((connected(address, 2), left()), (1, Some(0)));
        assert_eq!(kernel.tokens_left("first", None), None, "it has no rate");
        let other = kernel.tokens_left("few", "127.0.0.2".parse().ok());
        assert_eq!(other, Some(if by == BucketKey::Rule { 0 } else { 3 }));
        // The same program with another rate; and what the bucket owes is owed at that.
        let faster = |rule: &mut GuardRule| {
            rule.by = by.clone();
            rule.rate = Some(Rate { count: 1000, period: Duration::from_secs(1), burst: 2 });
        };
        kernel.replace(&policy(vec![rule("first", |_| {}), rule("few", faster)]));
        let began = Instant::now();
        while connected(address, 1) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "the old rate's debt is kept");
        }
        // Without the rule there is no bucket; one of that name begins anew.
        kernel.replace(&policy(vec![rule("first", |_| {})]));
        assert_eq!(connected(address, 5), 5);
        kernel.replace(&policy(vec![few(1), rule("first", |_| {})]));
        let began_anew = if by == BucketKey::Rule { 1 } else { connected(address, 1).max(1) };
        assert!(began_anew == 1 && connected(address, 2) <= 1);
        let counters = kernel.counters();
        assert_eq!([&counters.rules[0].name, &counters.rules[1].name], ["few", "first"]);
        // Nothing is left when the rules go.
        kernel.replace(&Policy::new(&Guard::default(), 1));
        assert_eq!(connected(address, 5), 5);
        assert_eq!(kernel.enforcement(), Enforcement::default());
    }
}

#[test]
fn rules_that_do_not_fit_are_left_to_user_space() {
    let many = |name: &str| {
        rule(name, |rule| {
            rule.on.ports = (0..100).map(|port| (port * 10, port * 10)).collect();
            rule.refuse = true;
        })
    };
    let Some(kernel) = kernel(vec![rule("first", |_| {})]) else { return };
    kernel.replace(&policy(vec![rule("first", |_| {}), many("many"), rule("last", |_| {})]));
    let enforcement = kernel.enforcement();
    assert_eq!((enforcement.policed, enforcement.rules), (1, 3));
    assert_eq!(["first", "many", "last"].map(|name| kernel.polices(name)), [true, false, false]);
    let shown = enforcement.facts();
    let expected = [
        "kernel: policing 1 rule",
        "user space: 2 rules after accept",
        "rule \"many\" has too many ranges of ports or destinations",
    ];
    assert_eq!(shown, expected);
    // Too many instructions: each rule is long, and there are more than fit.
    let long = |number: u32| {
        let ranges =
            |offset: u16| (0..60).map(move |port| (port * 9 + offset, port * 9 + offset + 3));
        rule(&format!("r{number}"), |rule| {
            rule.on.ports = ranges(number as u16 % 5).collect();
            rule.on.from_ports = ranges(number as u16 % 3).collect();
        })
    };
    kernel.replace(&policy((0..600).map(long).collect()));
    let enforcement = kernel.enforcement();
    assert!((20..600).contains(&enforcement.policed), "{enforcement}");
    let said = format!("of 600 rules, the first {} fit into the kernel", enforcement.policed);
    assert!(enforcement.facts().contains(&said), "{enforcement}");
}

#[test]
fn a_thousand_sources_of_their_own_load() {
    let one = |number: u32| {
        let ip = std::net::IpAddr::V4((0x0a00_0000 + number * 5).into());
        rule(&format!("r{number}"), |rule| {
            rule.on.from = weir_config::AddressSet::new(vec![(ip, ip)]);
            rule.rate = per_hour(1000, 10);
        })
    };
    let began = Instant::now();
    let Some(kernel) = kernel((0..1000).map(one).collect()) else { return };
    assert_eq!(kernel.enforcement().policed, 1000);
    println!("1000 rules by source: {:?}", began.elapsed());
    // Each of them gets back what it gave to whom the last one drops.
    let began = Instant::now();
    let each = few("each", 3, BucketKey::Source);
    kernel.replace(&policy((0..1000).map(one).chain([each]).collect()));
    assert_eq!(kernel.enforcement().policed, 1001, "{}", kernel.enforcement());
    println!("and one by source for all of them: {:?}", began.elapsed());
}

#[test]
fn privileges() {
    // Each kind of instruction: tables of both families, buckets of both kinds, all conditions.
    let ranges = (0..400_u32).flat_map(|number| {
        let (v4, v6) =
            (0x7f00_0000 + number * 0x2000, (0xfd00 << 112) + (u128::from(number) << 60));
        let (v4, v6) = (std::net::Ipv4Addr::from(v4), std::net::Ipv6Addr::from(v6));
        [(v4.into(), v4.into()), (v6.into(), v6.into())]
    });
    let table = weir_config::AddressSet::new(ranges.collect());
    let rules = vec![
        rule("table", |rule| {
            (rule.on.from, rule.rate) = (table, per_hour(100, 100));
            (rule.on.to, rule.on.ports) = (set(&[("fd00::", "fd00::5")]), vec![(1, 5)]);
            rule.class = Some("gold".to_owned());
        }),
        few("keyed", 3, BucketKey::Prefix { v4: 24, v6: 56 }),
        few("all", 100, BucketKey::Rule),
    ];
    let Some(_permitted) = kernel(rules.clone()) else { return };
    let (bpf, admin, perfmon) =
        (CapabilitySet::BPF, CapabilitySet::NET_ADMIN, CapabilitySet::PERFMON);
    for (capabilities, policed, steering) in [
        (bpf | admin | perfmon, 3, Steering::Program),
        (bpf, 3, Steering::Program),
        (admin | perfmon, 0, Steering::Classic { rules: 0 }),
        (CapabilitySet::empty(), 0, Steering::Classic { rules: 0 }),
    ] {
        within_capabilities(capabilities, || {
            let kernel = Kernel::start(&policy(rules.clone()));
            let listener = listen("127.0.0.1:0", 64);
            let address = listener.local_addr().unwrap();
            let _attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
            let found = kernel.enforcement();
            assert_eq!((found.policed, found.steering), (policed, steering), "{found}");
            assert_eq!(connected(address, 5), if policed > 0 { 3 } else { 5 });
        });
    }
}

/// With what is kept rules change as they do with all privileges, and with less they do not.
#[test]
fn the_least_that_it_takes_to_change_rules() {
    let Some(_permitted) = kernel(vec![rule("all", |_| {})]) else { return };
    let Some(net) = crate::testnet::Net::new(&[]) else { return };
    use weir_config::InterfaceHook::{Tcx, Xdp};
    let name = crate::testnet::SERVER_INTERFACE;
    let hooks = [None, Some(Tcx), Some(Xdp)];
    let policy = |rules: &[&str], hook: Option<_>| {
        let rules = rules.iter().map(|name| rule(name, |rule| rule.refuse = true)).collect();
        let mut guard = guard(&["gold"], rules);
        guard.interface = hook.map(|hook| Interface { name: name.to_owned(), hook });
        Policy::new(&guard, 1).listening_on(vec![1])
    };
    for hook in hooks {
        for capabilities in
            [privilege::needed(true), privilege::needed(false), CapabilitySet::empty()]
        {
            net.server(|| {
                let kernel = Kernel::start(&policy(&["a"], hook));
                assert!(kernel.enforcement().reasons.is_empty(), "{}", kernel.enforcement());
                within_capabilities(capabilities, || kernel.replace(&policy(&["b", "c"], hook)));
                let now = kernel.enforcement();
                let has_bpf = capabilities.contains(privilege::needed(false));
                let is_enough = capabilities.contains(privilege::needed(hook.is_some()));
                let on_interface = hook.filter(|_| is_enough).is_some();
                let found = (now.policed, now.interface.is_some(), now.reasons.is_empty());
                let expected = (if has_bpf { 2 } else { 0 }, on_interface, is_enough);
                assert_eq!(found, expected, "{hook:?} with {capabilities:?}: {now}");
            });
        }
    }
    // A thread that has given it up, and what it starts.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            privilege::forgo().unwrap();
            let kernel = Kernel::start(&policy(&["a"], None));
            assert_eq!(kernel.enforcement().policed, 0, "{}", kernel.enforcement());
            privilege::forgo().unwrap();
        });
    });
}

#[test]
fn what_works_after_privileges_are_dropped() {
    let by = PrefixLengths { v4: 24, v6: 64 };
    let rules = |burst| {
        let mut of_requests = rule("requests", |rule| rule.penalty = penalty(24, 64));
        of_requests.unit = weir_config::RateUnit::Requests;
        vec![few("few", burst, BucketKey::Rule), of_requests]
    };
    let Some(kernel) = kernel(rules(2)) else { return };
    let listener = listen("127.0.0.1:0", 64);
    let address = listener.local_addr().unwrap();
    let first = kernel.attach(listener.as_fd(), "default", 0).unwrap();
    within_capabilities(CapabilitySet::empty(), || {
        // Another listener of the group, places, and words in shared memory.
        let more = listen(&address.to_string(), 64);
        let _more = kernel.attach(more.as_fd(), "gold", 0).unwrap();
        assert_eq!(connected(address, 3), 2);
        kernel.replace(&policy(rules(4)));
        assert_eq!(connected(address, 3), 2);
        let penalise =
            |by| kernel.penalise("127.0.0.9".parse().unwrap(), by, Duration::from_secs(600));
        // No rule has others policed by that.
        assert!(!penalise(PrefixLengths { v4: 32, v6: 64 }));
        assert!(penalise(by));
        assert_eq!((connected(address, 1), kernel.counters().penalised), (0, 1));
        assert_eq!(kernel.enforcement().policed, 1);
        // Other rules need another program, which cannot be loaded: user space enforces them, and
        // the old ones are in force no more.
        kernel.replace(&policy(vec![rule("other", |rule| rule.refuse = true)]));
        let enforcement = kernel.enforcement();
        assert_eq!(enforcement.policed, 0);
        assert!(enforcement.to_string().contains("not permitted"), "{enforcement}");
        assert_eq!(connected(address, 3), 3);
        assert!(!penalise(by));
        drop(first);
    });
    kernel.replace(&policy(rules(2)));
    assert_eq!(kernel.enforcement().policed, 1);
}

/// Programs of a thousand rules take more than a second to load.
#[test]
fn nobody_waits_for_programs_to_load() {
    let few = || few("few", 3, BucketKey::Rule);
    let penalised = rule("penalised", |rule| rule.penalty = penalty(32, 64));
    let Some(kernel) = kernel(vec![few(), penalised]) else { return };
    let loading = kernel.shared.inner.lock();
    let (tell, told) = std::sync::mpsc::channel();
    let asked = kernel.clone();
    std::thread::spawn(move || {
        let by = PrefixLengths { v4: 32, v6: 64 };
        let is_penalised = asked.penalise("192.0.2.1".parse().unwrap(), by, Duration::from_secs(9));
        let known =
            (asked.enforcement().policed, asked.polices("few"), asked.counters().rules.len());
        tell.send((is_penalised, known, asked.tokens_left("few", None)))
    });
    let heard = told.recv_timeout(Duration::from_secs(20));
    drop(loading);
    assert_eq!(heard, Ok((true, (2, true, 2), Some(3))));
    kernel.replace(&policy(vec![few()]));
    assert_eq!(kernel.enforcement().policed, 1);
}

#[test]
fn off_is_off() {
    let guard = Guard { kernel: KernelUse::Off, ..guard(&["gold"], vec![rule("all", |_| {})]) };
    let kernel = Kernel::start(&Policy::new(&guard, 1));
    let facts = kernel.enforcement().facts();
    assert_eq!(facts, ["user space: 1 rule after accept", "off by configuration (kernel=\"off\")"]);
    let listener = listen("127.0.0.1:0", 64);
    let _attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
    kernel.set_overload(true);
    assert_eq!(kernel.counters(), Counters::default());
}

/// Told to be a server that is killed.
const CHILD: &str = "WEIR_KERNEL_TEST_CHILD";

/// As the child of the next test: a server with rules and a program on an interface.
#[test]
fn child() {
    let Ok(interface) = std::env::var(CHILD) else { return };
    let mut guard = guard(&["gold"], vec![few("few", 3, BucketKey::Source)]);
    let hook = weir_config::InterfaceHook::Tcx;
    guard.interface = Some(Interface { name: interface, hook });
    let kernel = Kernel::start(&Policy::new(&guard, 1).listening_on(vec![1]));
    let listener = listen("127.0.0.1:0", 64);
    let attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
    println!("\nenforced: {}", kernel.enforcement());
    std::thread::sleep(Duration::from_secs(600));
    drop(attached);
}

/// Numbers of programs, maps and links that a process holds, from what the kernel says of its
/// descriptors.
fn held(child: &Child) -> [BTreeSet<u32>; 3] {
    let folder = format!("/proc/{}/fdinfo", child.id());
    let mut held = [const { BTreeSet::new() }; 3];
    for entry in std::fs::read_dir(folder).unwrap() {
        let info = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for line in info.lines() {
            for (name, held) in ["prog_id:", "map_id:", "link_id:"].iter().zip(&mut held) {
                held.extend(line.strip_prefix(name).map(|id| id.trim().parse::<u32>().unwrap()));
            }
        }
    }
    held
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let Some(_permitted) = kernel(vec![rule("all", |_| {})]) else { return };
    let net = crate::testnet::Net::new(&["10.77.0.2/16"]);
    let Some(net) = net else { return };
    let mut child = net.server(|| {
        Command::new(std::env::current_exe().unwrap())
            .args(["kernel::life_tests::child", "--exact", "--nocapture"])
            .env(CHILD, crate::testnet::SERVER_INTERFACE)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.into_iter().find(|line| line.starts_with("enforced:"));
    let held = held(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.unwrap();
    assert!(said.contains("policing 1 rule, steering 2 classes"), "{said}");
    let [programs, maps, links] = &held;
    assert!(!programs.is_empty() && maps.len() >= 3 && links.len() == 1, "{held:?}");
    let began = Instant::now();
    loop {
        let left = objects::all();
        let is_gone = |(all, own): (&BTreeSet<u32>, &BTreeSet<u32>)| all.is_disjoint(own);
        if left.iter().zip(&held).all(is_gone) {
            break;
        }
        // The kernel frees maps when no processor can be in a program any more.
        assert!(began.elapsed() < Duration::from_secs(30), "of {held:?} are left: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
