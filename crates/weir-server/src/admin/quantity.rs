//! Times, sizes and shares as people write them in a URL, like the configuration's.

use std::time::Duration;

/// `60s`, `1.5h`: `ms`, `s`, `m`, `h` or `d`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 5] =
        [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    quantity(text, &UNITS)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is no time; expected one such as 50ms, 60s, 5m or 1h"))
}

/// Bytes: `64MiB`, `65536`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 5] = [
        ("KiB", 1024.0),
        ("MiB", (1 << 20) as f64),
        ("GiB", (1 << 30) as f64),
        ("B", 1.0),
        ("", 1.0),
    ];
    quantity(text, &UNITS)
        .filter(|bytes| bytes.fract() == 0.0 && *bytes < (1_u64 << 53) as f64)
        .map(|bytes| bytes as u64)
        .ok_or_else(|| format!("{text:?} is no size; expected one such as 65536, 512KiB or 64MiB"))
}

/// A share of one: `5%`, `0.05`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    quantity(text, &[("%", 0.01), ("", 1.0)])
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("{text:?} is no share; expected one such as 5%, at most 100%"))
}

/// The number in front of the first unit that fits.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.trim_end();
        // What is parsed below would take signs, exponents and words as well.
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_plain.then_some((number, factor))
    })?;
    let number: f64 = number.parse().ok()?;
    Some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in [("50ms", 50), ("60s", 60_000), ("1.5m", 90_000), ("2h", 7_200_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "60", "s", "-1s", "1e3s", "infs", "1 fortnight", "99999999999999999999d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("65536", 65_536), ("512KiB", 524_288), ("64MiB", 67_108_864)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "64MB", "1.0001KiB", "-1", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares() {
        for (text, expected) in [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("1", 1.0)] {
            let share = share(text).unwrap();
            assert!((share - expected).abs() < 1e-9, "{text}: {share}");
        }
        for text in ["0", "101%", "5", "five", "NaN", "-1%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
