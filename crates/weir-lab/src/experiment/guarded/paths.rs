//! G8: what 10,000 rules about paths cost a server that answers with a small document out of
//! memory, with paths of three lengths: without rules, with rules of which none matches, and with
//! one that does.

use std::fs;

use crate::contender::Role;
use crate::contender::policy::Policy;
use crate::documents::{FOLDER, SMALL, document};
use crate::error::{Doing, Result};
use crate::experiment::grid::{Grid, Line};
use crate::experiment::{Experiment, Options, start_with};
use crate::process::Site;
use crate::result::Record;

/// Clients, as in S1.
const CLIENTS: usize = 40;
/// Rules.
const RULES: usize = 10_000;

/// Lengths of paths, and what asks for a document by one.
const TARGETS: [fn(usize) -> String; 3] = [|_| path(11), |_| path(80), |_| path(160)];
/// Cases by set of rules and length.
const CASES: [[&str; 3]; 3] = [
    ["off, 11", "off, 80", "off, 160"],
    ["no match, 11", "no match, 80", "no match, 160"],
    ["match, 11", "match, 80", "match, 160"],
];

/// A path so long.
fn path(length: usize) -> String {
    let fixed = format!("/{FOLDER}/").len();
    format!("/{FOLDER}/{}", "p".repeat(length - fixed))
}

/// G8.
pub(in crate::experiment) fn g8(experiment: &Experiment, options: &Options) -> Result<Record> {
    let line_up = experiment.line_up(Role::Rules, options)?;
    let clients = options.clients.unwrap_or(CLIENTS);
    let site = Site::prepare(&[SMALL], false, options.cores)?;
    let paths: Vec<String> = TARGETS.iter().map(|target| target(SMALL)).collect();
    for path in &paths {
        let file = site.root().join(&path[1..]);
        fs::write(&file, document(SMALL)).doing(|| format!("writing {}", file.display()))?;
    }
    let mut record = experiment.record(options, clients, line_up.skipped);
    let policies = [
        Policy::default(),
        Policy { idle_rules: RULES, ..Policy::default() },
        Policy { idle_rules: RULES, matched: paths.clone(), ..Policy::default() },
    ];
    // What a process costs depends by a few per cent on where its memory happens to lie: each round
    // has new ones.
    for round in 0..options.rounds {
        let mut running = Vec::new();
        for contender in &line_up.contenders {
            for (policy, cases) in policies.iter().zip(CASES) {
                let (role, path) = (Role::Rules, paths[0].as_str());
                let started =
                    start_with(contender, role, policy, &site, path, options, &mut record)?;
                running.extend(started.map(|started| (started, cases)));
            }
        }
        // By length, so that what is compared is measured one after the other.
        let mut lines = Vec::new();
        for (length, target) in TARGETS.into_iter().enumerate() {
            for (running, cases) in &running {
                lines.push(Line { running, case: cases[length], target });
            }
        }
        let (sizes, rates, helpers) = (vec![SMALL], Vec::new(), Vec::new());
        let (persistent, rounds) = (true, round..round + 1);
        let grid = Grid { sizes, clients, persistent, rounds, rates, helpers, options };
        grid.run(&lines, &mut record)?;
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_lengths() {
        for length in [11, 80, 160] {
            assert_eq!(path(length).len(), length);
        }
    }
}
