//! A look at a module's structure before the compiler sees it: what would take it minutes, or
//! gigabytes, is refused.

use std::collections::BTreeSet;

use wasmparser::{Encoding, Parser, Payload};

use crate::module::ModuleError;

/// Limits on what a module may have, far above what plugins' toolchains make.
const LIMITS: Counts = Counts {
    types: 50_000,
    imports: 2_000,
    functions: 200_000,
    tables: 16,
    memories: 1,
    globals: 100_000,
    exports: 20_000,
    elements: 100_000,
    data: 100_000,
};

/// Bytes of one function's body. Go's largest have some hundred thousand.
const FUNCTION_BYTES_MAX: u64 = 4 << 20;

/// Elements that a table may start with.
const TABLE_ELEMENTS_MAX: u64 = 10_000_000;

struct Counts {
    types: u64,
    imports: u64,
    functions: u64,
    tables: u64,
    memories: u64,
    globals: u64,
    exports: u64,
    elements: u64,
    data: u64,
}

/// Checks a module and returns the names that it exports.
///
/// # Errors
/// [`ModuleError::Malformed`], [`ModuleError::Component`] or [`ModuleError::Beyond`].
pub(crate) fn check(wasm: &[u8]) -> Result<BTreeSet<String>, ModuleError> {
    let malformed =
        |cause: wasmparser::BinaryReaderError| ModuleError::Malformed { cause: cause.to_string() };
    let mut exports = BTreeSet::new();
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(malformed)? {
            Payload::Version { encoding: Encoding::Component, .. } => {
                return Err(ModuleError::Component);
            }
            Payload::TypeSection(s) => at_most("types", s.count(), LIMITS.types)?,
            Payload::ImportSection(s) => at_most("imports", s.count(), LIMITS.imports)?,
            Payload::FunctionSection(s) => at_most("functions", s.count(), LIMITS.functions)?,
            Payload::MemorySection(s) => at_most("memories", s.count(), LIMITS.memories)?,
            Payload::GlobalSection(s) => at_most("globals", s.count(), LIMITS.globals)?,
            Payload::ElementSection(s) => at_most("element segments", s.count(), LIMITS.elements)?,
            Payload::DataSection(s) => at_most("data segments", s.count(), LIMITS.data)?,
            Payload::TableSection(section) => {
                at_most("tables", section.count(), LIMITS.tables)?;
                for table in section {
                    let elements = table.map_err(malformed)?.ty.initial;
                    beyond("table elements at start", elements, TABLE_ELEMENTS_MAX)?;
                }
            }
            Payload::CodeSectionEntry(body) => {
                let range = body.range();
                let bytes = (range.end - range.start) as u64;
                beyond("bytes in one function", bytes, FUNCTION_BYTES_MAX)?;
            }
            Payload::ExportSection(section) => {
                at_most("exports", section.count(), LIMITS.exports)?;
                for export in section {
                    exports.insert(export.map_err(malformed)?.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(exports)
}

fn at_most(what: &'static str, count: u32, limit: u64) -> Result<(), ModuleError> {
    beyond(what, u64::from(count), limit)
}

fn beyond(what: &'static str, count: u64, limit: u64) -> Result<(), ModuleError> {
    match count > limit {
        true => Err(ModuleError::Beyond { what, count, limit }),
        false => Ok(()),
    }
}
