//! The specification, the C header and the SDK say what the host does.

use super::*;
use crate::own::hook::Hook;
use crate::own::imports::NAMES;
use crate::own::ops::{OPS, Shape, Spec};

const SPECIFICATION: &str = include_str!("../../../../../docs/manual/plugin-interface.md");
const HEADER: &str = include_str!("../../../../../plugins/include/weir_plugin.h");
const SDK_EDITS: &str = include_str!("../../../../weir-plugin-sdk/src/edits.rs");
const SDK_RAW: &str = include_str!("../../../../weir-plugin-sdk/src/raw.rs");

/// A row of the specification's table of edits.
fn row(spec: &Spec) -> String {
    let value = match spec.value {
        Shape::Nothing => "–",
        Shape::Bytes => "bytes",
        Shape::U32 => "u32",
        Shape::U64 => "u64",
        Shape::Span => "u32, u32",
    };
    let name = if spec.named { "yes" } else { "–" };
    let allowed: Vec<&str> = Hook::ALL
        .into_iter()
        .filter(|hook| spec.hooks.has(*hook))
        .map(|hook| hook.export().trim_start_matches("weir_on_"))
        .collect();
    let mut hooks = match allowed.len() {
        11 => "all but log and tick".to_owned(),
        0 => "call".to_owned(),
        _ => allowed.join(", "),
    };
    if spec.in_answer {
        hooks += "; after ANSWER";
    }
    format!("| {} | {} | {name} | {value} | {hooks} | {} |", spec.op as u8, spec.name, spec.meaning)
}

#[test]
fn the_table_of_edits_is_the_hosts() {
    let missing: Vec<String> =
        OPS.iter().map(row).filter(|row| !SPECIFICATION.contains(row)).collect();
    assert!(missing.is_empty(), "not in the specification:\n{}", missing.join("\n"));
}

#[test]
fn numbers_and_names_are_the_same_everywhere() {
    for spec in OPS {
        let line = format!("WEIR_OP_{} = {},", spec.name, spec.op as u8);
        assert!(HEADER.contains(&line), "{line}");
        let line = format!("    {:?} = {},", spec.op, spec.op as u8);
        assert!(SDK_EDITS.contains(&line), "{line}");
    }
    for hook in Hook::ALL {
        let short = hook.export().trim_start_matches("weir_on_");
        let line = format!("WEIR_{} = {},", short.to_uppercase(), hook as u32);
        assert!(HEADER.contains(&line), "{line}");
        let line = format!("| {} | `{}` |", hook as u32, hook.export());
        assert!(SPECIFICATION.contains(&line), "{line}");
    }
    for name in NAMES {
        assert!(SPECIFICATION.contains(&format!("| `{name}(")), "{name} in the specification");
        assert!(HEADER.contains(&format!("WEIR_IMPORT({name})")), "{name} in the C header");
        assert!(SDK_RAW.contains(&format!("safe fn {name}(")), "{name} in the SDK");
    }
}

/// The modules in the specification, by the fences around them.
fn modules() -> Vec<&'static str> {
    SPECIFICATION.split("```wat\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_specifications_module_works() {
    let [hello] = modules()[..] else { panic!("expected one module") };
    let mut puppet = Puppet::start(hello, lenient(), "").unwrap();
    puppet.hook(Phase::ResponseHead).unwrap();
    let head = puppet.exchange().response.as_ref().unwrap().get();
    assert_eq!(head.headers["x-hello"], "world");
}

#[test]
fn limits_are_told() {
    use crate::limits::{CALLS_MAX, FIELDS_MAX, HELD_BYTES_MAX, PIECE_BYTES_MAX};
    use crate::own::edits::{LIST_BYTES_MAX, RECORDS_MAX};
    use crate::own::ops::{HOLD_MS_MAX, KEEP_BYTES_MAX};
    let mebibytes = |bytes: usize| format!("{} MiB", bytes >> 20);
    for (limit, value) in [
        ("an edit list, without what it refers to", mebibytes(LIST_BYTES_MAX)),
        ("records of a list", format!("{RECORDS_MAX}")),
        ("lines of a section", format!("{FIELDS_MAX}")),
        ("a piece of a body", format!("{} KiB", PIECE_BYTES_MAX >> 10)),
        ("what KEEP keeps", format!("{} KiB", KEEP_BYTES_MAX >> 10)),
        ("a body that is shown whole, an answer's, one that edits make", mebibytes(HELD_BYTES_MAX)),
        ("a hold", format!("{} s", HOLD_MS_MAX / 1000)),
        ("calls in flight, for each instance", format!("{CALLS_MAX}")),
    ] {
        let row = format!("| {limit} | {value} |");
        assert!(SPECIFICATION.contains(&row), "{row}");
    }
}
