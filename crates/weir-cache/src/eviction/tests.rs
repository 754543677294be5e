//! The policies on hand-made sequences, and against a straightforward model.

use std::borrow::Borrow;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

#[derive(Clone)]
struct Item(Arc<(char, Usage)>);

impl Item {
    fn new(name: char, size: u64) -> Item {
        Item(Arc::new((name, Usage::new(size, 1))))
    }
}

impl Borrow<Usage> for Item {
    fn borrow(&self) -> &Usage {
        &self.0.1
    }
}

/// Items are named with their size, hits by name; the result is the order of eviction.
fn order(policy: Policy, items: &[(char, u64)], hits: &str) -> String {
    let ranking = Ranking::new(policy);
    let mut queue = Queue::default();
    let items: Vec<Item> = items.iter().map(|&(name, size)| Item::new(name, size)).collect();
    let mut tick = 0;
    for item in &items {
        tick += 1;
        assert!(queue.admit(&ranking, item.clone(), tick));
    }
    for hit in hits.chars() {
        tick += 1;
        let item = items.iter().find(|item| item.0.0 == hit).unwrap();
        ranking.touch(item.borrow(), tick);
    }
    std::iter::from_fn(|| queue.victim(&ranking)).map(|item| item.0.0).collect()
}

#[test]
fn order_of_eviction() {
    use Policy::{Gdsf, Lru};
    let same = [('a', 10), ('b', 10), ('c', 10)];
    let sizes = [('a', 10), ('b', 1000), ('c', 100)];
    for (policy, items, hits, expect) in [
        (Lru, same, "", "abc"),
        (Lru, same, "ab", "cab"),
        (Lru, sizes, "ba", "cba"),
        (Gdsf, same, "", "abc"),
        (Gdsf, same, "aab", "cba"),
        (Gdsf, sizes, "", "bca"),
        // 11 uses of 100 bytes are worth more than one of 10.
        (Gdsf, sizes, "cccccccccc", "bac"),
        // Frequency does not outweigh a hundredfold size.
        (Gdsf, sizes, "bbbbb", "bca"),
    ] {
        assert_eq!(order(policy, &items, hits), expect, "{policy:?} {hits:?}");
    }
}

#[test]
fn gdsf_ages_what_was_once_popular() {
    let ranking = Ranking::new(Policy::Gdsf);
    let mut queue = Queue::default();
    let old = Item::new('o', 10);
    queue.admit(&ranking, old.clone(), 0);
    for _ in 0..20 {
        ranking.touch(old.borrow(), 0);
    }
    // L rises by 0.1 with each item of 10 bytes that goes; 21 / 10 is reached after 20 of them.
    let survived = (0..100)
        .take_while(|_| {
            queue.admit(&ranking, Item::new('n', 10), 0);
            queue.victim(&ranking).unwrap().0.0 == 'n'
        })
        .count();
    assert!((19..=21).contains(&survived), "{survived}");
}

#[test]
fn an_item_removed_before_it_was_admitted_stays_out() {
    let ranking = Ranking::new(Policy::Lru);
    let mut queue = Queue::default();
    let item = Item::new('a', 10);
    assert!(!queue.remove(item.borrow()));
    assert!(!queue.admit(&ranking, item.clone(), 1));
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn a_search_for_a_victim_ends_although_all_priorities_have_risen() {
    let ranking = Ranking::new(Policy::Lru);
    let mut queue = Queue::default();
    let items: Vec<Item> = (0..2000).map(|_| Item::new('x', 1)).collect();
    for item in &items {
        queue.admit(&ranking, item.clone(), 1);
    }
    for item in &items {
        ranking.touch(item.borrow(), 2);
    }
    assert!(queue.victim(&ranking).is_some());
    assert_eq!((queue.len(), queue.bytes()), (1999, 1999));
}

#[test]
fn a_victim_of_a_kind_is_the_least_of_its_kind() {
    let ranking = Ranking::new(Policy::Gdsf);
    let mut queue = Queue::default();
    let items: Vec<Item> =
        [('a', 10), ('B', 900), ('C', 1000), ('d', 2000)].map(|(n, s)| Item::new(n, s)).into();
    for item in &items {
        queue.admit(&ranking, item.clone(), 1);
    }
    ranking.touch(items[2].borrow(), 2);
    let upper = |item: &Item| item.0.0.is_uppercase();
    let victims: Vec<char> =
        std::iter::from_fn(|| queue.victim_where(&ranking, upper)).map(|item| item.0.0).collect();
    assert_eq!(victims, ['B', 'C']);
    assert_eq!((queue.len(), queue.bytes()), (2, 2010));
    // Nothing went in turn, so nothing has aged.
    assert_eq!(ranking.inflation.load(Relaxed), 0);
}

/// Share of hits on a trace: popularity by Zipf's law, sizes from 1 to 1,000 without relation to
/// it, and a cache that holds a twentieth of all bytes.
fn hit_ratio(policy: Policy) -> f64 {
    const ITEMS: usize = 2000;
    const REQUESTS: u64 = 40_000;
    let size = |n: usize| 1 + (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1000;
    let capacity = (0..ITEMS).map(size).sum::<u64>() / 20;
    let weights: Vec<f64> = (0..ITEMS)
        .scan(0.0, |sum, n| {
            *sum += 1.0 / (n + 1) as f64;
            Some(*sum)
        })
        .collect();
    let ranking = Ranking::new(policy);
    let mut queue: Queue<Item> = Queue::default();
    let mut stored: Vec<Option<Item>> = vec![None; ITEMS];
    let (mut hits, mut random) = (0, 1u64);
    for tick in 0..REQUESTS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        let draw = (random >> 11) as f64 / (1u64 << 53) as f64 * weights[ITEMS - 1];
        let n = weights.partition_point(|&sum| sum < draw);
        if let Some(item) = &stored[n] {
            ranking.touch(item.borrow(), tick);
            hits += 1;
            continue;
        }
        while queue.bytes() + size(n) > capacity {
            let victim = queue.victim(&ranking).unwrap();
            let at =
                stored.iter().position(|s| matches!(s, Some(s) if Arc::ptr_eq(&s.0, &victim.0)));
            stored[at.unwrap()] = None;
        }
        let item = Item::new('x', size(n));
        queue.admit(&ranking, item.clone(), tick);
        stored[n] = Some(item);
    }
    f64::from(hits) / REQUESTS as f64
}

#[test]
fn gdsf_hits_more_objects_than_lru() {
    let (gdsf, lru) = (hit_ratio(Policy::Gdsf), hit_ratio(Policy::Lru));
    assert!(gdsf > lru + 0.1, "gdsf {gdsf:.3}, lru {lru:.3}");
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u64),
    Touch(usize),
    Remove(usize),
    Victim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..100).prop_map(Step::Admit),
        4 => any::<usize>().prop_map(Step::Touch),
        1 => any::<usize>().prop_map(Step::Remove),
        2 => Just(Step::Victim),
    ];
    proptest::collection::vec(step, 1..100)
}

proptest! {
    /// The lazy queue evicts exactly what an eager one would: the least (priority, age).
    #[test]
    fn lazy_is_as_good_as_eager(steps in steps(), lru in any::<bool>()) {
        let ranking = Ranking::new(if lru { Policy::Lru } else { Policy::Gdsf });
        let mut queue = Queue::default();
        let mut model: Vec<Item> = Vec::new();
        for (tick, step) in steps.into_iter().enumerate() {
            match step {
                Step::Admit(size) => {
                    let item = Item::new('x', size);
                    queue.admit(&ranking, item.clone(), tick as u64);
                    model.push(item);
                }
                Step::Touch(i) if !model.is_empty() => {
                    ranking.touch(model[i % model.len()].borrow(), tick as u64);
                }
                Step::Remove(i) if !model.is_empty() => {
                    let item = model.swap_remove(i % model.len());
                    prop_assert!(queue.remove(item.borrow()));
                }
                Step::Victim => {
                    let expect = model.iter().map(|item| {
                        let usage: &Usage = item.borrow();
                        (ranking.priority(usage), usage.ticket.load(Relaxed))
                    }).min();
                    let victim = queue.victim(&ranking);
                    prop_assert_eq!(victim.is_some(), expect.is_some());
                    if let (Some(victim), Some(expect)) = (victim, expect) {
                        prop_assert_eq!(ranking.priority(victim.borrow()), expect.0);
                        model.retain(|item| !Arc::ptr_eq(&item.0, &victim.0));
                    }
                }
                _ => {}
            }
            prop_assert_eq!(queue.len(), model.len());
            let bytes: u64 = model.iter().map(|item| item.0.1.size()).sum();
            prop_assert_eq!(queue.bytes(), bytes);
        }
    }
}
