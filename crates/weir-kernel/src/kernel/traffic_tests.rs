//! Real connections between two network namespaces.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_config::{GuardRule, Interface, InterfaceHook, Rate};

use super::*;
use crate::enforcement::Steering;
use crate::testing::*;
use crate::testnet::*;

const SOURCES: &[&str] = &["10.77.0.2/16", "10.77.1.2/16", "fd77::2/64", "fd77::1:2/64"];
const V4: &str = "10.77.0.1:80";
const V6: &str = "[fd77::1]:80";

/// Longer than any connection takes here that comes about, and shorter than a SYN sent again.
const SOON: Duration = Duration::from_millis(700);

/// For connections that are to come about, on the slowest of machines.
const PATIENT: Duration = Duration::from_secs(20);

fn gold() -> GuardRule {
    rule("gold", |rule| {
        rule.on.from = set(&[("10.77.1.0", "10.77.1.255"), ("fd77::1:0", "fd77::1:ffff")]);
        rule.class = Some("gold".to_owned());
    })
}

/// A kernel, or a line that says why there is none.
fn start(policy: &Policy) -> Option<Kernel> {
    let kernel = Kernel::start(policy);
    let enforcement = kernel.enforcement();
    if enforcement.reasons.iter().any(|reason| reason.contains("not permitted")) {
        println!("skipped: {enforcement}");
        return None;
    }
    assert!(enforcement.reasons.is_empty(), "{enforcement}");
    Some(kernel)
}

/// Listeners of both classes on two workers, which are attached.
fn listeners(kernel: &Kernel, address: &str) -> Vec<(TcpListener, Attachment, &'static str)> {
    let places = [("gold", 0), ("gold", 1), ("default", 0), ("default", 1)];
    let attach = |(class, worker)| {
        let listener = listen(address, 64);
        let attachment = kernel.attach(listener.as_fd(), class, worker).unwrap();
        (listener, attachment, class)
    };
    places.into_iter().map(attach).collect()
}

/// The class of the listener that has a connection, which was made before.
fn taken<'a>(listeners: &'a [(TcpListener, Attachment, &str)]) -> &'a str {
    let found = listeners.iter().find(|(listener, _, _)| listener.accept().is_ok());
    found.map_or("none", |(_, _, class)| class)
}

#[test]
fn connections_land_in_the_queue_of_their_class() {
    let Some(net) = Net::new(SOURCES) else { return };
    let policy = Policy::new(&guard(&["gold"], vec![gold()]), 2);
    net.server(|| {
        let Some(kernel) = start(&policy) else { return };
        let (v4, v6) = (listeners(&kernel, V4), listeners(&kernel, V6));
        let cases = [
            ("10.77.1.2:0", V4, "gold", &v4),
            ("10.77.0.2:0", V4, "default", &v4),
            ("[fd77::1:2]:0", V6, "gold", &v6),
            ("[fd77::2]:0", V6, "default", &v6),
        ];
        let round = || {
            for (from, to, class, listeners) in cases {
                let _stream = net.client(|| connect(from, to, PATIENT)).unwrap();
                assert_eq!(taken(listeners), class, "{from}");
            }
        };
        // Until both sides know each other's hardware addresses, SYNs may be sent again.
        round();
        let before = kernel.counters();
        (0..20).for_each(|_| round());
        let after = kernel.counters();
        let counted = |class: usize| after.classes[class].1 - before.classes[class].1;
        assert_eq!([0, 1].map(counted), [40, 40], "{after:?}");
        assert_eq!(after.rules[0].offered - before.rules[0].offered, 40);
        assert_eq!(after.unsteered, 0);
        assert_eq!(kernel.enforcement().steering, Steering::Program);
    });
}

#[test]
fn refused_connections_hear_nothing() {
    let Some(net) = Net::new(SOURCES) else { return };
    let refusing = |name: &str, change: fn(&mut GuardRule)| {
        let no = rule(name, |rule| {
            (rule.refuse, rule.penalty) = (true, penalty(32, 64));
            change(rule);
        });
        Policy::new(&guard(&["gold"], vec![gold(), no]), 2)
    };
    let from_2 = |rule: &mut GuardRule| {
        rule.on.from = set(&[("10.77.0.2", "10.77.0.2"), ("fd77::2", "fd77::2")]);
    };
    net.server(|| {
        let Some(kernel) = start(&refusing("no", from_2)) else { return };
        let (v4, v6) = (listeners(&kernel, V4), listeners(&kernel, V6));
        for (from, to) in [("10.77.0.2:0", V4), ("[fd77::2]:0", V6)] {
            let error = net.client(|| connect(from, to, SOON)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{from}: {error}");
        }
        for (from, to, listeners) in [("10.77.1.2:0", V4, &v4), ("[fd77::1:2]:0", V6, &v6)] {
            let _stream = net.client(|| connect(from, to, PATIENT)).unwrap();
            assert_eq!(taken(listeners), "gold");
        }
        let [_, no] = &kernel.counters().rules[..] else { panic!("two rules") };
        assert_eq!((no.offered, no.dropped), (2, 2));
        assert_eq!(kernel.counters().classes[0].1, 2);

        // A connection that is refused under overload only comes about when its client tries again.
        kernel.replace(&refusing("busy", |rule| rule.always = false));
        kernel.set_overload(true);
        let calm = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let stream = net.client(|| connect("10.77.0.2:0", V4, PATIENT));
                assert!(calm.load(Ordering::Relaxed), "it came about under overload");
                stream.unwrap()
            });
            while kernel.counters().rules[1].dropped == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            calm.store(true, Ordering::Relaxed);
            kernel.set_overload(false);
            client.join().unwrap();
        });
        assert_eq!(taken(&v4), "default");

        // Of IPv6 it holds for whoever has the same /64.
        for (offender, from, to) in
            [("10.77.1.2", "10.77.1.2:0", V4), ("fd77::99", "[fd77::1:2]:0", V6)]
        {
            let by = penalty(32, 64).unwrap().by;
            let before = kernel.counters().penalised;
            kernel.penalise(offender.parse().unwrap(), by, Duration::from_secs(600));
            let error = net.client(|| connect(from, to, SOON)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{from}: {error}");
            assert_eq!(kernel.counters().penalised, before + 1, "{from}");
        }
    });
}

#[test]
fn rates_hold_on_real_connections() {
    let Some(net) = Net::new(SOURCES) else { return };
    for hook in [None, Some(InterfaceHook::Xdp), Some(InterfaceHook::Tcx)] {
        // A burst for a quarter of a second in which the client may not get a processor.
        let rate = Rate { count: 400, period: Duration::from_secs(1), burst: 100 };
        let mut guard = guard(&[], vec![rule("slow", |rule| rule.rate = Some(rate))]);
        guard.interface = hook.map(|hook| Interface { name: SERVER_INTERFACE.to_owned(), hook });
        let policy = Policy::new(&guard, 1).listening_on(vec![80]);
        net.server(|| {
            let Some(kernel) = start(&policy) else { return };
            let listener = listen(V4, 4096);
            let _attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
            let began = Instant::now();
            net.client(|| {
                while began.elapsed() < Duration::from_millis(1500) {
                    drop(knock("10.77.0.2:0", V4));
                }
            });
            let seconds = began.elapsed().as_secs_f64();
            let counters = kernel.counters();
            let slow = &counters.rules[0];
            let admitted = (slow.offered - slow.dropped) as f64;
            let allowed = 400.0 * seconds + 100.0;
            assert!(slow.dropped > slow.offered / 10, "too few were sent to say: {slow:?}");
            // The last admitted one lies a little before the end of the time.
            let share = admitted / allowed;
            assert!((0.98..=1.001).contains(&share), "{hook:?}: {share} of {allowed}: {slow:?}");
            assert_eq!(counters.contended, 0);
            println!("{hook:?}: {share:.4} of the rate, {} offered", slow.offered);
        });
    }
}

#[test]
fn a_flood_of_one_class_fills_no_other_queue() {
    let Some(net) = Net::new(SOURCES) else { return };
    let policy = Policy::new(&guard(&["gold"], vec![gold()]), 1);
    net.server(|| {
        let Some(kernel) = start(&policy) else { return };
        let (gold, bulk) = (listen(V4, 8), listen(V4, 8));
        let _gold = kernel.attach(gold.as_fd(), "gold", 0).unwrap();
        let _bulk = kernel.attach(bulk.as_fd(), "default", 0).unwrap();
        net.client(|| {
            let waiting: Vec<_> = (0..64).map(|_| knock("10.77.0.2:0", V4)).collect();
            let full = connect("10.77.0.2:0", V4, SOON).unwrap_err();
            assert_eq!(full.kind(), ErrorKind::TimedOut);
            for _ in 0..4 {
                connect("10.77.1.2:0", V4, PATIENT).unwrap();
            }
            drop(waiting);
        });
        assert_eq!((0..9).filter(|_| gold.accept().is_ok()).count(), 4);
    });
}

/// A cookie's last packet finds no half-open connection, and is steered anew (RFC 4987 §3.6); and
/// packets of IPv4 that come to a listener of both families are rules' for IPv4.
#[test]
fn cookies_and_listeners_of_both_families_are_steered_alike() {
    let Some(net) = Net::new(SOURCES) else { return };
    let policy = Policy::new(&guard(&["gold"], vec![gold()]), 2);
    net.server(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let Some(kernel) = start(&policy) else { return };
        let listeners = listeners(&kernel, "[::]:80");
        for _ in 0..8 {
            for (from, to, class) in [
                ("10.77.1.2:0", V4, "gold"),
                ("10.77.0.2:0", V4, "default"),
                ("[fd77::1:2]:0", V6, "gold"),
                ("[fd77::2]:0", V6, "default"),
            ] {
                let _stream = net.client(|| connect(from, to, PATIENT)).unwrap();
                // The client's last packet may still be on its way.
                let began = Instant::now();
                let taken = loop {
                    match taken(&listeners) {
                        "none" if began.elapsed() < PATIENT => std::thread::yield_now(),
                        taken => break taken,
                    }
                };
                assert_eq!(taken, class, "{from}");
            }
        }
    });
}

#[test]
fn buckets_outlast_a_storm_of_reloads() {
    let Some(net) = Net::new(SOURCES) else { return };
    let few = rule("few", |rule| rule.rate = per_hour(1, 20));
    let more = || (0..8).map(|n| rule(&format!("r{n}"), |rule| rule.on.ports = vec![(n, n)]));
    let policies = [vec![few.clone()], more().chain([few]).collect()];
    let policies = policies.map(|rules| Policy::new(&guard(&["gold"], rules), 1));
    net.server(|| {
        let Some(kernel) = start(&policies[0]) else { return };
        let listener = listen(V4, 64);
        let _attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                net.client(|| (0..2000).for_each(|_| drop(knock("10.77.0.2:0", V4))));
            });
            let mut next = policies.iter().cycle().skip(1);
            while !flood.is_finished() {
                next.by_ref().take(1).for_each(|policy| kernel.replace(policy));
            }
            flood.join().unwrap();
        });
        let counters = kernel.counters();
        let few = counters.rules.iter().find(|rule| rule.name == "few").unwrap();
        assert_eq!(few.offered - few.dropped, 20, "{few:?}");
        assert!(few.offered >= 2000, "{few:?}");
        assert!(kernel.enforcement().reasons.is_empty(), "{}", kernel.enforcement());
    });
}

#[test]
fn listeners_come_and_go() {
    let Some(net) = Net::new(SOURCES) else { return };
    let policy = Policy::new(&guard(&["gold"], vec![gold()]), 2);
    net.server(|| {
        let Some(kernel) = start(&policy) else { return };
        let mut listeners = listeners(&kernel, V4);
        let connects = |listeners: &[_], class: &str| {
            for _ in 0..16 {
                let _stream = net.client(|| connect("10.77.1.2:0", V4, PATIENT)).unwrap();
                assert_eq!(taken(listeners), class);
            }
        };
        connects(&listeners, "gold");
        // One worker stops: the other has all of the class.
        let (listener, attachment, _) = listeners.remove(0);
        drop(attachment);
        drop(listener);
        connects(&listeners, "gold");
        // Another begins before the old one ends, in the same place.
        let listener = listen(V4, 64);
        let attachment = kernel.attach(listener.as_fd(), "gold", 1).unwrap();
        let (old, old_attachment, _) =
            std::mem::replace(&mut listeners[0], (listener, attachment, "gold"));
        drop(old_attachment);
        drop(old);
        connects(&listeners, "gold");
        assert_eq!(kernel.counters().unsteered, 0);
        // None of the class is left: any other takes its connections.
        drop(listeners.remove(0));
        connects(&listeners, "default");
        assert!(kernel.counters().unsteered >= 16);
        // Classes change while listeners stay.
        let all = rule("all", |rule| rule.class = Some("gold".to_owned()));
        kernel.replace(&Policy::new(&guard(&["other", "gold"], vec![all]), 2));
        let listener = listen(V4, 64);
        let attachment = kernel.attach(listener.as_fd(), "gold", 0).unwrap();
        listeners.push((listener, attachment, "gold"));
        connects(&listeners, "gold");
        drop(listeners);
        assert!(net.client(|| connect("10.77.1.2:0", V4, PATIENT)).is_err());
    });
}

#[test]
fn an_interface_judges_before_sockets_and_no_packet_twice() {
    let Some(net) = Net::new(SOURCES) else { return };
    for hook in [InterfaceHook::Xdp, InterfaceHook::Tcx] {
        let mut guard = guard(&[], vec![rule("few", |rule| rule.rate = per_hour(1, 3))]);
        guard.interface = Some(Interface { name: SERVER_INTERFACE.to_owned(), hook });
        let policy = Policy::new(&guard, 1).listening_on(vec![80]);
        net.server(|| {
            let Some(kernel) = start(&policy) else { return };
            let enforcement = kernel.enforcement();
            assert!(enforcement.interface.is_some(), "{enforcement}");
            let listener = listen(V4, 64);
            let _attached = kernel.attach(listener.as_fd(), "default", 0).unwrap();
            let connects = |patience| net.client(|| connect("10.77.0.2:0", V4, patience)).is_ok();
            let count = || kernel.counters().rules[0].offered;
            // Nobody listens there; but then both sides know each other's hardware addresses.
            let refused = net.client(|| connect("10.77.0.2:0", "10.77.0.1:9", PATIENT));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert_eq!([(); 2].map(|()| connects(PATIENT)), [true; 2]);
            assert_eq!(count(), 2);
            // What does not come by the interface is judged by the socket, from the same bucket.
            assert!(connect("10.77.0.1:0", V4, PATIENT).is_ok());
            assert!(connect("10.77.0.1:0", V4, SOON).is_err());
            assert!(!connects(SOON));
            assert_eq!(count(), 5);
            // Another policy exchanges the program on the interface, too.
            guard.rules = vec![rule("none", |rule| rule.refuse = true)];
            kernel.replace(&Policy::new(&guard, 1).listening_on(vec![80]));
            assert!(!connects(SOON));
            assert_eq!((kernel.counters().rules[0].dropped, kernel.counters().rules.len()), (1, 1));
            // Where the interface is to look at other ports, or at none, the socket judges all.
            for ports in [vec![81], vec![]] {
                guard.rules = vec![rule("two", |rule| rule.rate = per_hour(1, 2))];
                kernel.replace(&Policy::new(&guard, 1).listening_on(ports));
                assert_eq!([PATIENT, PATIENT, SOON].map(connects), [true, true, false]);
                guard.rules.clear();
                kernel.replace(&Policy::new(&guard, 1).listening_on(vec![80]));
            }
        });
    }
}

#[test]
fn classic_programs_steer_without_privilege() {
    let Some(net) = Net::new(SOURCES) else { return };
    let mut rules = vec![gold()];
    rules[0].on.from =
        set(&[("10.77.1.0", "10.77.1.255"), ("fd78::", "fd78:0:ffff:ffff:ffff:ffff:ffff:ffff")]);
    let policy = Policy::new(&guard(&["gold"], rules), 2);
    net.server(|| {
        let none = rustix::thread::CapabilitySet::empty();
        let kernel = within_capabilities(none, || Kernel::start(&policy));
        {
            let listeners: Vec<_> = [("default", 0), ("gold", 0), ("gold", 1), ("default", 1)]
                .into_iter()
                .map(|(class, worker)| {
                    let listener = listen("10.77.0.1:8080", 64);
                    let attachment = kernel.attach(listener.as_fd(), class, worker).unwrap();
                    (listener, attachment, class)
                })
                .collect();
            let enforcement = kernel.enforcement();
            assert_eq!(enforcement.steering, Steering::Classic { rules: 1 }, "{enforcement}");
            assert!(enforcement.to_string().contains("it needs CAP_BPF"), "{enforcement}");
            let mut listeners = listeners;
            let connects = |listeners: &[_]| {
                for (from, class) in [("10.77.1.2:0", "gold"), ("10.77.0.2:0", "default")] {
                    for _ in 0..10 {
                        let to = "10.77.0.1:8080";
                        let _stream = net.client(|| connect(from, to, PATIENT)).unwrap();
                        assert_eq!(taken(listeners), class, "{from}");
                    }
                }
            };
            connects(&listeners);
            // The last socket takes the index of the first.
            let (listener, attachment, _) = listeners.remove(0);
            drop(attachment);
            drop(listener);
            connects(&listeners);
        }
    });
}
