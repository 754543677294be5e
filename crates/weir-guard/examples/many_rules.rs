//! What a decision costs with many rules that ask for much the same, and how long they take to
//! load: `cargo run --release -p weir-guard --example many_rules`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::Instant;

use weir_guard::{Ends, Fields, Moment, Rules, Subject};

/// Rules of each set.
const RULES: usize = 10_000;
/// Decisions are timed for so long, in rounds of which the fastest counts.
const ROUND_MS: u128 = 40;
const ROUNDS: usize = 5;

/// One case: a set of rules, and the value of the field that they are about.
struct Case {
    name: &'static str,
    /// The condition of a rule by its number.
    condition: fn(usize) -> String,
    field: &'static str,
    value: String,
}

struct Head<'a>(&'a str, &'a str);

impl<'a> Fields<'a> for Head<'a> {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        if name == self.0 {
            see(self.1.as_bytes());
        }
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        see(self.0.as_bytes(), self.1.as_bytes());
    }
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for case in cases() {
        let mut text =
            String::from("site \"*\" { listen \"127.0.0.1:80\"; route \"/*\" { respond \"\" } }\n");
        text.push_str("guard {\n");
        for number in 0..RULES {
            let condition = (case.condition)(number);
            let _ = writeln!(text, "rule \"r{number}\" {{ {condition}; class \"default\" }}");
        }
        text.push_str("}\n");
        let config = weir_config::parse("many", &text).map_err(io::Error::other)?;
        let began = Instant::now();
        let rules = Rules::new(&config.guard, 1, None);
        let built = began.elapsed();
        let ns = time(&rules, case.field, &case.value);
        writeln!(
            out,
            "{:<52} {:>7} B  {:>12.1} ns a decision  {:>7.1} ms to build",
            case.name,
            case.value.len(),
            ns,
            built.as_secs_f64() * 1e3
        )?;
    }
    Ok(())
}

fn cases() -> Vec<Case> {
    const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let agent = |name, condition, value: &str| Case {
        name,
        condition,
        field: "user-agent",
        value: value.to_owned(),
    };
    let of_robots = |n| format!("header \"user-agent\" \"*bot-{n}/*\"");
    let ended = |n| format!("header \"user-agent\" \"*bot*{n}\"");
    let cookie = |name, condition, value: String| Case { name, condition, field: "cookie", value };
    let texts = |text: &dyn Fn(usize) -> String, bytes: usize| -> String {
        (0..).map(text).take(bytes).collect::<String>()[..bytes].to_owned()
    };
    vec![
        agent("*bot-N/*, a browser", of_robots, BROWSER),
        agent("*bot-N/*, a robot that is meant", of_robots, "Mozilla/5.0 (bot-4711/1.0)"),
        agent("*bot*N, a browser", ended, BROWSER),
        agent("*bot*N, a robot that is not meant", ended, "robot x"),
        agent(
            "*crawler*N*, a robot that is not meant",
            |n| format!("header \"user-agent\" \"*crawler*{n}*\""),
            "a crawler without a number",
        ),
        agent(
            "one path, and *bot-N/*: a browser",
            |n| format!("path \"/*\"; header \"user-agent\" \"*bot-{n}/*\""),
            BROWSER,
        ),
        cookie(
            "cookie *aN*, 32 KB that nothing is in",
            |n| format!("cookie \"c\" \"*<{n}>*\""),
            format!("c={}", "x".repeat(32 << 10)),
        ),
        cookie(
            "cookie *<N>*(N)*, 32 KB made against it",
            |n| format!("cookie \"c\" \"*<{n}>*({n})*\""),
            format!("c={}", texts(&|n| format!("({n})<{n}>"), 32 << 10)),
        ),
        cookie(
            "cookie *<N>*(N)*, 32 KB that ask for searches",
            |n| format!("cookie \"c\" \"*<{n}>*({n})*<{n}>*\""),
            format!("c={}", texts(&|n| format!("<{n}>({n})"), 32 << 10)),
        ),
        cookie(
            "cookie x*y*N, 4,000 cookies of one name",
            |n| format!("cookie \"c\" \"x*y*{n}\""),
            texts(&|_| "c=xy1;".to_owned(), 24 << 10),
        ),
    ]
}

/// Nanoseconds of a decision.
fn time(rules: &Rules, field: &str, value: &str) -> f64 {
    let subject = Subject {
        ends: Ends { source: None, destination: None },
        site: "*",
        path: "/",
        query: None,
        method: "GET",
        server_name: None,
        verdict: "",
        fields: &Head(field, value),
    };
    let moment = Moment { now_ns: 0, is_overloaded: false, worker: 0 };
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed().as_millis() < ROUND_MS {
            black_box(rules.decide(black_box(&subject), &moment, false));
            count += 1;
        }
        best = best.min(began.elapsed().as_nanos() as f64 / f64::from(count));
    }
    best
}
