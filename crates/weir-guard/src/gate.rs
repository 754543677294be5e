//! One upstream's gate: how many requests may be in flight to it, and who waits for a place. Joins
//! [`crate::limit`] and [`crate::queue`]; a mutex around it and the timer are the caller's.

mod anticipation;
mod counts;
mod leftovers;
mod reserve;
mod timeline;
mod trial;

pub use self::counts::{ClassCounts, DELAY_BOUNDS_NS, DelayHistogram};

use std::time::Duration;

use weir_config::Guard;

use self::anticipation::Anticipation;
use self::leftovers::Leftovers;
use self::reserve::Reserve;
use self::timeline::Timeline;
use self::trial::Trial;
use crate::class::Heir;
use crate::limit::{AdaptiveLimit, LimitSettings, Outcome, Sent};
use crate::queue::{ClassLimits, ClassQueue, Pushed, Shed, ShedReason, Ticket, Waited};

/// What a gate is made by.
#[derive(Clone, Debug, PartialEq)]
pub struct GateSettings {
    /// Classes, the one that goes first in front; [`crate::CLASSES_MAX`] of them at most.
    pub classes: Vec<ClassLimits>,
    /// Requests in flight.
    pub limit: LimitSettings,
    /// Requests that have had to wait for so long without a break are overload, in nanoseconds.
    pub interval_ns: u64,
}

impl GateSettings {
    /// By the `guard` block. Classes keep its order, so that a class's index is the same in both.
    pub fn new(guard: &Guard, limit: LimitSettings) -> GateSettings {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        GateSettings {
            classes: guard.classes.iter().map(ClassLimits::from).collect(),
            limit,
            interval_ns: ns(guard.interval),
        }
    }
}

/// A place in flight. Goes back by [`Gate::done`], whatever happened; otherwise it is lost.
#[must_use = "a place that is not handed to `Gate::done` is lost to the gate"]
#[derive(Debug, PartialEq, Eq)]
pub struct Place(Sent);

impl Place {
    /// The class it was given for.
    pub fn class(&self) -> usize {
        self.0.class
    }
}

/// The outcome of [`Gate::arrive`].
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Go.
    Run(Place),
    /// Wait until the entry comes out in [`Due`], or cancel it by the ticket.
    Wait(Ticket),
    /// Go away.
    Shed(ShedReason),
}

/// What is to be done outside after a call. The caller keeps one, drains it after each call, and
/// so spares allocations.
#[derive(Debug)]
pub struct Due<T> {
    /// Entries that waited and run now.
    pub start: Vec<(Waited<T>, Place)>,
    /// Entries that waited and are refused now.
    pub shed: Vec<Shed<T>>,
}

impl<T> Default for Due<T> {
    fn default() -> Due<T> {
        Due { start: Vec::new(), shed: Vec::new() }
    }
}

impl<T> Due<T> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.start.is_empty() && self.shed.is_empty()
    }
}

/// Admission to one upstream.
///
/// Every request that arrives ends exactly once: it runs, at once or out of [`Due`]; it is refused,
/// likewise; or it is cancelled. It runs only while fewer are in flight than the limit says, or, in
/// a turn of the highest class, no more than the headroom beyond it. One of a higher class that
/// waits goes before it, except that classes have their shares of the turns, those beyond the
/// limit included.
///
/// Times are nanoseconds of a clock that should not go back; if it does, time stands still for one
/// call.
#[derive(Debug)]
pub struct Gate<T> {
    timeline: Timeline,
    limit: AdaptiveLimit,
    queue: ClassQueue<T>,
    in_flight: u32,
    /// Among those in flight.
    leftovers: Leftovers,
    interval_ns: u64,
    counts: Vec<ClassCounts>,
    strain: Strain,
    trial: Trial,
    reserve: Reserve,
    anticipation: Anticipation,
}

impl<T> Gate<T> {
    /// A gate that nothing has passed yet.
    pub fn new(now_ns: u64, settings: &GateSettings) -> Gate<T> {
        let GateSettings { classes, limit, interval_ns } = settings;
        let queue = ClassQueue::new(classes);
        let limit = AdaptiveLimit::new(limit);
        Gate {
            timeline: Timeline::new(now_ns),
            trial: Trial::new(limit.limit()),
            limit,
            in_flight: 0,
            leftovers: Leftovers::default(),
            interval_ns: *interval_ns,
            counts: vec![ClassCounts::default(); queue.classes()],
            queue,
            strain: Strain::default(),
            reserve: Reserve::default(),
            anticipation: Anticipation::default(),
        }
    }

    /// A request of a class comes. `make` is called if it has to wait. Others that are refused for
    /// its sake, or whose time has come, are added to `due`.
    pub fn arrive(
        &mut self,
        now_ns: u64,
        class: usize,
        make: impl FnOnce() -> T,
        due: &mut Due<T>,
    ) -> Arrival {
        let now_ns = self.timeline.advance(now_ns);
        let class = class.min(self.counts.len() - 1);
        self.counts[class].offered += 1;
        if self.queue.is_empty() {
            // Otherwise the places go to those who wait, and this one may be before them.
            self.forget_leftovers(now_ns);
        }
        self.reserve.came(now_ns, class);
        self.move_on(now_ns, due);
        // Not before: the place that is kept would go to somebody who waits.
        self.anticipation.came(now_ns, class);
        // Whoever waits longer, and is not of a lower class, goes first.
        if self.queue.first_class().is_none_or(|first| class < first) {
            while self.in_flight < self.places(now_ns, class) {
                match self.queue.pop_before(now_ns, class) {
                    Some(waited) => self.start(now_ns, waited, due),
                    None => return Arrival::Run(self.admit(now_ns, class, 0)),
                }
            }
        }
        if self.limit.asks_until_ns().is_none() {
            self.strain.begin(now_ns);
        }
        let ticket = match self.queue.push(now_ns, class, make) {
            Pushed::Waits(ticket) => ticket,
            Pushed::InsteadOf(ticket, shed) => {
                self.count_shed(class, shed.reason);
                due.shed.push(shed);
                ticket
            }
            Pushed::Refused => {
                self.count_shed(class, ShedReason::Full);
                return Arrival::Shed(ShedReason::Full);
            }
        };
        self.counts[class].queued += 1;
        Arrival::Wait(ticket)
    }

    /// A request is over. `latency_ns` is how long the upstream took to begin its answer, as far
    /// as it answered; how long it had until then, if its client left. In the latter case the place
    /// is taken for as long as the upstream probably works on.
    pub fn done(
        &mut self,
        now_ns: u64,
        place: Place,
        latency_ns: u64,
        outcome: Outcome,
        due: &mut Due<T>,
    ) {
        let now_ns = self.timeline.advance(now_ns);
        let Place(sent) = place;
        match outcome {
            Outcome::Left => self.leftovers.add(now_ns, self.trial.latency_ns().max(latency_ns)),
            _ => self.in_flight = self.in_flight.saturating_sub(1),
        }
        if outcome == Outcome::Answered {
            self.trial.answered(sent.at_ns, latency_ns);
            if self.reserve.is_for(now_ns, sent.class) && self.queue.class_len(sent.class) == 0 {
                self.anticipation.answered(now_ns, sent.class, self.trial.latency_ns());
            }
        }
        self.limit.finished(now_ns, &sent, latency_ns, outcome);
        self.forget_leftovers(now_ns);
        self.move_on(now_ns, due);
    }

    /// A waiting request's client is gone. `None` if it waits no more: then it comes, or has come,
    /// out in [`Due`].
    pub fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> Option<T> {
        let now_ns = self.timeline.advance(now_ns);
        let waited = self.queue.cancel(now_ns, ticket)?;
        self.counts[waited.class].cancelled += 1;
        Some(waited.item)
    }

    /// Somebody of a higher class waits for the same as one who waits here: it goes on waiting as
    /// one of that class, like one that comes now. Whether it is of that class now, in `due`
    /// perhaps; not if it waits no more, or in a class as high, or if no more may wait there.
    pub fn raise(&mut self, now_ns: u64, ticket: Ticket, class: usize, due: &mut Due<T>) -> bool {
        let now_ns = self.timeline.advance(now_ns);
        let Some(from) = self.queue.class_of(ticket) else { return false };
        let shed_before = due.shed.len();
        let is_raised = self.queue.raise(now_ns, ticket, class, &mut due.shed);
        if is_raised {
            self.counts[from].raised += 1;
            self.counts[class].wait_here(1);
            self.reserve.came(now_ns, class);
        }
        self.count_shed_since(shed_before, due);
        self.move_on(now_ns, due);
        is_raised
    }

    /// Time has passed: sheds whoever has waited too long. To be called at
    /// [`Gate::next_deadline`]; more often does no harm.
    pub fn tick(&mut self, now_ns: u64, due: &mut Due<T>) {
        let now_ns = self.timeline.advance(now_ns);
        self.limit.tick(now_ns);
        if !self.queue.is_empty() && self.limit.asks_until_ns().is_some_and(|end| end <= now_ns) {
            self.limit.stop_asking(now_ns);
        }
        self.try_more(now_ns);
        self.forget_leftovers(now_ns);
        self.move_on(now_ns, due);
    }

    /// When [`Gate::tick`] is to be called next, on the clock that the gate was told. `None` while
    /// nobody waits.
    pub fn next_deadline(&self) -> Option<u64> {
        let deadline_ns = self.queue.next_deadline()?;
        let over_ns = self.leftovers.next_ns().unwrap_or(u64::MAX);
        let asked_ns = self.limit.asks_until_ns().unwrap_or(u64::MAX);
        let kept_ns = self.anticipation.next_ns().unwrap_or(u64::MAX);
        let next_ns = deadline_ns.min(over_ns).min(asked_ns).min(kept_ns);
        Some(self.timeline.clock_at(next_ns))
    }

    /// New settings for the same classes. What was measured stays, unless the limit's settings
    /// change.
    pub fn configure(&mut self, now_ns: u64, settings: &GateSettings, due: &mut Due<T>) {
        let now_ns = self.timeline.advance(now_ns);
        let GateSettings { classes, limit, interval_ns } = settings;
        self.queue.configure(classes);
        self.interval_ns = *interval_ns;
        if self.limit.settings() != limit {
            self.limit = AdaptiveLimit::new(limit);
            self.trial = Trial::new(self.limit.limit());
        }
        self.move_on(now_ns, due);
    }

    /// Other classes, and with them other settings. `heirs` says what becomes of the classes
    /// before, by index: counts, measurements and whoever waits go with them. Of a class that is
    /// gone only the latter stay: they count as if they had come to the other one.
    pub fn reclass(
        &mut self,
        now_ns: u64,
        settings: &GateSettings,
        heirs: &[Heir],
        due: &mut Due<T>,
    ) {
        let waited: Vec<usize> = (0..self.counts.len()).map(|it| self.class_waiting(it)).collect();
        self.queue.reclass(&settings.classes, heirs);
        let last = self.queue.classes() - 1;
        let mut counts = vec![ClassCounts::default(); last + 1];
        for ((was, waited), heir) in self.counts.iter().zip(waited).zip(heirs) {
            let counts = &mut counts[heir.rank().min(last)];
            match heir {
                Heir::Is(_) => counts.add(was),
                Heir::Joins(_) => counts.wait_here(waited as u64),
            }
        }
        self.counts = counts;
        self.reserve.reclass(heirs);
        // Who comes back is soon learned anew.
        self.anticipation = Anticipation::default();
        self.limit.reclass(self.timeline.advance(now_ns), heirs);
        self.configure(now_ns, settings, due);
    }

    /// Requests that run, [`Gate::left_behind`] included.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests that the upstream works on, as far as one can tell, though their clients have gone.
    pub fn left_behind(&self) -> usize {
        self.leftovers.len()
    }

    /// Requests that may run. May fall below [`Gate::in_flight`], which then follows as they end.
    pub fn limit(&self) -> u32 {
        self.limit.limit()
    }

    /// How many more may, of the highest class of those that are there.
    pub fn headroom(&self) -> u32 {
        self.limit.headroom()
    }

    /// How the limit is found, for status pages.
    pub fn adaptive_limit(&self) -> &AdaptiveLimit {
        &self.limit
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Requests of a class that wait.
    pub fn class_waiting(&self, class: usize) -> usize {
        self.queue.class_len(class)
    }

    /// Whether requests have had to wait, or be refused, for an interval without a break. Ends when
    /// for an interval there were no more than short breaks: half an interval at most.
    pub fn is_overloaded(&mut self, now_ns: u64) -> bool {
        let now_ns = self.timeline.advance(now_ns);
        self.strain.is_overloaded(now_ns, self.interval_ns)
    }

    /// Counts by class.
    pub fn counts(&self) -> &[ClassCounts] {
        &self.counts
    }

    /// Raises the limit where it makes people wait for no known reason.
    fn try_more(&mut self, now_ns: u64) {
        let limit = self.limit.limit();
        let is_full = self.in_flight >= limit;
        let stand = trial::Stand {
            limit,
            waited_ns: if is_full { self.queue.longest_wait_ns(now_ns) } else { 0 },
            is_known: self.limit.is_known(),
            is_probing: self.limit.is_probing(),
        };
        self.limit.let_probe(!self.trial.is_on(&stand));
        match self.trial.tick(now_ns, &stand) {
            Some(trial::Change::Double) => self.limit.set(limit.saturating_mul(2)),
            Some(trial::Change::Back(limit)) => self.limit.set(limit),
            None => {}
        }
    }

    /// Frees the places of those who left, as far as the upstream is done with them.
    fn forget_leftovers(&mut self, now_ns: u64) {
        self.in_flight = self.in_flight.saturating_sub(self.leftovers.take_over(now_ns));
    }

    /// Sheds and starts whatever is due.
    fn move_on(&mut self, now_ns: u64, due: &mut Due<T>) {
        let shed_before = due.shed.len();
        self.anticipation.give_up(now_ns);
        if !self.queue.is_empty() {
            self.queue.expire(now_ns, &mut due.shed);
        }
        loop {
            let Some(class) = self.queue.first_class() else {
                if self.in_flight < self.limit.limit() {
                    self.strain.end(now_ns, self.interval_ns);
                }
                break;
            };
            if self.in_flight >= self.places(now_ns, class) {
                break;
            }
            let Some(waited) = self.queue.pop(now_ns, &mut due.shed) else { break };
            self.start(now_ns, waited, due);
        }
        self.count_shed_since(shed_before, due);
    }

    fn count_shed_since(&mut self, shed_before: usize, due: &Due<T>) {
        for Shed { waited, reason } in &due.shed[shed_before..] {
            self.count_shed(waited.class, *reason);
        }
    }

    /// How many may be in flight when one of a class starts, and with it.
    fn places(&self, now_ns: u64, class: usize) -> u32 {
        let limit = self.limit.limit().saturating_sub(self.anticipation.kept_from(class));
        match self.reserve.is_for(now_ns, class) {
            true => limit.saturating_add(self.limit.headroom()),
            false => limit,
        }
    }

    fn start(&mut self, now_ns: u64, waited: Waited<T>, due: &mut Due<T>) {
        let place = self.admit(now_ns, waited.class, waited.waited_ns);
        due.start.push((waited, place));
    }

    fn admit(&mut self, now_ns: u64, class: usize, waited_ns: u64) -> Place {
        self.in_flight += 1;
        self.counts[class].admitted += 1;
        self.counts[class].delay.add(waited_ns);
        // A place that is kept is as good as taken.
        let taken = self.in_flight + self.anticipation.kept();
        Place(self.limit.started(now_ns, class, taken))
    }

    fn count_shed(&mut self, class: usize, reason: ShedReason) {
        self.counts[class].shed[reason.index()] += 1;
    }
}

/// Whether requests cannot but wait, and since when. Not the delay of those that are admitted:
/// the top class has none while the others starve.
#[derive(Debug, Default)]
struct Strain {
    since_ns: Option<u64>,
    /// When a stretch of half an interval was last seen.
    last_long_ns: u64,
    is_overloaded: bool,
}

impl Strain {
    fn begin(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    /// There is a free place and nobody who waits for it.
    fn end(&mut self, now_ns: u64, interval_ns: u64) {
        if self.since_ns.is_some() {
            self.is_overloaded(now_ns, interval_ns);
            self.since_ns = None;
        }
    }

    fn is_overloaded(&mut self, now_ns: u64, interval_ns: u64) -> bool {
        let stretch_ns = self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        if self.since_ns.is_some() && stretch_ns >= interval_ns / 2 {
            self.last_long_ns = now_ns;
        }
        if self.since_ns.is_some() && stretch_ns >= interval_ns {
            self.is_overloaded = true;
        } else if now_ns.saturating_sub(self.last_long_ns) >= interval_ns {
            self.is_overloaded = false;
        }
        self.is_overloaded
    }
}
