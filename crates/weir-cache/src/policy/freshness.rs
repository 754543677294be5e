//! When a stored response may be used: freshness lifetime, age, and the windows in which it may be
//! used stale (RFC 9111 §4.2, RFC 5861). Computed once when a response is stored; a hit compares.

use std::time::Duration;

use crate::policy::RequestDirectives;

/// When a stored response may be used. All times are milliseconds since the Unix epoch, all spans
/// milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// When the response was received.
    pub response_time_ms: u64,
    /// Age at that time (`corrected_initial_age`, RFC 9111 §4.2.3).
    pub initial_age_ms: u64,
    /// First moment at which the response is stale. 0 with `always_validate`.
    pub fresh_until_ms: u64,
    /// How long it may be used stale while it is validated in the background (RFC 5861 §3).
    pub stale_while_revalidate_ms: u64,
    /// How long it may be used stale when validation fails (RFC 5861 §4).
    pub stale_if_error_ms: u64,
    /// Never used without successful validation (`no-cache`, §5.2.2.4).
    pub always_validate: bool,
    /// Never used stale because a request would take it so (`max-stale`): must-revalidate,
    /// proxy-revalidate, or s-maxage (§4.2.4).
    pub never_stale: bool,
    /// The lifetime was estimated (§4.2.2).
    pub heuristic: bool,
}

impl Freshness {
    /// Fresh for `lifetime_ms` from `now_ms`, for sources that say so themselves.
    pub fn for_lifetime(now_ms: u64, lifetime_ms: u64) -> Freshness {
        Freshness {
            response_time_ms: now_ms,
            fresh_until_ms: now_ms.saturating_add(lifetime_ms),
            ..Freshness::default()
        }
    }

    /// `current_age` (§4.2.3).
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        self.initial_age_ms + now_ms.saturating_sub(self.response_time_ms)
    }

    /// Whether the response may answer a request with these directives now.
    pub fn reuse(&self, now_ms: u64, directives: &RequestDirectives) -> Reuse {
        let fresh = !self.always_validate && now_ms < self.fresh_until_ms;
        let because = match (fresh, self.refused_by(now_ms, directives)) {
            (true, false) => return Reuse::Fresh,
            (_, true) => StaleBecause::Request,
            (false, false) if self.stale_is_accepted(now_ms, directives) => return Reuse::Fresh,
            (false, false) => StaleBecause::Expired,
        };
        let within = |window_ms: u64| {
            !self.always_validate && now_ms < self.fresh_until_ms.saturating_add(window_ms)
        };
        // RFC 5861 §4: a request may extend the window for itself, unless that is forbidden.
        let asked_ms = match self.never_stale {
            true => 0,
            false => directives.stale_if_error.map_or(0, millis),
        };
        Reuse::Stale(Staleness {
            because,
            while_revalidating: because == StaleBecause::Expired
                && within(self.stale_while_revalidate_ms),
            on_error: within(self.stale_if_error_ms.max(asked_ms)),
        })
    }

    /// Whether the request wants a validated or younger response than this (§5.2.1).
    fn refused_by(&self, now_ms: u64, directives: &RequestDirectives) -> bool {
        directives.no_cache
            || directives.max_age.is_some_and(|max| self.age_ms(now_ms) > millis(max))
            || directives
                .min_fresh
                .is_some_and(|min| self.fresh_until_ms.saturating_sub(now_ms) < millis(min))
    }

    /// Whether the request takes the response although it is stale (§5.2.1.2, §4.2.4).
    fn stale_is_accepted(&self, now_ms: u64, directives: &RequestDirectives) -> bool {
        let stale_for_ms = now_ms.saturating_sub(self.fresh_until_ms);
        !self.never_stale
            && !self.always_validate
            && directives.max_stale.is_some_and(|max| stale_for_ms <= millis(max))
    }
}

/// Milliseconds; a span without limit becomes the longest.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a stored response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Without asking the source: it is fresh, or the request takes it stale.
    Fresh,
    /// After validation, or in the circumstances given.
    Stale(Staleness),
}

/// How a response that needs validation may be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// What calls for validation.
    pub because: StaleBecause,
    /// It may answer at once, if a validation is started (stale-while-revalidate).
    pub while_revalidating: bool,
    /// It may answer if the source fails (stale-if-error).
    pub on_error: bool,
}

/// What calls for validation; Cache-Status names it (RFC 9211 §2.2, `fwd=stale`, `fwd=request`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleBecause {
    /// The response's lifetime is over, or it must always be validated.
    Expired,
    /// The request's own directives.
    Request,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN: Freshness = Freshness {
        response_time_ms: 100_000,
        initial_age_ms: 5_000,
        fresh_until_ms: 155_000,
        stale_while_revalidate_ms: 10_000,
        stale_if_error_ms: 60_000,
        always_validate: false,
        never_stale: false,
        heuristic: false,
    };

    #[test]
    fn rfc9111_4_2_3_age() {
        for (now_ms, expect) in [(100_000, 5_000), (101_500, 6_500), (90_000, 5_000)] {
            assert_eq!(BORN.age_ms(now_ms), expect);
        }
    }

    fn stale(because: StaleBecause, while_revalidating: bool, on_error: bool) -> Reuse {
        Reuse::Stale(Staleness { because, while_revalidating, on_error })
    }

    #[test]
    fn rfc9111_4_2_4_and_rfc5861_reuse() {
        use StaleBecause::{Expired, Request};
        let no_cache = Freshness { always_validate: true, ..BORN };
        let must = Freshness { never_stale: true, ..BORN };
        for (freshness, now_s, request, expect) in [
            (BORN, 154, "", Reuse::Fresh),
            (BORN, 155, "", stale(Expired, true, true)),
            (BORN, 164, "", stale(Expired, true, true)),
            (BORN, 165, "", stale(Expired, false, true)),
            (BORN, 214, "", stale(Expired, false, true)),
            (BORN, 215, "", stale(Expired, false, false)),
            (no_cache, 101, "", stale(Expired, false, false)),
            (no_cache, 101, "max-stale", stale(Expired, false, false)),
            // §5.2.1.4 no-cache
            (BORN, 101, "no-cache", stale(Request, false, true)),
            // §5.2.1.1 max-age: the age is 5 s plus the time since
            (BORN, 110, "max-age=15", Reuse::Fresh),
            (BORN, 111, "max-age=15", stale(Request, false, true)),
            (BORN, 101, "max-age=0", stale(Request, false, true)),
            // §5.2.1.3 min-fresh
            (BORN, 145, "min-fresh=10", Reuse::Fresh),
            (BORN, 146, "min-fresh=10", stale(Request, false, true)),
            // §5.2.1.2 max-stale
            (BORN, 165, "max-stale=10", Reuse::Fresh),
            (BORN, 166, "max-stale=10", stale(Expired, false, true)),
            (BORN, 999, "max-stale", Reuse::Fresh),
            (must, 999, "max-stale", stale(Expired, false, false)),
            (BORN, 160, "max-stale=100, max-age=1", stale(Request, false, true)),
            (BORN, 250, "stale-if-error=100", stale(Expired, false, true)),
            (BORN, 255, "stale-if-error=100", stale(Expired, false, false)),
            (must, 250, "stale-if-error=100", stale(Expired, false, false)),
            (no_cache, 101, "stale-if-error=100", stale(Expired, false, false)),
        ] {
            let directives = RequestDirectives::parse(request.as_bytes());
            let got = freshness.reuse(now_s * 1000, &directives);
            assert_eq!(got, expect, "at {now_s} s with {request:?}");
        }
    }
}
