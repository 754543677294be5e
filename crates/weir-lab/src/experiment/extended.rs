//! What P1 and P3 share: each server twice, as it is and with an extension that does nothing, both
//! answering with the same small document out of memory.

use super::grid::Line;
use super::{Experiment, LineUp, Options, start};
use crate::contender::{Contender, Role};
use crate::documents::SMALL;
use crate::error::Result;
use crate::process::{Running, Site};
use crate::result::Record;

/// Without an extension in the process.
pub(super) const PLAIN: &str = "plain";
/// Without one on the route, in a process that has some.
pub(super) const NONE: &str = "none";
/// A plugin on Weir's own interface.
pub(super) const OWN: &str = "own";
/// A plugin on proxy-wasm.
pub(super) const PROXY_WASM: &str = "proxy-wasm";
/// An agent outside the process.
pub(super) const SPOE: &str = "spoe";

/// Who takes part, the documents, and a record to fill.
pub(super) fn prepare(
    experiment: &Experiment,
    options: &Options,
    clients: usize,
) -> Result<(LineUp, Site, Record)> {
    let line_up = experiment.line_up(Role::Extended, options)?;
    let site = Site::prepare(&[SMALL], true, options.cores)?;
    let record = experiment.record(options, clients, line_up.skipped.clone());
    Ok((line_up, site, record))
}

/// A server without and with.
pub(super) struct Pair {
    plain: Running,
    extended: Running,
}

impl Pair {
    /// Starts both, or notes in the record why the contender is left out.
    pub(super) fn start(
        contender: &'static Contender,
        site: &Site,
        options: &Options,
        record: &mut Record,
    ) -> Result<Option<Pair>> {
        let mut of = |role, target: &str| start(contender, role, site, target, options, record);
        let Some(plain) = of(Role::Plain, &plain(SMALL))? else { return Ok(None) };
        let Some(extended) = of(Role::Extended, &own(SMALL))? else { return Ok(None) };
        Ok(Some(Pair { plain, extended }))
    }

    /// What to ask for; the series are called by their cases.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let line = |running, case, target| Line { running, case, target };
        let plain = line(&self.plain, PLAIN, plain);
        let with = |case, target| line(&self.extended, case, target);
        match self.plain.contender.name {
            "weir" => {
                vec![plain, with(NONE, none), with(OWN, own), with(PROXY_WASM, proxy_wasm)]
            }
            "haproxy" => vec![plain, with(SPOE, own)],
            _ => vec![plain, with(PROXY_WASM, proxy_wasm)],
        }
    }
}

// Weir tells its plugins by the path; the others answer to any.

fn plain(size: usize) -> String {
    target(PLAIN, size)
}

fn none(size: usize) -> String {
    target(NONE, size)
}

fn own(size: usize) -> String {
    target(OWN, size)
}

fn proxy_wasm(size: usize) -> String {
    target(PROXY_WASM, size)
}

fn target(case: &str, size: usize) -> String {
    format!("/cached/{case}/document?size={size}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_has_every_document() {
        use crate::app::Application;
        use crate::floor::Content;
        for target in [plain, none, own, proxy_wasm] {
            let target = target(SMALL);
            assert!(Application::default().find(target.as_bytes()).is_some(), "{target}");
        }
    }
}
