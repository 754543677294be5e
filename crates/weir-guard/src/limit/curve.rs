//! Latency over requests in flight, and where it begins to rise: Little's law fitted to cohorts.

/// Width of a bin, as a logarithm: 5 %.
const BIN: f64 = 0.05;
/// Bins, up to 300,000 in flight.
const BINS: usize = 256;
/// What the arrival of a cohort leaves of the weight of those before: 100 cohorts are remembered,
/// four probes among them.
const KEPT: f64 = 0.99;
/// Bins of less weight are empty. A cohort weighs more than 1.
const WEIGHT_MIN: f64 = 0.5;
/// Error of the model itself, however many requests are measured.
const MODEL_ERROR: f64 = 0.02;
/// How much worse than the best a fit may be to be taken for possible, in squared standard
/// deviations; and the same for growth in leaps, which would otherwise end by chance and far too
/// low: being too high for a moment is put right soon, being too low is not.
pub(super) const POSSIBLE: f64 = 1.0;
pub(super) const POSSIBLE_IN_LEAPS: f64 = 6.25;
/// The knee is looked for in such steps.
const STEP: f64 = BIN / 2.0;
/// What is measured below this part of the knee shows the latency without a queue.
const BELOW: f64 = 0.65;
/// What differs from the fit by so many standard errors, and this much, shows that the upstream
/// has changed.
const SURPRISE: f64 = 3.5;
const SURPRISE_MIN: f64 = 0.15;
/// Cohorts over which smaller differences add up.
const DRIFT_COHORTS: f64 = 4.0;

/// Cohorts by how many requests were in flight, and the curve through them.
///
/// An upstream that works on c requests at a time answers n of them in a time that is constant up
/// to c, and grows in proportion to n from there (J. Little, A Proof for the Queuing Formula L =
/// λW, Operations Research 9(3), 1961). Both parameters, that time and c, are found by least
/// squares.
#[derive(Debug)]
pub(super) struct Curve {
    bins: Box<[Bin; BINS]>,
    fit: Option<Fit>,
    /// How much worse than the best a possible fit may be.
    possible: f64,
    /// Mean of what the last cohorts differed from the fit, in standard errors.
    drift: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    weight: f64,
    /// Weighted sums of logarithms of requests in flight and of latency.
    in_flight: f64,
    latency: f64,
}

/// A curve through the measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// Logarithm of the latency without a queue.
    pub(super) unloaded: f64,
    /// Logarithm of the most requests that may well be without a queue: the upper end of what is
    /// possible, because throughput lost is worse than a short queue. `None` if no queue was seen.
    pub(super) knee: Option<f64>,
    /// Logarithms of the least and most in flight that were measured.
    pub(super) least: f64,
    pub(super) most: f64,
    /// The best guess of the knee.
    best: f64,
    /// Weight of what shows the latency without a queue.
    pub(super) weight_below: f64,
}

impl Curve {
    pub(super) fn new() -> Curve {
        Curve { bins: Box::new([Bin::default(); BINS]), fit: None, possible: POSSIBLE, drift: 0.0 }
    }

    pub(super) fn fit(&self) -> Option<Fit> {
        self.fit
    }

    /// From the next cohort on, fits are possible that are so much worse than the best.
    pub(super) fn set_possible(&mut self, possible: f64) {
        self.possible = possible;
    }

    /// Adds a cohort: how many were in flight, the logarithm of latency, its standard error.
    /// Returns whether that was such a surprise that everything before is forgotten.
    pub(super) fn add(&mut self, in_flight: f64, latency: f64, error: f64) -> bool {
        let in_flight = in_flight.max(1.0).ln();
        let error = error.hypot(MODEL_ERROR);
        let is_surprise = self.is_surprise(in_flight, latency, error);
        if is_surprise {
            self.bins.fill(Bin::default());
            self.drift = 0.0;
        }
        for bin in self.bins.iter_mut().filter(|bin| bin.weight > 0.0) {
            bin.weight *= KEPT;
            bin.in_flight *= KEPT;
            bin.latency *= KEPT;
        }
        let weight = error.powi(-2);
        let bin = &mut self.bins[((in_flight / BIN) as usize).min(BINS - 1)];
        bin.weight += weight;
        bin.in_flight += weight * in_flight;
        bin.latency += weight * latency;
        self.fit = self.fitted();
        is_surprise
    }

    fn is_surprise(&mut self, in_flight: f64, latency: f64, error: f64) -> bool {
        let Some(fit) = self.fit else { return false };
        let off = latency - fit.unloaded - (in_flight - fit.best).max(0.0);
        // Above the knee the model is an approximation, and far from what was measured a guess.
        let reach = (in_flight - fit.most).max(fit.least - in_flight).max(0.0);
        let error = error + reach;
        self.drift += (off / error - self.drift) / DRIFT_COHORTS;
        let is_jump = off.abs() > SURPRISE_MIN && off.abs() > SURPRISE * error;
        // The mean of four varies half as much.
        is_jump || self.drift.abs() > SURPRISE / 2.0 && off.abs() > SURPRISE_MIN / 2.0
    }

    fn fitted(&self) -> Option<Fit> {
        let points = || {
            let bins = self.bins.iter().filter(|bin| bin.weight > WEIGHT_MIN);
            bins.map(|bin| (bin.weight, bin.in_flight / bin.weight, bin.latency / bin.weight))
        };
        let (least, most) = points()
            .map(|(_, in_flight, _)| in_flight)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), in_flight| {
                (least.min(in_flight), most.max(in_flight))
            });
        if least > most {
            return None;
        }
        let weights: f64 = points().map(|(weight, ..)| weight).sum();
        let at = |knee: f64| {
            let queue = |in_flight: f64| (in_flight - knee).max(0.0);
            let sum: f64 = points().map(|(w, n, latency)| w * (latency - queue(n))).sum();
            let unloaded = sum / weights;
            let misfit = points().map(|(w, n, l)| w * (l - queue(n) - unloaded).powi(2)).sum();
            (unloaded, misfit)
        };
        let (mut best, (mut unloaded, mut misfit_best)) = (most, at(most));
        let (misfit_flat, mut knee) = (misfit_best, None);
        let steps = ((most - least) / STEP) as usize + 1;
        let knees = || (0..=steps).map(|step| (most - step as f64 * STEP).max(least));
        for candidate in knees() {
            let (unloaded_here, misfit): (f64, f64) = at(candidate);
            if misfit < misfit_best {
                (best, unloaded, misfit_best) = (candidate, unloaded_here, misfit);
            }
        }
        if misfit_flat > misfit_best + self.possible {
            knee = knees().find(|knee| at(*knee).1 <= misfit_best + self.possible);
        }
        let below = knee.unwrap_or(most) + BELOW.ln();
        let weight_below =
            points().filter(|(_, n, _)| *n <= below).map(|(weight, ..)| weight).sum();
        Some(Fit { unloaded, knee, least, most, best, weight_below })
    }
}
