//! HTTP dates (RFC 9110 §5.6.7): the three formats that must be read and the one that is written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

/// Seconds from 1970 to the end of the year 9999, the last that the format can express.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Reads an HTTP date in any of the three formats.
pub fn parse(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(crate::syntax::trim(text)).ok()?;
    httpdate::parse_http_date(text).ok()
}

/// Writes `time` as an IMF-fixdate. Times that the format cannot express become the nearest that
/// it can.
pub fn format(time: SystemTime) -> HeaderValue {
    use std::io::Write;
    let mut text = [0u8; 29];
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds(time));
    // An IMF-fixdate is 29 ASCII bytes, so neither the write nor the value can fail.
    let written = write!(&mut text[..], "{}", httpdate::HttpDate::from(time));
    match (written, HeaderValue::from_bytes(&text)) {
        (Ok(()), Ok(value)) => value,
        _ => HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"),
    }
}

/// Whole seconds since 1970, which is all that HTTP compares; 0 before, at most the year 9999.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(SECONDS_MAX)
}

/// The Date field of the current second, written once a second and then cloned.
#[derive(Clone, Debug)]
pub struct Ticker {
    second: u64,
    value: HeaderValue,
}

impl Ticker {
    /// Starts at `now`.
    pub fn new(now: SystemTime) -> Ticker {
        Ticker { second: unix_seconds(now), value: format(now) }
    }

    /// The value for `now`.
    pub fn at(&mut self, now: SystemTime) -> HeaderValue {
        let second = unix_seconds(now);
        if second != self.second {
            *self = Ticker { second, value: format(now) };
        }
        self.value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_three_formats() {
        let expect = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(expect), "{text}");
        }
        assert_eq!(format(expect), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn refuses_what_is_no_date() {
        for text in ["", "0", "-1", "Sun, 06 Nov 1994 08:49:37", "Sun, 32 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn clamps_what_cannot_be_written() {
        assert_eq!(format(UNIX_EPOCH - Duration::from_secs(9)), "Thu, 01 Jan 1970 00:00:00 GMT");
        let late = UNIX_EPOCH + Duration::from_secs(SECONDS_MAX + 9);
        assert_eq!(format(late), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn ticker_follows_time_in_both_directions() {
        let start = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let mut ticker = Ticker::new(start);
        assert_eq!(ticker.at(start + Duration::from_millis(900)), format(start));
        let next = start + Duration::from_secs(1);
        assert_eq!(ticker.at(next), format(next));
        assert_eq!(ticker.at(start), format(start));
    }

    proptest! {
        #[test]
        fn never_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_reads_back(seconds in 0..=SECONDS_MAX) {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            prop_assert_eq!(parse(format(time).as_bytes()), Some(time));
        }
    }
}
