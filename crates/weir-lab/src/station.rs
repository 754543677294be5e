//! A machine that makes expensive pages, as a model: a fixed number of servers shares its time
//! equally among all pages that are being made, and wastes more of it the more there are. No I/O
//! and no clock; time is a parameter in nanoseconds.

use std::collections::{BTreeMap, VecDeque};

/// Pages that are made at a time; more wait for a process, as with Apache's `MaxClients`.
const PROCESSES: usize = 256;
/// What is left of the machine when it has far too much to do. The original's fell from 63 pages
/// per second to 40.
const LEAST_EFFICIENCY: f64 = 0.63;
/// At so many times as many pages as servers nothing more is lost.
const WORST_AT: f64 = 4.0;

/// The machine. `T` is who waits for a page.
pub struct Station<T> {
    servers: f64,
    /// Time that a page takes of a server of its own.
    work_ns: f64,
    /// Work that each page has got since the start, if it was there all the time.
    progress_ns: f64,
    at_ns: u64,
    serial: u64,
    /// Being made, by the progress at which they are done (in whole nanoseconds).
    made: BTreeMap<(u64, u64), T>,
    waiting: VecDeque<T>,
}

impl<T> Station<T> {
    /// With so many servers, one of which takes so long for a page.
    #[must_use]
    pub fn new(servers: usize, work_ns: u64) -> Station<T> {
        Station {
            servers: servers as f64,
            work_ns: work_ns as f64,
            progress_ns: 0.0,
            at_ns: 0,
            serial: 0,
            made: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Someone wants a page.
    pub fn arrive(&mut self, now_ns: u64, who: T) {
        self.advance(now_ns);
        if self.made.len() < PROCESSES {
            self.make(who);
        } else {
            self.waiting.push_back(who);
        }
    }

    /// Who has a page ready by now. To be asked until there is nobody.
    pub fn take_done(&mut self, now_ns: u64) -> Option<T> {
        let due_ns = self.next_due().filter(|due_ns| *due_ns <= now_ns);
        let Some(due_ns) = due_ns else {
            self.advance(now_ns);
            return None;
        };
        self.advance(due_ns);
        let (_, who) = self.made.pop_first()?;
        if let Some(next) = self.waiting.pop_front() {
            self.make(next);
        }
        Some(who)
    }

    /// When the next page is ready, if nobody else comes.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let ((done, _), _) = self.made.first_key_value()?;
        let left_ns = (*done as f64 - self.progress_ns).max(0.0) / self.speed();
        Some(self.at_ns + left_ns.ceil() as u64)
    }

    fn make(&mut self, who: T) {
        self.serial += 1;
        let done = (self.progress_ns + self.work_ns) as u64;
        self.made.insert((done, self.serial), who);
    }

    fn advance(&mut self, now_ns: u64) {
        // Times come from several threads, and may be a little late.
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        if !self.made.is_empty() {
            self.progress_ns += passed_ns as f64 * self.speed();
        }
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// How fast each page is made, relative to one with a server of its own.
    fn speed(&self) -> f64 {
        let load = self.made.len() as f64 / self.servers;
        if load <= 1.0 {
            return 1.0;
        }
        let lost = (1.0 - LEAST_EFFICIENCY) * ((load - 1.0) / (WORST_AT - 1.0)).min(1.0);
        (1.0 - lost) / load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Pages per second with so many clients, each of which asks again at once.
    fn throughput(clients: usize) -> f64 {
        let mut station = Station::new(16, 16 * MS);
        (0..clients).for_each(|client| station.arrive(0, client));
        let (mut now_ns, mut done) = (0, 0);
        while now_ns < 4_000 * MS {
            now_ns = station.next_due().unwrap();
            while let Some(client) = station.take_done(now_ns) {
                done += 1;
                station.arrive(now_ns, client);
            }
        }
        f64::from(done) / (now_ns as f64 / 1e9)
    }

    #[test]
    fn throughput_peaks_and_falls() {
        let check = |clients, expect: f64| {
            let got = throughput(clients);
            assert!((got / expect - 1.0).abs() < 0.02, "{clients}: {got}");
        };
        check(1, 62.5);
        check(8, 500.0);
        check(16, 1_000.0);
        check(64, 630.0);
        check(400, 630.0);
        let between = throughput(32);
        assert!((700.0..980.0).contains(&between), "{between}");
    }

    #[test]
    fn a_page_takes_its_time_and_more_with_others() {
        let mut station = Station::new(2, 10 * MS);
        station.arrive(0, 'a');
        assert_eq!(station.next_due(), Some(10 * MS));
        assert_eq!(station.take_done(9 * MS), None);
        ['b', 'c', 'd'].into_iter().for_each(|who| station.arrive(9 * MS, who));
        // Twice as many as servers: half the speed, less what is wasted.
        let due_ns = station.next_due().unwrap();
        assert!((11 * MS..12 * MS).contains(&due_ns), "{due_ns}");
        assert_eq!(station.take_done(due_ns), Some('a'));
        assert_eq!(station.take_done(due_ns), None);
    }

    #[test]
    fn more_than_there_are_processes_wait_their_turn() {
        let mut station = Station::new(1, MS);
        (0..PROCESSES + 1).for_each(|who| station.arrive(0, who));
        let first_ns = station.next_due().unwrap();
        let done: Vec<_> = std::iter::from_fn(|| station.take_done(first_ns)).collect();
        assert_eq!(done, (0..PROCESSES).collect::<Vec<_>>(), "all at the same time");
        assert_eq!(station.next_due(), Some(first_ns + MS), "the last by itself");
    }
}
