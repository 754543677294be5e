//! What a module will cost the compiler, known before it begins: from one pass over its code that
//! counts what the compiler's algorithms are more than linear in.
//!
//! Cranelift allocates registers in one of two ways. The careful one makes better code, and takes
//! time that grows with the square of what a function has of some things. The quick one is linear;
//! only turning locals into values still takes time and memory by locals × blocks. So a module with
//! a function that would be hard on the careful one is compiled by the quick one, and refused if it
//! is too much for that one as well.
//!
//! | a function's | careful, µs | quick, µs | measured with |
//! |---|---|---|---|
//! | instructions | 5 each | 2 each | Go's whole library, 7.1 million: 31 s and 14 s |
//! | functions | 75 | 55 | 200,000 empty ones: 15.5 s and 10.3 s |
//! | calls | 15 each | 5 each | 50,000 with 3,000 locals: 4.6 s and 0.2 s |
//! | calls through tables, and of the runtime | 100 each, and 1/300 of their square | 50 each | 50,000: 11.5 s and 2.4 s |
//! | blocks and branches | – | 1 each | 500,000 blocks in each other: 2.2 s |
//! | targets of tables of branches | – | 10 each | 90,000 with 40 locals: 3.2 s quickly |
//! | depth of each block | 2/5 each | – | 3,000 in each other, left from everywhere: 1.7 s |
//! | loops | 1/15 of their square | 40 each | 20,000: 25 s and 0.5 s |
//! | locals × depth of each loop | 2½ each | – | 100 locals, 200 loops in each other: 1.2 s and 0.06 s |
//! | locals × blocks and branches | 5 each beyond two for a byte | 1 for two | 300 × 900: 1.6 s and 0.05 s; 2,000 × 6,000: 10 s and 4.7 s |
//! | locals beyond 16 × instructions | 1/10 each | – | 84 × 400,000: 3.8 s and 0.2 s |
//!
//! Measured with wasmtime 48 in release, on one core of a virtual machine of 2.x GHz that others
//! used too: CPU time. What modules really have is far below (Go's whole library: 85,000 locals ×
//! branches at most in one function, 29 s by this table; Rust's examples: 25,000).

use wasmparser::{BlockType, FuncType, FunctionBody, Operator};

use crate::module::ModuleError;

/// Effort for one function, which one thread compiles, and for all of a module.
pub(crate) const CAREFUL: Limits = Limits { function_us: 4_000_000, module_us: 60_000_000 };
pub(crate) const QUICK: Limits = Limits { function_us: 2_000_000, module_us: 40_000_000 };

/// Most loops within each other that the compiler meets with care: it takes time by the cube.
const LOOPS_DEEP_CAREFUL: u64 = 200;

/// Most calls through tables and of the runtime in a function, likewise: it takes 18 KB for each.
const FAR_CALLS_CAREFUL: u64 = 8_000;

/// Locals that find room in registers; with more, and a use of three of them in every instruction,
/// an instruction takes 18 µs instead of 5. Code that toolkits make is not like that, so this is
/// only asked of single functions.
const LOCALS_UNPRESSED: u64 = 16;
const PRESSED_US: u64 = 13;

/// In microseconds, by the table above.
pub(crate) struct Limits {
    pub(crate) function_us: u64,
    pub(crate) module_us: u64,
}

/// How registers are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// For code that runs fast.
    Full,
    /// In time that is linear.
    Quick,
}

/// The effort for a module's functions so far.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    careful_us: u64,
    quick_us: u64,
    needs_quick: bool,
    functions: u64,
    instructions: u64,
}

/// What counts of one function.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    bytes: u64,
    instructions: u64,
    /// Parameters, locals, and the widest signature of a block.
    width: u64,
    /// Begins and ends of blocks, branches, and targets of tables of branches.
    branches: u64,
    /// Those of tables among them.
    targets: u64,
    /// Of each block, how many it is in.
    block_depths: u64,
    loops: u64,
    /// Of each loop, how many it is in, itself included.
    loop_depths: u64,
    loops_deep: u64,
    calls: u64,
    /// Through tables, or into the runtime.
    far_calls: u64,
}

impl Effort {
    /// Adds a function of this signature. `name` is called if there is something to say of it.
    ///
    /// # Errors
    /// [`ModuleError::Heavy`]; [`ModuleError::Malformed`].
    pub(crate) fn add(
        &mut self,
        signature: Option<&FuncType>,
        types: &[FuncType],
        body: &FunctionBody<'_>,
        name: impl FnOnce() -> String,
    ) -> Result<(), ModuleError> {
        let shape = Shape::of(signature, types, body)
            .map_err(|cause| ModuleError::Malformed { cause: cause.to_string() })?;
        let (careful_us, quick_us) = (shape.careful_us(), shape.quick_us());
        if quick_us > QUICK.function_us {
            return Err(ModuleError::Heavy {
                what: format!("{} has {}", name(), shape.most()),
                effort_s: quick_us as f64 / 1e6,
                limit_s: QUICK.function_us as f64 / 1e6,
            });
        }
        self.careful_us = self.careful_us.saturating_add(careful_us);
        self.quick_us = self.quick_us.saturating_add(quick_us);
        self.needs_quick |= careful_us.saturating_add(shape.pressed_us()) > CAREFUL.function_us
            || shape.loops_deep > LOOPS_DEEP_CAREFUL
            || shape.far_calls > FAR_CALLS_CAREFUL;
        self.functions += 1;
        self.instructions += shape.instructions;
        Ok(())
    }

    /// How the module is to be compiled.
    ///
    /// # Errors
    /// [`ModuleError::Heavy`].
    pub(crate) fn care(&self) -> Result<Care, ModuleError> {
        if self.quick_us > QUICK.module_us {
            let (functions, instructions) = (self.functions, self.instructions);
            return Err(ModuleError::Heavy {
                what: format!(
                    "all its {functions} functions together have {instructions} instructions"
                ),
                effort_s: self.quick_us as f64 / 1e6,
                limit_s: QUICK.module_us as f64 / 1e6,
            });
        }
        match self.needs_quick || self.careful_us > CAREFUL.module_us {
            true => Ok(Care::Quick),
            false => Ok(Care::Full),
        }
    }
}

impl Shape {
    fn of(
        signature: Option<&FuncType>,
        types: &[FuncType],
        body: &FunctionBody<'_>,
    ) -> Result<Shape, wasmparser::BinaryReaderError> {
        let bytes = body.range().len() as u64;
        let mut shape = Shape { bytes, ..Shape::default() };
        let parameters = signature.map_or(0, |signature| signature.params().len() as u64);
        let mut locals = parameters;
        for group in body.get_locals_reader()? {
            // At most 50,000 by the parser's own limit, which the compiler names when it validates.
            locals = locals.saturating_add(u64::from(group?.0));
        }
        let mut widest = 0;
        // Whether each open block is a loop.
        let mut open: Vec<bool> = Vec::new();
        let mut depth = 0;
        for operator in body.get_operators_reader()? {
            shape.instructions += 1;
            let blocks = open.len() as u64;
            match operator? {
                Operator::Loop { blockty } => {
                    open.push(true);
                    depth += 1;
                    shape.loops += 1;
                    shape.loop_depths += depth;
                    shape.loops_deep = shape.loops_deep.max(depth);
                    shape.block_depths += blocks;
                    shape.branches += 1;
                    widest = width(blockty, types).max(widest);
                }
                Operator::Block { blockty } | Operator::If { blockty } => {
                    open.push(false);
                    shape.block_depths += blocks;
                    shape.branches += 1;
                    widest = width(blockty, types).max(widest);
                }
                Operator::End => {
                    depth -= u64::from(open.pop() == Some(true));
                    shape.branches += 1;
                }
                Operator::BrTable { targets } => {
                    shape.branches += 1 + u64::from(targets.len());
                    shape.targets += u64::from(targets.len());
                }
                Operator::Else
                | Operator::Br { .. }
                | Operator::BrIf { .. }
                | Operator::Return
                | Operator::Unreachable => shape.branches += 1,
                Operator::Call { .. } => shape.calls += 1,
                other => shape.far_calls += u64::from(is_far_call(&other)),
            }
        }
        shape.width = locals + widest;
        Ok(shape)
    }

    fn crossings(&self) -> u64 {
        self.width.saturating_mul(self.branches)
    }

    fn careful_us(&self) -> u64 {
        let unpressed = self.width.saturating_sub(LOCALS_UNPRESSED);
        let pressed = unpressed.saturating_mul(self.instructions) / 10;
        let crossed = self.crossings().saturating_sub(2 * self.bytes).saturating_mul(5);
        let looped = self.width.saturating_mul(self.loop_depths).saturating_mul(5) / 2;
        let squares = self.loops.pow(2) / 15 + self.far_calls.pow(2) / 300;
        (75 + 5 * self.instructions + 15 * self.calls + 100 * self.far_calls)
            .saturating_add(self.block_depths * 2 / 5)
            .saturating_add(squares)
            .saturating_add(pressed)
            .saturating_add(crossed)
            .saturating_add(looped)
    }

    /// What it may take more at the worst.
    fn pressed_us(&self) -> u64 {
        if self.width > LOCALS_UNPRESSED { PRESSED_US * self.instructions } else { 0 }
    }

    fn quick_us(&self) -> u64 {
        let each = 2 * self.instructions + self.branches + 10 * self.targets + 5 * self.calls;
        (55 + each + 50 * self.far_calls + 40 * self.loops).saturating_add(self.crossings() / 2)
    }

    /// What makes most of the effort, for people.
    fn most(&self) -> String {
        let parts = [
            (2 * self.instructions, format!("{} instructions", self.instructions)),
            (5 * self.calls, format!("{} calls", self.calls)),
            (
                50 * self.far_calls,
                format!("{} calls through tables or of the runtime", self.far_calls),
            ),
            (40 * self.loops, format!("{} loops", self.loops)),
            (
                self.crossings() / 2,
                format!("{} locals and {} blocks and branches", self.width, self.branches),
            ),
            (
                self.branches + 10 * self.targets,
                format!(
                    "{} blocks and branches, {} of them in tables",
                    self.branches, self.targets
                ),
            ),
        ];
        parts
            .into_iter()
            .max_by_key(|(effort, _)| *effort)
            .map(|(_, said)| said)
            .unwrap_or_default()
    }
}

/// Whether it calls through a table, or what the compiler leaves to the runtime.
fn is_far_call(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::CallIndirect { .. }
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. }
            | Operator::RefFunc { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::TableGet { .. }
            | Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableCopy { .. }
            | Operator::TableFill { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
    )
}

/// Parameters and results of a block.
fn width(block: BlockType, types: &[FuncType]) -> u64 {
    match block {
        BlockType::Empty => 0,
        BlockType::Type(_) => 1,
        BlockType::FuncType(index) => {
            let signature = types.get(index as usize);
            signature.map_or(0, |s| (s.params().len() + s.results().len()) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    /// How a function with these locals and this code is compiled, or what is said of it.
    fn of(locals: usize, code: &str, times: usize) -> Result<Care, String> {
        let locals = "i32 ".repeat(locals);
        let code = code.repeat(times);
        let wat = format!(
            "(module (memory 1) (table 1 funcref) (type $t (func)) (func)
               (func $heavy (local {locals}) {code}))"
        );
        let checked = check(&wat::parse_str(wat).unwrap());
        checked.map(|checked| checked.care).map_err(|error| error.to_string())
    }

    #[test]
    fn what_takes_the_careful_compiler_long_is_compiled_quickly_and_what_takes_both_is_refused() {
        let check = |locals, code: &str, [full, quick, heavy]: [usize; 3], said: &str| {
            assert_eq!(of(locals, code, full), Ok(Care::Full), "{code}");
            assert_eq!(of(locals, code, quick), Ok(Care::Quick), "{code}");
            let refused = of(locals, code, heavy).unwrap_err();
            assert!(refused.contains("function 1 (\"heavy\") has "), "{refused}");
            assert!(refused.contains(said), "{refused}");
            assert!(refused.contains("and at most 2 s are given"), "{refused}");
        };
        check(1, "(loop)", [5_000, 10_000, 60_000], "60000 loops");
        check(1, "(call_indirect (i32.const 0))", [5_000, 10_000, 50_000], "50000 calls through");
        check(1, "(drop (memory.grow (i32.const 0)))", [5_000, 10_000, 50_000], "of the runtime");
        let set = "(local.set 0 (i32.const 7))";
        assert_eq!(
            (of(1000, set, 2_000), of(1000, set, 30_000)),
            (Ok(Care::Full), Ok(Care::Quick))
        );
        check(2000, "(block)", [100, 800, 2_000], "2000 locals and 4001 blocks");
        let targets = format!("(block (br_table {} (i32.const 0)))", "0 ".repeat(1000));
        check(20, &targets, [20, 50, 200], "blocks and branches");
    }

    #[test]
    fn loops_in_each_other_are_compiled_quickly() {
        let nest =
            |depth: usize| of(1, &format!("{}{}", "(loop ".repeat(depth), ")".repeat(depth)), 1);
        assert_eq!((nest(150), nest(250)), (Ok(Care::Full), Ok(Care::Quick)));
    }

    #[test]
    fn all_functions_together_have_a_limit() {
        let locals = "i32 ".repeat(2000);
        let function = format!("(func (local {locals}) {})", "(block)".repeat(150));
        let all = |count: usize| {
            let wat = format!("(module {})", function.repeat(count));
            check(&wat::parse_str(wat).unwrap()).map(|c| c.care).map_err(|e| e.to_string())
        };
        assert_eq!((all(10), all(30)), (Ok(Care::Full), Ok(Care::Quick)));
        let refused = all(140).unwrap_err();
        assert!(refused.contains("all its 140 functions together have 42140"), "{refused}");
    }
}
