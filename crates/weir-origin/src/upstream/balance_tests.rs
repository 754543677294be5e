use std::collections::HashMap;

use http::Request;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Fake {
    weight: u32,
    load: usize,
    identity: u64,
}

impl Candidate for Fake {
    fn weight(&self) -> u32 {
        self.weight
    }
    fn load(&self) -> usize {
        self.load
    }
    fn identity(&self) -> u64 {
        self.identity
    }
}

fn group(weights_loads: &[(u32, usize)]) -> Vec<Fake> {
    let fake = |(index, (weight, load)): (usize, &(u32, usize))| Fake {
        weight: *weight,
        load: *load,
        identity: hash(format!("10.0.0.{index}:80").as_bytes()),
    };
    weights_loads.iter().enumerate().map(fake).collect()
}

fn hashing() -> Balance {
    Balance::Hash(HashKey::Path)
}

#[test]
fn round_robin_is_smooth_and_by_weight() {
    let check = |weights: &[u32], out: &[usize], expect: &str| {
        let servers = group(&weights.iter().map(|weight| (*weight, 0)).collect::<Vec<_>>());
        let turns = Turns::default();
        let order: String = (0..expect.len())
            .map(|_| {
                let eligible = |index: usize, _: &Fake| !out.contains(&index);
                let index = pick(&Balance::RoundRobin, &servers, &turns, 0, eligible);
                index.map_or('-', |index| char::from(b'a' + index as u8))
            })
            .collect();
        assert_eq!(order, expect, "{weights:?} without {out:?}");
    };
    check(&[1, 1, 1], &[], "abcabcabc");
    check(&[5, 1, 1], &[], "aabacaaaabacaa");
    check(&[2, 1], &[], "abaaba");
    check(&[1, 1, 1], &[1], "acacac");
    check(&[3], &[], "aaa");
    check(&[1, 1], &[0, 1], "---");
    check(&[1], &[0], "-");
}

#[test]
fn the_least_loaded_by_weight_is_chosen() {
    let check = |servers: &[(u32, usize)], expect: &[usize]| {
        let servers = group(servers);
        for _ in 0..50 {
            let index =
                pick(&Balance::LeastConnections, &servers, &Turns::default(), 0, |_, _| true);
            assert!(expect.contains(&index.unwrap()), "{servers:?}: {index:?}");
        }
    };
    check(&[(1, 3), (1, 2), (1, 9)], &[1]);
    check(&[(1, 2), (4, 6)], &[1]);
    check(&[(1, 0), (4, 8)], &[0]);
    check(&[(1, 0), (4, 0)], &[1]);
    check(&[(1, 5), (1, 5)], &[0, 1]);
}

#[test]
fn ties_are_shared() {
    for balance in [Balance::LeastConnections, Balance::TwoChoices] {
        let servers = group(&[(1, 0), (1, 0), (1, 0)]);
        let mut counts = [0; 3];
        for _ in 0..3_000 {
            counts[pick(&balance, &servers, &Turns::default(), 0, |_, _| true).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{balance:?} {counts:?}");
    }
}

#[test]
fn two_choices_never_take_the_most_loaded_of_three() {
    let servers = group(&[(1, 1), (1, 50), (1, 7)]);
    let mut counts = [0; 3];
    for _ in 0..3_000 {
        let index = pick(&Balance::TwoChoices, &servers, &Turns::default(), 0, |_, _| true);
        counts[index.unwrap()] += 1;
    }
    assert_eq!(counts[1], 0, "{counts:?}");
    // The lightest wins two of the three pairs.
    assert!((1_800..2_200).contains(&counts[0]), "{counts:?}");
    let only_heavy = pick(&Balance::TwoChoices, &servers, &Turns::default(), 0, |i, _| i == 1);
    assert_eq!(only_heavy, Some(1));
}

#[test]
fn hashing_shares_keys_by_weight() {
    let servers = group(&[(1, 0), (2, 0), (5, 0)]);
    let mut counts = [0u32; 3];
    for number in 0..16_000u32 {
        let key = hash(&number.to_le_bytes());
        counts[pick(&hashing(), &servers, &Turns::default(), key, |_, _| true).unwrap()] += 1;
    }
    for (count, expect) in counts.into_iter().zip([2_000, 4_000, 10_000]) {
        assert!(count.abs_diff(expect) < expect / 10, "{counts:?}");
    }
}

#[test]
fn hashes_are_the_same_in_every_process() {
    // Workers, restarts and neighbours must agree; a new value here moves every key.
    let servers = group(&[(1, 0); 8]);
    let places: Vec<_> = ["/", "/a", "/b", "/c?d=e"]
        .into_iter()
        .map(|path| {
            pick(&hashing(), &servers, &Turns::default(), hash(path.as_bytes()), |_, _| true)
        })
        .map(|index| index.unwrap())
        .collect();
    assert_eq!(places, PLACES);
}

const PLACES: [usize; 4] = [2, 6, 2, 5];

proptest! {
    #[test]
    fn a_server_that_leaves_moves_only_its_own_keys(
        weights in prop::collection::vec(1u32..10, 2..12),
        leaver in any::<prop::sample::Index>(),
        keys in prop::collection::vec(any::<u64>(), 1..200),
    ) {
        let servers = group(&weights.iter().map(|weight| (*weight, 0)).collect::<Vec<_>>());
        let leaver = leaver.index(servers.len());
        let turns = Turns::default();
        for key in keys {
            let before = pick(&hashing(), &servers, &turns, key, |_, _| true).unwrap();
            let after = pick(&hashing(), &servers, &turns, key, |i, _| i != leaver).unwrap();
            prop_assert!(after != leaver);
            if before != leaver {
                prop_assert_eq!(before, after);
            }
        }
    }

    #[test]
    fn only_the_eligible_are_chosen(
        servers in prop::collection::vec((1u32..5, 0usize..9), 1..8),
        mask in any::<u8>(),
        key in any::<u64>(),
    ) {
        let servers = group(&servers);
        let turns = Turns::default();
        let eligible = |index: usize, _: &Fake| mask >> index & 1 == 1;
        let any = (0..servers.len()).any(|index| mask >> index & 1 == 1);
        let all = [Balance::RoundRobin, Balance::LeastConnections, Balance::TwoChoices, hashing()];
        for balance in all {
            match pick(&balance, &servers, &turns, key, eligible) {
                Some(index) => prop_assert!(mask >> index & 1 == 1),
                None => prop_assert!(!any),
            }
        }
    }
}

#[test]
fn keys_come_from_the_request_or_fall_back() {
    let client: Option<IpAddr> = Some("192.0.2.7".parse().unwrap());
    let mapped: Option<IpAddr> = Some("::ffff:192.0.2.7".parse().unwrap());
    let head = |headers: &[(&str, &str)]| {
        let mut request = Request::get("/a?b=c");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    };
    let by_client = hash(&[192, 0, 2, 7]);
    let by_path = hash(b"/a?b=c");
    let header = || HashKey::Header("x-user".into());
    let cookie = || HashKey::Cookie("sid".into());
    type Case = (HashKey, Vec<(&'static str, &'static str)>, Option<IpAddr>, u64);
    let cases: HashMap<&str, Case> = HashMap::from([
        ("path", (HashKey::Path, vec![], client, by_path)),
        ("client", (HashKey::Client, vec![], client, by_client)),
        ("mapped client", (HashKey::Client, vec![], mapped, by_client)),
        ("client on a Unix socket", (HashKey::Client, vec![], None, by_path)),
        ("header", (header(), vec![("x-user", "ann")], client, hash(b"ann"))),
        ("no header", (header(), vec![], client, by_client)),
        ("no header, no client", (header(), vec![], None, by_path)),
        ("cookie", (cookie(), vec![("cookie", "a=b; sid=42;x=y")], client, hash(b"42"))),
        (
            "second line",
            (cookie(), vec![("cookie", "a=b"), ("cookie", "sid=42")], client, hash(b"42")),
        ),
        ("longer name", (cookie(), vec![("cookie", "sidx=42; xsid=1")], client, by_client)),
        ("empty cookie", (cookie(), vec![("cookie", "sid=")], client, by_client)),
    ]);
    for (case, (what, headers, client, expect)) in cases {
        assert_eq!(key(&Balance::Hash(what), &head(&headers), client), expect, "{case}");
    }
    assert_eq!(key(&Balance::RoundRobin, &head(&[]), client), 0);
}
