//! Which requests the server still admits while it is overloaded itself. When it is, is for
//! [`crate::DelayMeter`] to say.

use crate::queue::CLASSES_MAX;

/// Shares of a class by the hash of the client; DAGOR has 128.
pub const SHARES: u8 = 64;

const STEPS: usize = CLASSES_MAX * SHARES as usize;

/// What an overloaded interval takes from what was admitted, and a good one adds: α and β of
/// DAGOR, as long as it goes to and fro.
const FALL: f64 = 0.05;
const RISE: f64 = 0.01;

/// Each further interval of the same kind doubles the step, up to these. Constant steps of 5 %
/// need 46 intervals to shed nine tenths, and such of 1 % need 231 to admit them again; doubled
/// ones 7 and 12 (tests below).
const FALL_MAX: f64 = 0.4;
const RISE_MAX: f64 = 1.0;

/// An admission level: classes and, within a class, shares of clients, of which those below it are
/// let in. The lowest class goes first, share by share, so that a client is either served or not
/// and does not lose a little of everything it asks for.
///
/// The scheme is DAGOR's (Zhou et al., Overload Control for Scaling WeChat Microservices, SoCC
/// 2018, §4.2): arrivals of an interval are counted by step, and the level moves so far that by
/// these counts the wanted part more or less would have been admitted. Two things differ. Steps of
/// the level double while it keeps moving one way, and an interval that finds nothing between it
/// and the next arrival moves over everything that is empty, so that it cannot be caught where
/// there is no traffic.
///
/// The least that is admitted is the first share of class 0.
#[derive(Clone, Debug)]
pub struct AdmissionLevel {
    /// Steps that are let in.
    level: usize,
    arrived: [u32; STEPS],
    falls: u32,
    rises: u32,
}

impl Default for AdmissionLevel {
    fn default() -> AdmissionLevel {
        AdmissionLevel::new()
    }
}

impl AdmissionLevel {
    /// Everything is admitted.
    pub fn new() -> AdmissionLevel {
        AdmissionLevel { level: STEPS, arrived: [0; STEPS], falls: 0, rises: 0 }
    }

    /// Whether a request of this class and share is let in; counts it. The share is a hash of the
    /// client below [`SHARES`], which should change every few minutes, so that it is not always
    /// the same who are refused. Whatever is above the bounds counts as the last.
    pub fn admits(&mut self, class: usize, share: u8) -> bool {
        let step = step(class, share);
        self.arrived[step] = self.arrived[step].saturating_add(1);
        step < self.level
    }

    /// Whether everything is admitted.
    pub fn is_open(&self) -> bool {
        self.level == STEPS
    }

    /// Whether at least some of a class is admitted.
    pub fn admits_some(&self, class: usize) -> bool {
        step(class, 0) < self.level
    }

    /// An interval is over, and was overloaded or not. Returns whether the level has changed.
    pub fn turn(&mut self, is_overloaded: bool) -> bool {
        let before = self.level;
        if is_overloaded {
            self.rises = 0;
            self.lower((FALL * doubled(self.falls)).min(FALL_MAX));
            self.falls += 1;
        } else if !self.is_open() {
            self.falls = 0;
            self.raise((RISE * doubled(self.rises)).min(RISE_MAX));
            self.rises += 1;
        } else {
            (self.falls, self.rises) = (0, 0);
        }
        self.arrived.fill(0);
        self.level != before
    }

    fn admitted(&self) -> f64 {
        self.arrived[..self.level].iter().map(|count| f64::from(*count)).sum()
    }

    /// By one step that was used at least, unless it is the last.
    fn lower(&mut self, part: f64) {
        let mut excess = self.admitted() * part;
        while self.level > 1 {
            self.level -= 1;
            let count = f64::from(self.arrived[self.level]);
            excess -= count;
            if count > 0.0 && excess <= 0.0 {
                return;
            }
        }
    }

    /// By one step that was asked for at least.
    fn raise(&mut self, part: f64) {
        let mut room = self.admitted() * part;
        while self.level < STEPS {
            let count = f64::from(self.arrived[self.level]);
            self.level += 1;
            room -= count;
            if count > 0.0 && room <= 0.0 {
                return;
            }
        }
    }
}

fn step(class: usize, share: u8) -> usize {
    class.min(CLASSES_MAX - 1) * usize::from(SHARES) + usize::from(share.min(SHARES - 1))
}

fn doubled(times: u32) -> f64 {
    f64::from(1u32 << times.min(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that can do `capacity` an interval is offered so many of each class. Returns what
    /// it admits of each.
    fn interval(level: &mut AdmissionLevel, offered: &[u32], capacity: u32) -> Vec<u32> {
        let mut admitted = vec![0; offered.len()];
        for (class, count) in offered.iter().enumerate() {
            for number in 0..*count {
                // A multiplier coprime to 64 spreads clients over all shares.
                let share = (number.wrapping_mul(37) % u32::from(SHARES)) as u8;
                admitted[class] += u32::from(level.admits(class, share));
            }
        }
        level.turn(admitted.iter().sum::<u32>() > capacity);
        admitted
    }

    fn run(level: &mut AdmissionLevel, offered: &[u32], capacity: u32, n: usize) -> Vec<Vec<u32>> {
        (0..n).map(|_| interval(level, offered, capacity)).collect()
    }

    #[test]
    fn ten_times_the_capacity_is_shed_within_ten_intervals_from_the_lowest_class_up() {
        let mut level = AdmissionLevel::new();
        let offered = [600, 1400, 8000];
        let seen = run(&mut level, &offered, 1000, 100);
        let fits = seen.iter().position(|admitted| admitted.iter().sum::<u32>() <= 1000);
        println!("10x: first interval within capacity: {fits:?}");
        assert!(fits.is_some_and(|fits| fits <= 10), "{fits:?}");
        let settled = &seen[20..];
        let mean = |class: usize| -> f64 {
            settled.iter().map(|admitted| f64::from(admitted[class])).sum::<f64>()
                / settled.len() as f64
        };
        println!("admitted of {offered:?} at 1000: {:.0} {:.0} {:.0}", mean(0), mean(1), mean(2));
        assert!(mean(0) >= 0.99 * 600.0, "the top class is shed: {}", mean(0));
        let sum = mean(0) + mean(1) + mean(2);
        assert!((850.0..=1050.0).contains(&sum), "{sum}");
    }

    #[test]
    fn recovery_is_prompt() {
        let mut level = AdmissionLevel::new();
        run(&mut level, &[5000, 5000, 90_000], 100, 1000);
        assert!(!level.admits_some(1));
        let seen = run(&mut level, &[200, 300, 500], 10_000, 20);
        let back = seen.iter().position(|admitted| admitted.iter().sum::<u32>() == 1000);
        println!("after 1000 intervals of overload everything is back in interval {back:?}");
        assert!(back.is_some_and(|back| back <= 12), "{back:?}");
    }

    #[test]
    fn top_class_goes_only_when_nothing_else_is_left() {
        let mut level = AdmissionLevel::new();
        for _ in 0..200 {
            let admitted = interval(&mut level, &[1000, 1000, 1000], 500);
            if admitted[0] < 1000 {
                assert_eq!(admitted[1..], [0, 0]);
            }
        }
        // Without traffic there is nothing to be caught in.
        for _ in 0..2 {
            level.turn(false);
        }
        assert!(level.is_open());
    }

    #[test]
    fn something_is_always_admitted() {
        let mut level = AdmissionLevel::new();
        for _ in 0..1000 {
            assert!(level.admits(0, 0));
            level.admits(usize::MAX, u8::MAX);
            level.turn(true);
        }
        assert!(!level.admits(0, 1));
    }
}
