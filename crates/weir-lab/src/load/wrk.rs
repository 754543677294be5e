//! The same load by wrk, which shares no code with the generator: if both see the same ratios, the
//! ratios are the servers'. wrk checks neither lengths nor bytes, so it is a check and no more.

use std::process::Command;
use std::time::Duration;

use super::{Ask, Asks, Expect, Outcome, Plan};
use crate::error::{Doing, Error, Result};

/// Runs `plan` with wrk, on the core of the calling thread; whole seconds, at least one.
///
/// # Errors
/// When wrk is missing, fails, or sees a response that is not a success; when there is more
/// than one group, or it does not ask for one document.
pub fn run(plan: &Plan) -> Result<Outcome> {
    let [group] = &plan.groups[..] else {
        return Err(Error::Usage("wrk has one group of clients".to_owned()));
    };
    let Asks::Same(Ask { target, expect: Expect::Body(body), .. }) = &group.asks else {
        return Err(Error::Usage("wrk asks for one document".to_owned()));
    };
    let seconds = plan.window.as_secs().max(1);
    let mut command = Command::new("wrk");
    command.args(["--threads", "1", "--connections", &group.clients.to_string()]);
    command.args(["--duration", &format!("{seconds}s")]);
    if !plan.persistent {
        command.args(["--header", "Connection: close"]);
    }
    command.arg(format!("http://{}{target}", plan.server));
    let output = command.output().doing(|| "starting wrk (`apt-get install wrk`)".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (requests, elapsed) = parse(&text)
        .filter(|_| output.status.success())
        .ok_or_else(|| Error::Answer(format!("wrk: {text}")))?;
    Ok(Outcome {
        requests,
        body_bytes: requests * body.len() as u64,
        elapsed,
        ..Outcome::default()
    })
}

/// Requests and time of a report in which nothing failed.
fn parse(report: &str) -> Option<(u64, Duration)> {
    if report.contains("Non-2xx") || report.contains("Socket errors") {
        return None;
    }
    let line = report.lines().find(|line| line.contains(" requests in "))?;
    let (requests, rest) = line.trim().split_once(" requests in ")?;
    let time = rest.split(',').next()?;
    let seconds = match time.strip_suffix("ms") {
        Some(number) => number.parse::<f64>().ok()? / 1e3,
        None => match time.strip_suffix('m') {
            Some(number) => number.parse::<f64>().ok()? * 60.0,
            None => time.strip_suffix('s')?.parse().ok()?,
        },
    };
    Some((requests.parse().ok()?, Duration::try_from_secs_f64(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports() {
        let check = |report: &str, expect: Option<(u64, u64)>| {
            let got = parse(report).map(|(requests, time)| (requests, time.as_millis() as u64));
            assert_eq!(got, expect, "{report}");
        };
        check("  Latency 1ms\n  131 requests in 1.10s, 8.24MB read\n", Some((131, 1_100)));
        check("  7 requests in 2.00m, 1KB read\n", Some((7, 120_000)));
        check("  7 requests in 1.00s, 1KB read\n  Non-2xx or 3xx responses: 7\n", None);
        check("unable to connect", None);
    }
}
