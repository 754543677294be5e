//! A list for tests and measurements: those in use have licences of their own.

use std::fmt::Write as _;

/// A list as large as the largest in use, and in its proportions: of 70,000 rules two thirds are
/// about requests, most of these about hosts, and the others about elements by class or id.
pub(crate) fn large() -> String {
    let mut text = String::from("[Adblock Plus 2.0]\n! Title: synthetic\n");
    let words = ["track", "ads", "banner", "pixel", "promo", "sponsor", "click", "stat"];
    let mut seed = 1_u64;
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    for number in 0..70_000_u64 {
        let word = words[next(8) as usize];
        let other = words[next(8) as usize];
        let line = match next(100) {
            0..40 => format!("||{word}{number}.example^"),
            40..50 => format!("||{word}{number}.example^$third-party"),
            50..56 => format!("/{word}{number}/*/{other}."),
            56..60 => format!("-{word}-{number}."),
            60..63 => format!("||site{number}.example/{word}/$script,image"),
            63..65 => format!("@@||site{number}.example/{word}.js$script,domain=a{number}.example"),
            65 => format!("/^https?:\\/\\/[a-z]{{8}}{number}\\.example\\/{word}/"),
            66..68 => format!("||{word}{number}.example/x.js$script,redirect=noopjs"),
            68..86 => format!("##.{word}-{other}-{number}"),
            86..90 => format!("###{word}_{number}"),
            90..92 => format!("##.{word}{number} > .{other}"),
            92 => format!("##a[href^=\"https://{word}{number}.example/\"]"),
            93 => format!("site{number}.example#@#.{word}"),
            _ => format!("site{number}.example##.{word}-{other}"),
        };
        // Writing to a text does not fail.
        let _ = writeln!(text, "{line}");
    }
    text
}
