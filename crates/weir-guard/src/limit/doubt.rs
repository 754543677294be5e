//! Requests that the limit does not hold back, while it is not known what the upstream works on at
//! a time: whether they queue there.
//!
//! Looking on does not tell. Where requests take longer by chance, or because they have become
//! slower, more of them are in flight; that looks as if the higher number were the cause. So it is
//! asked: the limit is lowered to half of what is in flight for a moment, and that is compared with
//! what is seen right after it. Not where requests take as long as those that were sent while few
//! were in flight.

use super::FEW;
use super::baseline::Measured;

/// What is higher than usual by so many standard errors, and this much, may be a queue.
const HIGHER: f64 = 3.5;
const HIGHER_MIN: f64 = 0.15;
/// Cohorts between two questions.
const REST: u32 = 8;
/// What is so much higher, as a logarithm, is asked about at once: half as much again.
const MUCH_HIGHER: f64 = 0.4;
/// How many more may be in flight after a question than before it.
const MORE: f64 = 1.25;
/// Weight of a new latency that is lower than usual, or hardly higher.
const SHARE: f64 = 1.0 / 8.0;

/// Answers to requests among few after which it is known how long they take, and the most that
/// count.
const QUIET_MIN: u32 = 8;
const QUIET_MAX: u32 = 64;

/// Whether it has been asked, and for what.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// The latency for which it has been asked, or which nobody doubts; as a logarithm.
    usual: Option<f64>,
    state: State,
    /// Requests in flight when it was asked.
    in_flight: f64,
    quiet: Quiet,
}

/// How long answers took to requests that were sent while few were in flight.
#[derive(Debug, Default)]
struct Quiet {
    count: u32,
    mean_ns: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ready,
    /// The limit is lowered.
    Asking,
    /// What follows is to be compared.
    Asked,
    Resting(u32),
}

impl Doubt {
    /// An answer to a request that was sent while few were in flight.
    pub(super) fn quiet(&mut self, latency_ns: u64) {
        let Quiet { count, mean_ns } = &mut self.quiet;
        *count = (*count + 1).min(QUIET_MAX);
        *mean_ns += (latency_ns as f64 - *mean_ns) / f64::from(*count);
    }

    /// A measurement of requests that were not held back, and took so long as a mean. Whether the
    /// limit is to be lowered now.
    pub(super) fn asks(&mut self, in_flight: f64, measured: Measured, mean_ns: u64) -> bool {
        match self.state {
            State::Asking => {
                // Its time was too short, or traffic has ended meanwhile.
                self.state = State::Ready;
            }
            State::Asked => return false,
            State::Resting(0) => self.state = State::Ready,
            State::Resting(left) => self.state = State::Resting(left - 1),
            State::Ready => {}
        }
        let Some(usual) = self.usual.as_mut() else {
            let is_usual = mean_ns as f64 <= (1.0 + HIGHER_MIN) * self.quiet.mean_ns;
            if is_usual && self.quiet.count >= QUIET_MIN {
                self.usual = Some(measured.latency);
                return false;
            }
            return self.ask_if(in_flight);
        };
        let higher = measured.latency - *usual;
        if higher > MUCH_HIGHER && matches!(self.state, State::Resting(_)) {
            // Another load than the one it was asked about.
            self.state = State::Ready;
        }
        if higher <= HIGHER_MIN || higher <= HIGHER * measured.error {
            *usual += SHARE * higher.min(HIGHER_MIN / 4.0);
            return false;
        }
        self.ask_if(in_flight)
    }

    /// Until it has been compared: how many may be in flight. Whoever had to wait would come all at
    /// once otherwise, and be the overload that was looked for.
    pub(super) fn most(&self) -> Option<f64> {
        (self.state == State::Asked).then_some(self.in_flight * MORE)
    }

    /// Takes the measurement to compare with, if it is this one.
    pub(super) fn compares(&mut self, measured: Measured) -> bool {
        let compares = self.state == State::Asked;
        if compares {
            self.state = State::Resting(REST);
            self.usual = Some(measured.latency);
        }
        compares
    }

    /// Asks and compares nothing. Whether something was to be compared.
    pub(super) fn give_up(&mut self) -> bool {
        let state = self.state;
        if matches!(state, State::Asking | State::Asked) {
            self.state = State::Resting(REST);
        }
        state == State::Asked
    }

    pub(super) fn is_asking(&self) -> bool {
        self.state == State::Asking
    }

    /// The limit was lowered. Whether that was by a question.
    pub(super) fn is_answered(&mut self) -> bool {
        let is_asking = self.state == State::Asking;
        if is_asking {
            self.state = State::Asked;
        }
        is_asking
    }

    fn ask_if(&mut self, in_flight: f64) -> bool {
        if in_flight < f64::from(FEW) || self.state != State::Ready {
            return false;
        }
        self.state = State::Asking;
        self.in_flight = in_flight;
        true
    }
}
