//! Medians, ratios and spreads. Medians because a round that something disturbed must not move the
//! result; ratios pair by pair because neighbours in time share the machine's mood.

/// The median; of an even count, the mean of the middle two. `None` for no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Median of `a / b` over the rounds that both have: element `i` of each is round `i`.
#[must_use]
pub fn paired_ratio(a: &[f64], b: &[f64]) -> Option<f64> {
    median(&ratios(a, b))
}

/// What the true median of `a / b` lies within, in 95 of 100 runs: from the k-th least to the k-th
/// greatest of the ratios, k so that fewer than k of as many tosses of a coin show heads in at most
/// 2.5 of 100 cases (the interval of the sign test). It assumes nothing of how rounds are
/// distributed. `None` for fewer than six rounds, which say too little.
#[must_use]
pub fn paired_interval(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let mut ratios = ratios(a, b);
    ratios.sort_by(f64::total_cmp);
    let rank = sign_rank(ratios.len())?;
    Some((ratios[rank], ratios[ratios.len() - 1 - rank]))
}

fn ratios(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).filter(|(_, b)| **b != 0.0).map(|(a, b)| a / b).collect()
}

/// How many of the least and of the greatest of `count` values to leave out.
fn sign_rank(count: usize) -> Option<usize> {
    let exponent = i32::try_from(count).ok()?;
    // Cases with exactly `heads` heads, and with at most as many, as shares of all.
    let (mut exactly, mut at_most) = (0.5_f64.powi(exponent), 0.0);
    let mut rank = None;
    for heads in 0..count {
        at_most += exactly;
        if at_most > 0.025 {
            break;
        }
        rank = Some(heads);
        exactly *= (count - heads) as f64 / (heads + 1) as f64;
    }
    rank
}

/// `a - b` of the rounds that both have.
#[must_use]
pub fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Distance from the least to the greatest value, as a share of the median.
#[must_use]
pub fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (middle != 0.0).then(|| (greatest - least) / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_none() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
        assert_eq!(median(&[f64::NAN, 2.0]), Some(2.0), "a failed round is left out");
    }

    #[test]
    fn ratio_is_pair_by_pair() {
        // The machine slowed down threefold in the second half; each pair still says 0.5.
        assert_eq!(paired_ratio(&[1.0, 1.0, 3.0, 3.0], &[2.0, 2.0, 6.0, 6.0]), Some(0.5));
        assert_eq!(paired_ratio(&[1.0], &[0.0]), None);
        assert_eq!(paired_ratio(&[], &[1.0]), None);
    }

    #[test]
    fn intervals_are_those_of_the_sign_test() {
        // From the tables of the sign test, 5 % two-sided: how many on one side are still too few.
        for (count, expect) in
            [(0, None), (5, None), (6, Some(0)), (9, Some(1)), (20, Some(5)), (30, Some(9))]
        {
            assert_eq!(sign_rank(count), expect, "{count}");
        }
        let a: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(paired_interval(&a, &[1.0; 9]), Some((2.0, 8.0)));
        assert_eq!(paired_interval(&a[..5], &[1.0; 5]), None);
    }

    #[test]
    fn differences_are_of_what_both_have() {
        assert_eq!(differences(&[3.0, 5.0, 9.0], &[1.0, 2.0]), [2.0, 3.0]);
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 11.0]), Some(0.2));
        assert_eq!(spread(&[]), None);
    }
}
