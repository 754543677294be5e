//! A look at a module's structure before the compiler sees it: what would take it minutes, or
//! gigabytes, is refused.

use std::collections::BTreeSet;

use wasmparser::{Encoding, FuncType, KnownCustom, Name, Parser, Payload, TypeRef};

use crate::effort::{Care, Effort};
use crate::module::ModuleError;

/// Limits on what a module may have, far above what plugins' toolchains make.
const LIMITS: Counts = Counts {
    types: 50_000,
    imports: 2_000,
    // The compiler takes 6 KB of memory for each; all of Go's library has 14,000.
    functions: 100_000,
    tables: 16,
    memories: 1,
    globals: 100_000,
    exports: 20_000,
    elements: 100_000,
    data: 100_000,
};

/// Bytes of one function's body. The largest of Go's library has 62,000, and the compiler takes up
/// to 300 MB of memory for one of this size.
const FUNCTION_BYTES_MAX: usize = 512 << 10;

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

/// A module that can be compiled, as far as that can be seen.
pub(crate) struct Checked {
    /// The names that it exports.
    pub(crate) exports: BTreeSet<String>,
    /// How it is to be compiled.
    pub(crate) care: Care,
}

/// What is known on the way through a module.
#[derive(Default)]
struct Seen {
    exports: BTreeSet<String>,
    types: Vec<FuncType>,
    imported_functions: u32,
    /// By function that is not imported: its type.
    functions: Vec<u32>,
    /// Those of which the code was seen.
    bodies: u32,
    effort: Effort,
}

/// Checks a module.
///
/// # Errors
/// [`ModuleError::Malformed`], [`ModuleError::Component`], [`ModuleError::Beyond`] or
/// [`ModuleError::Heavy`].
pub(crate) fn check(wasm: &[u8]) -> Result<Checked, ModuleError> {
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(malformed)? {
            Payload::Version { encoding: Encoding::Component, .. } => {
                return Err(ModuleError::Component);
            }
            Payload::TypeSection(section) => {
                at_most("types", section.count(), LIMITS.types)?;
                for signature in section.into_iter_err_on_gc_types() {
                    seen.types.push(signature.map_err(malformed)?);
                }
            }
            Payload::ImportSection(section) => {
                at_most("imports", section.count(), LIMITS.imports)?;
                for import in section.into_imports() {
                    let import = import.map_err(malformed)?;
                    seen.imported_functions += u32::from(matches!(import.ty, TypeRef::Func(_)));
                }
            }
            Payload::FunctionSection(section) => {
                at_most("functions", section.count(), LIMITS.functions)?;
                for signature in section {
                    seen.functions.push(signature.map_err(malformed)?);
                }
            }
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
                seen.body(&body, wasm)?;
            }
            Payload::ExportSection(section) => {
                at_most("exports", section.count(), LIMITS.exports)?;
                for export in section {
                    seen.exports.insert(export.map_err(malformed)?.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(Checked { care: seen.effort.care()?, exports: seen.exports })
}

impl Seen {
    fn body(
        &mut self,
        body: &wasmparser::FunctionBody<'_>,
        wasm: &[u8],
    ) -> Result<(), ModuleError> {
        let signature = self.functions.get(self.bodies as usize).copied();
        let signature = signature.and_then(|signature| self.types.get(signature as usize));
        let index = self.imported_functions + self.bodies;
        self.bodies += 1;
        let bytes = body.range().len();
        if bytes > FUNCTION_BYTES_MAX {
            let (function, limit) = (name_of(index, wasm), FUNCTION_BYTES_MAX);
            return Err(ModuleError::LargeFunction { function, bytes, limit });
        }
        self.effort.add(signature, &self.types, body, || name_of(index, wasm))
    }
}

/// A function, for people.
fn name_of(index: u32, wasm: &[u8]) -> String {
    /// Mangled names are long.
    const NAME_MAX: usize = 100;
    let sections = Parser::new(0).parse_all(wasm).flatten();
    let names = sections.filter_map(|payload| match payload {
        Payload::CustomSection(section) => match section.as_known() {
            KnownCustom::Name(names) => Some(names),
            _ => None,
        },
        _ => None,
    });
    let functions =
        names.flat_map(|names| names.into_iter().flatten()).filter_map(|names| match names {
            Name::Function(functions) => Some(functions),
            _ => None,
        });
    let mut namings = functions.flat_map(|functions| functions.into_iter().flatten());
    match namings.find(|naming| naming.index == index) {
        Some(naming) => {
            let name: String = naming.name.chars().take(NAME_MAX).collect();
            format!("function {index} ({name:?})")
        }
        None => format!("function {index}"),
    }
}

fn malformed(cause: wasmparser::BinaryReaderError) -> ModuleError {
    ModuleError::Malformed { cause: cause.to_string() }
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
