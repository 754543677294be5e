//! Who leads, who follows, and what followers get.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use weir_arena::Arena;

use super::*;
use crate::eviction::Policy;
use crate::key::KeyRef;
use crate::limits::{FLIGHTS_PER_KEY_MAX, PASS_LIFETIME_MS};
use crate::object::Head;
use crate::policy::{Freshened, Freshness, RequestDirectives};
use crate::selectors::Selectors;
use crate::store::{Cache, Lookup, Mark, PurgeMode, Settings};
use crate::test_support::headers;

const KEY: KeyRef<'_> = KeyRef { scope: 1, authority: "a.example", path_and_query: "/" };

fn cache() -> Cache {
    let settings =
        Settings { memory_bytes: 1 << 20, object_bytes_max: 1 << 20, policy: Policy::Gdsf };
    Cache::new(settings, Arena::new(1 << 20).unwrap())
}

fn collapse_at(cache: &Cache, request: &str, now_ms: u64) -> Collapse {
    cache.collapse(&KEY, &headers(request), &RequestDirectives::default(), now_ms)
}

fn lead(cache: &Cache, request: &str) -> Lead {
    match collapse_at(cache, request, 0) {
        Collapse::Lead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

fn follow(cache: &Cache, request: &str) -> Follow {
    match collapse_at(cache, request, 0) {
        Collapse::Follow(follow) => follow,
        other => panic!("{other:?}"),
    }
}

/// What a follower gets. A follower that is not released is a failure of the test, not a hang.
fn wait(follow: Follow, request: &str) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let request = headers(request);
    let limit = Duration::from_secs(10);
    runtime
        .block_on(async { tokio::time::timeout(limit, follow.wait(&request)).await })
        .expect("released")
}

fn head_for(vary: &str, request: &str) -> Head {
    let selectors = Selectors::new(&headers(vary), &headers(request)).unwrap();
    let freshness = Freshness::for_lifetime(0, 1000);
    Head { selectors, ..Head::new(StatusCode::OK, HeaderMap::new(), freshness) }
}

fn body(text: &'static str) -> crate::body::Body {
    Bytes::from_static(text.as_bytes()).into()
}

fn started(lead: Lead, head: Head) -> (FillWriter, FillReader) {
    match lead.start(head, None) {
        Started::Fill { writer, reader } => (writer, reader),
        Started::Pass => panic!("passed"),
    }
}

#[test]
fn one_leads_and_the_others_get_its_body_while_it_comes() {
    let cache = cache();
    let lead = lead(&cache, "");
    let early = follow(&cache, "");
    let (mut writer, _reader) = started(lead, head_for("", ""));
    let late = follow(&cache, "");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(writer.write(Bytes::from_static(b"abc"))).unwrap();
    for follow in [early, late] {
        let Outcome::Fill(fill) = wait(follow, "") else { panic!("no fill") };
        assert_eq!(fill.written(), 3);
        assert!(fill.reader().is_ok());
    }
    writer.finish(None).unwrap();
    let found = collapse_at(&cache, "", 0);
    assert!(matches!(found, Collapse::Hit(_)), "{found:?}");
    let stats = cache.stats();
    assert_eq!((stats.collapsed, stats.flights, stats.fills), (2, 0, 1));
}

#[test]
fn a_leader_without_an_answer_releases_its_followers() {
    type End = fn(Lead);
    let ends: [(&str, End, &str); 4] = [
        ("dropped", drop, "failed 502"),
        (
            "failed",
            |lead| lead.fail(Failure::new(StatusCode::GATEWAY_TIMEOUT, "slow")),
            "failed 504",
        ),
        ("passed", |lead| lead.pass(0), "pass"),
        ("started and dropped", |lead| drop(started(lead, head_for("", ""))), "fill"),
    ];
    for (name, end, expect) in ends {
        let cache = cache();
        let lead = lead(&cache, "");
        let follow = follow(&cache, "");
        end(lead);
        let got = match wait(follow, "") {
            Outcome::Failed(failure) => format!("failed {}", failure.status.as_u16()),
            Outcome::Pass(_) => "pass".into(),
            Outcome::Fill(_) => "fill".into(),
            other => format!("{other:?}"),
        };
        assert_eq!(got, expect, "{name}");
        assert_eq!(cache.stats().flights, 0, "{name}");
    }
}

#[test]
fn after_a_pass_requests_are_not_collapsed_for_a_while() {
    let cache = cache();
    lead(&cache, "").pass(0);
    assert!(matches!(collapse_at(&cache, "", PASS_LIFETIME_MS - 1), Collapse::Pass(_)));
    assert!(matches!(collapse_at(&cache, "", PASS_LIFETIME_MS), Collapse::Lead(_)));
}

/// The mark that an answer which cannot be stored leaves.
fn marked(cache: &Cache, request: &str, now_ms: u64) -> Mark {
    lead(cache, request).pass(now_ms);
    match collapse_at(cache, request, now_ms) {
        Collapse::Pass(Some(mark)) => mark,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_answer_under_a_mark_that_can_be_stored_is() {
    let cache = cache();
    let mark = marked(&cache, "", 0);
    let first = cache.lead_after_all(mark, &KEY).expect("first");
    assert!(cache.lead_after_all(mark, &KEY).is_none(), "twice");
    // The mark is gone: who comes now waits for it, and reads along.
    let early = follow(&cache, "");
    let (mut writer, _reader) = started(first, head_for("", ""));
    let late = follow(&cache, "");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(writer.write(Bytes::from_static(b"abc"))).unwrap();
    assert!(matches!(writer.finish(None), Ok(Finished::Stored(_))));
    for follow in [early, late] {
        assert!(matches!(wait(follow, ""), Outcome::Fill(_)));
    }
    assert!(matches!(collapse_at(&cache, "", 0), Collapse::Hit(_)));
    assert_eq!(cache.stats().flights, 0);
}

#[test]
fn followers_pass_under_the_mark_of_their_leader() {
    let cache = cache();
    let lead = lead(&cache, "");
    let follow = follow(&cache, "");
    lead.pass(0);
    let Outcome::Pass(mark) = wait(follow, "") else { panic!("no pass") };
    // Its time being over says nothing about what was asked for under it.
    assert!(matches!(collapse_at(&cache, "", PASS_LIFETIME_MS), Collapse::Lead(_)));
    assert!(cache.lead_after_all(mark, &KEY).is_some());
}

#[test]
fn a_mark_that_was_taken_away_gives_no_right() {
    type Take = fn(&Cache);
    let takes: [(&str, Take); 7] = [
        ("purge", |cache| {
            _ = cache.purge(&KEY, PurgeMode::Remove);
        }),
        ("soft purge", |cache| {
            _ = cache.purge(&KEY, PurgeMode::Expire { now_ms: 1 });
        }),
        ("scope", |cache| {
            _ = cache.purge_scope(KEY.scope, PurgeMode::Remove);
        }),
        ("soft scope", |cache| {
            _ = cache.purge_scope(1, PurgeMode::Expire { now_ms: 1 });
        }),
        ("all", |cache| {
            _ = cache.purge_all(PurgeMode::Remove);
        }),
        ("soft all", |cache| {
            _ = cache.purge_all(PurgeMode::Expire { now_ms: 1 });
        }),
        ("stored", |cache| {
            _ = cache.insert(&KEY, head_for("vary: x", ""), body("a"), None);
        }),
    ];
    for request in ["", "authorization: a"] {
        for (name, take) in takes {
            let cache = cache();
            let mark = marked(&cache, request, 0);
            take(&cache);
            assert!(cache.lead_after_all(mark, &KEY).is_none(), "{name}, {request:?}");
            // A later mark is another one.
            let late = 5000;
            let Collapse::Lead(lead) = collapse_at(&cache, request, late) else { panic!() };
            lead.pass(late);
            assert!(cache.lead_after_all(mark, &KEY).is_none(), "{name}, {request:?}");
            let again = collapse_at(&cache, request, late);
            let Collapse::Pass(Some(mark)) = again else { panic!("{again:?}") };
            assert!(cache.lead_after_all(mark, &KEY).is_some(), "{name}, {request:?}");
        }
    }
}

#[test]
fn a_mark_that_is_renewed_is_the_same() {
    let cache = cache();
    let mark = marked(&cache, "", 0);
    let Collapse::Lead(other) = collapse_at(&cache, "", PASS_LIFETIME_MS) else { panic!() };
    other.pass(PASS_LIFETIME_MS);
    assert!(cache.lead_after_all(mark, &KEY).is_some());
}

#[test]
fn a_purge_reaches_a_fill_under_a_mark() {
    let cache = cache();
    let mark = marked(&cache, "", 0);
    let lead = cache.lead_after_all(mark, &KEY).unwrap();
    let (writer, _reader) = started(lead, head_for("", ""));
    cache.purge(&KEY, PurgeMode::Remove);
    assert!(matches!(writer.finish(None), Ok(Finished::NotStored(NotStored::Purged))));
    assert!(matches!(collapse_at(&cache, "", 0), Collapse::Lead(_)));
}

/// However a purge and the answers under a mark meet, nothing asked for before it is left.
#[test]
fn no_fill_under_a_mark_slips_through_a_purge() {
    for round in 0..500 {
        let cache = cache();
        let mark = marked(&cache, "", 0);
        let barrier = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    if let Some(lead) = cache.lead_after_all(mark, &KEY) {
                        lead.complete(head_for("", ""), body("old"), None);
                    }
                });
            }
            scope.spawn(|| {
                barrier.wait();
                match round % 2 {
                    0 => cache.purge(&KEY, PurgeMode::Remove),
                    _ => cache.purge_all(PurgeMode::Remove),
                }
            });
        });
        let stats = cache.stats();
        assert_eq!((stats.objects, stats.flights), (0, 0), "round {round}");
    }
}

#[test]
fn requests_that_confine_their_response_lead_only_each_other() {
    let cache = cache();
    let confined = lead(&cache, "authorization: a");
    follow(&cache, "authorization: b");
    let plain = lead(&cache, "");
    follow(&cache, "");
    confined.pass(0);
    drop(plain);
    assert!(matches!(collapse_at(&cache, "authorization: a", 0), Collapse::Pass(_)));
    lead(&cache, "").pass(0);
    assert!(matches!(collapse_at(&cache, "", 0), Collapse::Pass(_)));
    // Something stored ends both.
    cache.insert(&KEY, head_for("", ""), body("body"), None);
    let late = 5000;
    for request in ["", "authorization: a"] {
        assert!(matches!(collapse_at(&cache, request, late), Collapse::Lead(_)), "{request:?}");
    }
}

#[test]
fn a_follower_of_another_variant_is_told_to_retry() {
    let cache = cache();
    let first = lead(&cache, "accept: a");
    // Nothing is known of Vary yet.
    let same = follow(&cache, "accept: a");
    let other = follow(&cache, "accept: b");
    let (writer, _reader) = started(first, head_for("vary: accept", "accept: a"));
    assert!(matches!(wait(same, "accept: a"), Outcome::Fill(_)));
    assert!(matches!(wait(other, "accept: b"), Outcome::Retry));
    // Now it is: b leads its own flight, c does not wait for it, a joins the first.
    let _second = lead(&cache, "accept: b");
    let _third = lead(&cache, "accept: c");
    follow(&cache, "accept: a");
    follow(&cache, "accept: b");
    writer.finish(None).unwrap();
    // What is stored tells as well.
    let _fourth = lead(&cache, "accept: d");
    let _fifth = lead(&cache, "accept: e");
}

#[test]
fn one_validation_at_a_time_refreshes_for_all() {
    let cache = cache();
    let (old, _) = cache.insert(&KEY, head_for("", ""), body("body"), None);
    let plain = RequestDirectives::default();
    let late = 5000;
    assert!(matches!(cache.lookup(&KEY, &HeaderMap::new(), &plain, late), Lookup::Stale(_)));
    let Collapse::Lead(lead) = collapse_at(&cache, "", late) else { panic!("no lead") };
    let Collapse::Follow(follow) = collapse_at(&cache, "", late) else { panic!("no follow") };
    let freshness = Freshness::for_lifetime(late, 1000);
    let head = Head { freshness, ..head_for("", "") };
    let new = lead.refreshed(&old, Freshened { head, storable: true });
    assert_eq!(new.body().chunks()[0].as_ptr(), old.body().chunks()[0].as_ptr());
    let Outcome::Object(got) = wait(follow, "") else { panic!("no object") };
    assert!(Arc::ptr_eq(&got, &new));
    let found = cache.lookup(&KEY, &HeaderMap::new(), &plain, late);
    assert!(matches!(&found, Lookup::Fresh(object) if Arc::ptr_eq(object, &new)), "{found:?}");
    assert_eq!(cache.stats().objects, 1);
}

#[test]
fn a_304_that_forbids_storing_is_for_the_leader_alone() {
    let cache = cache();
    let (old, _) = cache.insert(&KEY, head_for("", ""), body("body"), None);
    let Collapse::Lead(lead) = collapse_at(&cache, "", 5000) else { panic!("no lead") };
    let Collapse::Follow(follow) = collapse_at(&cache, "", 5000) else { panic!("no follow") };
    let own = lead.refreshed(&old, Freshened { head: head_for("", ""), storable: false });
    assert_eq!(own.body().chunks().concat(), b"body");
    assert!(matches!(wait(follow, ""), Outcome::Pass(_)));
    let stats = cache.stats();
    assert_eq!((stats.objects, stats.bytes, stats.flights), (0, 0, 0));
}

#[test]
fn a_stale_object_may_be_released_without_being_stored() {
    let cache = cache();
    let (old, _) = cache.insert(&KEY, head_for("", ""), body("body"), None);
    let Collapse::Lead(lead) = collapse_at(&cache, "", 5000) else { panic!("no lead") };
    let Collapse::Follow(follow) = collapse_at(&cache, "", 5000) else { panic!("no follow") };
    lead.release(Arc::clone(&old));
    assert!(matches!(wait(follow, ""), Outcome::Object(object) if Arc::ptr_eq(&object, &old)));
    assert_eq!(cache.stats().inserts, 1);
}

#[test]
fn flights_of_a_key_are_bounded() {
    let cache = cache();
    let vary = |n: usize| format!("x: {n}");
    cache.insert(&KEY, head_for("vary: x", "x: none"), body(""), None);
    let leads: Vec<Lead> = (0..FLIGHTS_PER_KEY_MAX).map(|n| lead(&cache, &vary(n))).collect();
    assert!(matches!(collapse_at(&cache, &vary(999), 0), Collapse::Pass(_)));
    drop(leads);
    assert!(matches!(collapse_at(&cache, &vary(999), 0), Collapse::Lead(_)));
}

/// Many threads want the same key at once: one asks, and all get the same object.
#[test]
fn threads_share_one_answer() {
    let cache = cache();
    let asked = std::sync::atomic::AtomicU32::new(0);
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                let object = match collapse_at(&cache, "", 0) {
                    Collapse::Lead(lead) => {
                        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::yield_now();
                        lead.complete(head_for("", ""), body("one"), None)
                    }
                    Collapse::Follow(follow) => match wait(follow, "") {
                        Outcome::Object(object) => object,
                        other => panic!("{other:?}"),
                    },
                    Collapse::Hit(object) => object,
                    Collapse::Pass(_) => panic!("pass"),
                };
                assert_eq!(object.body().chunks().concat(), b"one");
            });
        }
    });
    assert_eq!(asked.into_inner(), 1);
}

#[test]
fn who_steps_down_leaves_the_lead_to_a_follower() {
    let cache = cache();
    let lead = lead(&cache, "");
    let (one, other) = (follow(&cache, ""), follow(&cache, ""));
    lead.step_down();
    assert!(matches!(wait(one, ""), Outcome::Retry));
    let next = self::lead(&cache, "");
    assert!(matches!(wait(other, ""), Outcome::Retry));
    let _again = follow(&cache, "");
    drop(next);
}

/// What the leader sees is the most that anybody has said, whether it waited by then or not.
#[test]
fn followers_urge_the_leader() {
    let cache = cache();
    let lead = lead(&cache, "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let hears_nothing = |than| {
        let limit = Duration::from_millis(20);
        let waits = async { tokio::time::timeout(limit, lead.more_urgent(than)).await };
        runtime.block_on(waits).is_err()
    };
    assert!(hears_nothing(0));
    let followers: Vec<Follow> = (0..3).map(|_| follow(&cache, "")).collect();
    for (follow, urgency) in followers.iter().zip([3, 9, 5]) {
        follow.urge(urgency);
    }
    assert_eq!(runtime.block_on(lead.more_urgent(2)), 9);
    assert!(hears_nothing(9));
    let heard = runtime.block_on(async {
        let later = async {
            tokio::task::yield_now().await;
            follow(&cache, "").urge(10);
        };
        tokio::join!(lead.more_urgent(9), later).0
    });
    assert_eq!(heard, 10);
    lead.step_down();
    for follow in followers {
        assert!(matches!(wait(follow, ""), Outcome::Retry));
    }
}
