//! Status codes as small numbers, so that a route's counters are one array.

/// Codes that are counted under their own name; others under their class. From the IANA registry,
/// those that servers and applications use.
const KNOWN: [u16; 48] = [
    100, 101, 103, 200, 201, 202, 203, 204, 205, 206, 207, 300, 301, 302, 303, 304, 307, 308, 400,
    401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422,
    426, 428, 429, 431, 499, 500, 501, 502, 503, 504,
];

const NAMES: [&str; 48] = [
    "100", "101", "103", "200", "201", "202", "203", "204", "205", "206", "207", "300", "301",
    "302", "303", "304", "307", "308", "400", "401", "402", "403", "404", "405", "406", "407",
    "408", "409", "410", "411", "412", "413", "414", "415", "416", "417", "421", "422", "426",
    "428", "429", "431", "499", "500", "501", "502", "503", "504",
];

const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Number of different slots.
pub(super) const STATUS_SLOTS: usize = KNOWN.len() + CLASSES.len();

/// Code - 100 → slot, made at compile time.
static SLOTS: [u8; 500] = slots();

const fn slots() -> [u8; 500] {
    let mut table = [0; 500];
    let mut code = 100;
    while code < 600 {
        table[code - 100] = (KNOWN.len() + code / 100) as u8;
        code += 1;
    }
    let mut i = 0;
    while i < KNOWN.len() {
        table[KNOWN[i] as usize - 100] = i as u8;
        i += 1;
    }
    table
}

/// The slot of a status code.
#[inline]
pub(super) fn slot(status: u16) -> usize {
    let index = usize::from(status).wrapping_sub(100);
    SLOTS.get(index).map_or(KNOWN.len(), |&slot| usize::from(slot))
}

/// The label of a slot.
pub(super) fn slot_status(slot: usize) -> &'static str {
    if slot < NAMES.len() { NAMES[slot] } else { CLASSES[slot - NAMES.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_right_label() {
        for status in 0..1000u16 {
            let expected = if KNOWN.contains(&status) {
                status.to_string()
            } else if (100..600).contains(&status) {
                format!("{}xx", status / 100)
            } else {
                "other".to_owned()
            };
            assert_eq!(slot_status(slot(status)), expected, "{status}");
        }
    }
}
