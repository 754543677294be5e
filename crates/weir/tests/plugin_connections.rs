//! Plugins that see connections: proxy-wasm's callbacks for them, both ways, and Weir's own hook.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::free_address;
use common::server::Weir;

/// The head of a proxy-wasm module.
const PROXY_WASM: &str = r#"
 (import "env" "proxy_set_buffer_bytes" (func $set (param i32 i32 i32 i32 i32) (result i32)))
 (import "env" "proxy_get_buffer_bytes" (func $get (param i32 i32 i32 i32 i32) (result i32)))
 (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
 (import "env" "proxy_close_stream" (func $close (param i32) (result i32)))
 (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
 (import "env" "proxy_set_effective_context" (func $turn (param i32) (result i32)))
 (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
 (memory (export "memory") 1)
 (global $held (mut i32) (i32.const 0))
 (data (i32.const 100) "X-Tapped: yes\r\n")
 (data (i32.const 200) "downstream closed")
 (func (export "proxy_abi_version_0_2_1"))
 (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 4096))
"#;

/// A server whose site has one plugin on its connections.
fn start(plugin: &str) -> (Weir, SocketAddr) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tap.wat"), format!("(module {plugin})")).unwrap();
    let address = free_address();
    let config = format!(
        "server {{ admin \"off\"; workers 1 }}\n\
         plugin \"tap\" {{ source \"tap.wat\"; on-failure \"fail\" }}\n\
         site \"*\" {{ listen \"{address}\"; use \"tap\"; route \"/*\" {{ respond \"hello\" }} }}"
    );
    (Weir::run_in(directory, &config, &[address]), address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// What comes until the connection ends, or nothing if it is reset.
fn read_all(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn bytes_for_the_client_are_changed_on_their_way() {
    let (_weir, address) = start(&format!(
        r#"{PROXY_WASM}
        (func (export "proxy_on_upstream_data") (param i32 i32 i32) (result i32)
          (if (i32.gt_u (local.get 1) (i32.const 17))
            (then (drop (call $set (i32.const 3) (i32.const 17) (i32.const 0)
                                   (i32.const 100) (i32.const 15)))))
          (i32.const 0))"#
    ));
    let mut stream = connect(address);
    stream.write_all(REQUEST).unwrap();
    let response = read_all(stream);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\nX-Tapped: yes\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
}

#[test]
fn bytes_from_the_client_are_held_until_there_are_enough() {
    // It pauses until 30 bytes are there, and sees what came before again.
    let (_weir, address) = start(&format!(
        r#"{PROXY_WASM}
        (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
          (if (i32.ge_u (local.get 1) (i32.const 30)) (then (global.set $held (i32.const 1))))
          (i32.eqz (global.get $held)))"#
    ));
    let mut stream = connect(address);
    for part in REQUEST.chunks(9) {
        stream.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let response = read_all(stream);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[test]
fn held_bytes_are_let_go_by_a_timer() {
    let (_weir, address) = start(&format!(
        r#"{PROXY_WASM}
        (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
          (global.set $held (local.get 0))
          (drop (call $tick (i32.const 20)))
          (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
          (if (global.get $held)
            (then (drop (call $turn (global.get $held)))
                  (drop (call $continue (i32.const 2))))))"#
    ));
    let mut stream = connect(address);
    stream.write_all(REQUEST).unwrap();
    let response = read_all(stream);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[test]
fn a_plugin_closes_a_connection() {
    let (_weir, address) = start(&format!(
        r#"{PROXY_WASM}
        (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
          (drop (call $close (i32.const 2)))
          (i32.const 1))"#
    ));
    let mut stream = connect(address);
    stream.write_all(REQUEST).unwrap();
    assert_eq!(read_all(stream), "");
}

#[test]
fn a_plugin_that_fails_costs_the_connection_if_it_must_not() {
    let (_weir, address) = start(&format!(
        r#"{PROXY_WASM}
        (func (export "proxy_on_new_connection") (param i32) (result i32) unreachable)"#
    ));
    let mut stream = connect(address);
    let _ = stream.write_all(REQUEST);
    assert_eq!(read_all(stream), "");
}

#[test]
fn the_end_of_a_connection_is_told() {
    let (weir, address) = start(&format!(
        r#"{PROXY_WASM}
        (func (export "proxy_on_downstream_connection_close") (param i32 i32)
          (drop (call $log (i32.const 2) (i32.const 200) (i32.const 17))))
        (func (export "proxy_on_downstream_data") (param i32 i32 i32) (result i32)
          (i32.const 0))"#
    ));
    let mut stream = connect(address);
    stream.write_all(REQUEST).unwrap();
    let response = read_all(stream);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    weir.wait_for_log("downstream closed");
}

#[test]
fn weirs_own_hook_refuses_connections() {
    // One edit: CLOSE, without name and value.
    let (_weir, address) = start(
        r#"(memory (export "memory") 4)
        (data (i32.const 512) "\12\00\00\00\00\00\00\00")
        (func (export "weir_abi_1"))
        (func (export "weir_buffer") (param i32 i32) (result i32)
          (i32.add (i32.const 1024) (i32.mul (local.get 0) (i32.const 66560))))
        (func (export "weir_on_connection") (param i32) (result i64)
          (i64.const 0x20000000008))"#,
    );
    let mut stream = connect(address);
    let _ = stream.write_all(REQUEST);
    assert_eq!(read_all(stream), "");
}
