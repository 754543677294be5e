//! What adapters of a route declare, whoever has made them, as operators see it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use common::free_address;
use common::server::{Weir, command};
use serde_json::{Value, json};

const GRAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/built/gray-rust.wasm");

#[test]
fn adapters_of_all_kinds_are_declared_in_order() {
    let admin = free_address();
    let rest = format!(
        "server {{ workers 1; admin \"{admin}\"; }}\n\
         plugin \"gray\" {{ source {GRAY:?}; }}\n\
         plugin \"gray-too\" {{ source {GRAY:?}; }}\n\
         icap \"scanner\" {{ respmod \"icap://127.0.0.1:9/scan\"; timeout \"3s\"; }}"
    );
    let site = "route \"/plain/*\" { respond \"x\"; }\n\
        route \"/*\" {\n\
            proxy \"http://127.0.0.1:9\"\n\
            use \"gray\"\n\
            use \"gray-too\" at=\"fill\"\n\
            icap \"scanner\"\n\
            image max-width=640\n\
            html { strip \"comments\"; }\n\
            compress \"br\" wait=\"20ms\" { types \"text/*\"; }\n\
        }";
    let (weir, _) = Weir::front(&rest, site);
    let admin = admin.to_string();
    let out = command(weir.directory(), &["status", "--json", "--admin", &admin]);
    let status: Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = status["adapters"].as_array().unwrap();
    let named: Vec<_> = rows.iter().map(|row| (&row["stage"], &row["name"])).collect();
    assert_eq!(
        json!(named),
        json!([
            ["fill", "scanner"],
            ["fill", "gray-too"],
            ["variant", "image"],
            ["variant", "html"],
            ["variant", "compress"],
            ["delivery", "gray"],
        ])
    );
    assert!(rows.iter().all(|row| row["site"] == "*" && row["route"] == "/*"), "{status:#}");
    assert_eq!(rows[0]["cost"], json!({ "paid_by": "service", "timeout_ms": 3000 }));
    assert_eq!(rows[1]["cost"]["paid_by"], "worker");
    assert_eq!((&rows[2]["key"], &rows[2]["streams"]), (&json!(["accept"]), &json!(false)));
    let compress = &rows[4];
    assert_eq!(compress["takes"], json!(["text/*"]));
    assert_eq!(compress["key"], json!(["accept-encoding"]));
    let cost = json!({ "paid_by": "helpers", "ns_per_byte": 2500, "wait_ms": 20 });
    assert_eq!((&compress["cost"], &compress["streams"]), (&cost, &json!(true)));

    let text = command(weir.directory(), &["status", "--admin", &admin]).stdout;
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.contains(" compress ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..4], ["*/*", "variant", "compress", "yes"], "{text}");
    assert!(line.ends_with("accept-encoding"), "{text}");
}
