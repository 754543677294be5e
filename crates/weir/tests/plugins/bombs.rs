//! Modules that are meant to take the compiler, or the server, for ever.

use std::time::{Duration, Instant};

use crate::bystanders::undisturbed;
use crate::site::setup;
use crate::{GOOD_ROUTES, good};

/// A module in its binary form.
#[derive(Default)]
struct Binary(Vec<u8>);

fn leb(mut number: usize, to: &mut Vec<u8>) {
    loop {
        let byte = (number & 0x7f) as u8;
        number >>= 7;
        to.push(byte | if number > 0 { 0x80 } else { 0 });
        if number == 0 {
            return;
        }
    }
}

/// Items with their count before them.
fn vector(items: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb(items.len(), &mut bytes);
    items.iter().for_each(|item| bytes.extend(item));
    bytes
}

impl Binary {
    fn new() -> Binary {
        Binary(b"\0asm\x01\0\0\0".to_vec())
    }

    fn section(mut self, id: u8, content: &[u8]) -> Binary {
        self.0.push(id);
        leb(content.len(), &mut self.0);
        self.0.extend(content);
        self
    }
}

fn export(name: &str, kind: u8, index: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    leb(name.len(), &mut bytes);
    bytes.extend(name.as_bytes());
    bytes.push(kind);
    leb(index, &mut bytes);
    bytes
}

pub(crate) fn body(locals: usize, code: &[u8]) -> Vec<u8> {
    let mut inner = Vec::new();
    match locals {
        0 => inner.push(0),
        count => {
            inner.push(1);
            leb(count, &mut inner);
            inner.push(0x7f);
        }
    }
    inner.extend(code);
    inner.push(0x0b);
    let mut bytes = Vec::new();
    leb(inner.len(), &mut bytes);
    bytes.extend(inner);
    bytes
}

/// A plugin with more types, and functions of the type `() -> ()` with these bodies.
pub(crate) fn plugin(more_types: usize, tables: &[Vec<u8>], bodies: Vec<Vec<u8>>) -> Vec<u8> {
    let mut types = vec![vec![0x60, 0, 0], vec![0x60, 2, 0x7f, 0x7f, 1, 0x7f]];
    types.extend((0..more_types).map(|_| vec![0x60, 0, 0]));
    let mut functions = vec![vec![0], vec![1]];
    functions.extend(bodies.iter().map(|_| vec![0]));
    // weir_abi_1, and weir_buffer: 64 KiB behind the other.
    let buffer = [0x20, 0, 0x41, 0x80, 0x80, 4, 0x6c, 0x41, 0x80, 0x08, 0x6a];
    let mut code = vec![body(0, &[]), body(0, &buffer)];
    code.extend(bodies);
    let exports = [export("memory", 2, 0), export("weir_abi_1", 0, 0), export("weir_buffer", 0, 1)];
    let mut module = Binary::new().section(1, &vector(&types)).section(3, &vector(&functions));
    if !tables.is_empty() {
        module = module.section(4, &vector(tables));
    }
    module.section(5, &[1, 0, 8]).section(7, &vector(&exports)).section(10, &vector(&code)).0
}

/// A table of function references with so many elements.
fn table(elements: usize) -> Vec<u8> {
    let mut bytes = vec![0x70, 0];
    leb(elements, &mut bytes);
    bytes
}

/// `local.get 0; i32.const 7; i32.add; local.set 0`, again and again.
fn sums(bytes: usize) -> Vec<u8> {
    [0x20, 0, 0x41, 7, 0x6a, 0x21, 0].repeat(bytes / 7)
}

fn blocks(depth: usize) -> Vec<u8> {
    [[0x02, 0x40].repeat(depth), vec![0x0b; depth]].concat()
}

/// Loops one after the other, each of which may go round again by one of the locals.
pub(crate) fn loops(count: usize, locals: usize) -> Vec<u8> {
    let mut code = Vec::new();
    for number in 0..count {
        code.extend([0x03, 0x40, 0x20]);
        leb(number % locals, &mut code);
        code.extend([0x0d, 0, 0x0b]);
    }
    code
}

/// The same, within each other.
fn nested(depth: usize, locals: usize) -> Vec<u8> {
    let mut code = [0x03, 0x40].repeat(depth);
    for number in 0..depth {
        code.push(0x20);
        leb(number % locals, &mut code);
        code.extend([0x0d, 0, 0x0b]);
    }
    code
}

#[test]
fn modules_that_are_bombs_are_refused() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    let check = |what: &str, module: Vec<u8>, why: Option<&str>| {
        let began = Instant::now();
        let (status, said) = site.deploy("bomb", &module);
        let took = began.elapsed();
        match why {
            None => assert_eq!(status, 200, "{what}: {said}"),
            Some(why) => {
                assert!((400..500).contains(&status), "{what}: {status} {said}");
                assert!(said.contains(why), "{what}: {said}");
                assert!(took < Duration::from_secs(10), "{what} took {took:?}");
            }
        }
    };
    undisturbed(&site, || {
        check("nothing of it", plugin(0, &[], vec![]), None);
        check("table", plugin(0, &[table(50_000_000)], vec![]), Some("table elements"));
        check("table by policy", plugin(0, &[table(9_000_000)], vec![]), Some("bomb"));
        let tables: Vec<_> = (0..100).map(|_| table(1)).collect();
        check("tables", plugin(0, &tables, vec![]), Some("tables"));
        check("types", plugin(100_000, &[], vec![]), Some("types"));
        let functions = (0..300_000).map(|_| body(0, &[])).collect();
        check("functions", plugin(0, &[], functions), Some("functions"));
        check(
            "function",
            plugin(0, &[], vec![body(1, &sums(5 << 20))]),
            Some("function 2 has 5242"),
        );
        check("locals", plugin(0, &[], vec![body(100_000, &[])]), Some("local"));
        // 28 KB, for which the compiler would take minutes and gigabytes.
        check(
            "locals and loops",
            plugin(0, &[], vec![body(4_000, &loops(4_000, 4_000))]),
            Some("too long: function 2 has 4000 locals and 12001 blocks and branches, about 24"),
        );
        check("cut off", plugin(0, &[], vec![])[..60].to_vec(), Some("not a WebAssembly module"));
        check("large", vec![b'x'; 70 << 20], Some(""));
    });
}

/// What the limits let through is compiled, away from the workers, however long it takes.
#[test]
fn modules_that_take_the_compiler_long_stall_nobody() {
    let site = setup().plugin("good", &good(), "").run(GOOD_ROUTES);
    undisturbed(&site, || {
        for (what, code) in [
            ("one large function", vec![body(1, &sums(200 << 10))]),
            ("deep blocks", vec![body(0, &blocks(20_000))]),
            // These by the compiler's quick way, whose code is as good for the engine.
            ("loops", vec![body(10, &loops(8_000, 10))]),
            ("loops in each other", vec![body(10, &nested(300, 10))]),
            ("many functions", (0..5_000).map(|_| body(1, &sums(70))).collect()),
        ] {
            let began = Instant::now();
            let (status, said) = site.deploy("slow", &plugin(0, &[], code));
            eprintln!("{what}: {:?}", began.elapsed());
            assert_eq!(status, 200, "{what}: {said}");
        }
    });
}
