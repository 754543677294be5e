//! Every hook and every edit.

use super::*;
use crate::exchange::Want;
use crate::own::hook::Hook;
use crate::own::ops::OPS;

#[test]
fn modules_must_export_what_the_interface_says() {
    let memory = r#"(memory (export "memory") 1)"#;
    let marker = r#"(func (export "weir_abi_1"))"#;
    let buffer = r#"(func (export "weir_buffer") (param i32 i32) (result i32) (i32.const 8))"#;
    let cases = [
        (format!("(module {marker} {buffer})"), "does not export memory"),
        (format!("(module {marker} {memory})"), "does not export weir_buffer"),
        (
            format!(r#"(module {marker} {memory} (func (export "weir_buffer")))"#),
            "weir_buffer has another type",
        ),
        (
            format!(r#"(module {marker} {memory} {buffer} (func (export "weir_on_request")))"#),
            "weir_on_request has another type",
        ),
        (
            format!(
                r#"(module {marker} {memory} {buffer}
                    (func (export "weir_on_reqest") (param i32) (result i64) (i64.const 0)))"#
            ),
            "exports weir_on_reqest, and Weir has no such hook",
        ),
    ];
    for (module, expected) in cases {
        let error = refused(&module).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_frame_shows_the_request() {
    let mut puppet = Puppet::new(&with_hook("weir_on_request", &List::new()));
    puppet.exchange().note = 0x1122_3344_5566_7788;
    assert_eq!(puppet.run(Phase::RequestHead, true).unwrap(), Action::Continue);
    let at = FRAME_AT;
    assert_eq!(puppet.half(at), 2);
    assert_eq!(puppet.half(at + 4), 1 | 2 | 4);
    assert_ne!(puppet.word(at + 8), 0);
    assert_eq!(puppet.word(at + 16), 0x1122_3344_5566_7788);
    let line = [puppet.text(at + 24), puppet.text(at + 32), puppet.text(at + 40)];
    assert_eq!(line, ["GET", "example.org:8443", "/path?query=1"]);
    assert_eq!(puppet.memory(at + 58, 6), [255, 255, 192, 0, 2, 1]);
    assert_eq!(puppet.half(at + 64), 4711 | 136 << 16);
    assert_eq!(puppet.half(at + 68), 201);
    let fields = puppet.fields(at + 72);
    let fields: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    assert_eq!(fields, [("accept", "*/*"), ("x-two", "one"), ("x-two", "two")]);
    assert_eq!(puppet.fields(at + 80), [("server".to_owned(), "weir".to_owned())]);
    assert_eq!(puppet.word(at + 88), 0);
}

#[test]
fn each_hook_is_called_and_only_if_it_is_there() {
    let phases = [
        Phase::Connection,
        Phase::RequestHead,
        Phase::RequestBody,
        Phase::RequestTrailers,
        Phase::Lookup,
        Phase::Hit,
        Phase::Miss,
        Phase::Store,
        Phase::ResponseHead,
        Phase::ResponseBody,
        Phase::ResponseTrailers,
    ];
    for phase in phases {
        let hook = Hook::of(phase).unwrap();
        let list = List::new().long(Op::Note, 77);
        let mut puppet = Puppet::new(&with_hook(hook.export(), &list));
        for other in phases {
            puppet.hook(other).unwrap();
            let expected = if other == phase { 77 } else { 0 };
            assert_eq!(std::mem::take(&mut puppet.exchange().note), expected, "{other:?}");
        }
        assert_eq!(puppet.half(FRAME_AT), hook as usize);
    }
}

#[test]
fn the_log_is_the_last_hook_and_takes_no_edits() {
    let mut puppet = Puppet::new(&with_hook("weir_on_log", &List::new()));
    puppet.guest.close(&mut puppet.store, ID).unwrap();
    assert_eq!(puppet.half(FRAME_AT), 12);
    assert!(puppet.store.data().exchanges.is_empty());
    let list = List::new().long(Op::Note, 1);
    let mut puppet = Puppet::new(&with_hook("weir_on_log", &list));
    let failure = puppet.guest.close(&mut puppet.store, ID).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(failure.message.contains("takes no edits"), "{failure}");
    assert!(puppet.store.data().exchanges.is_empty());
}

#[test]
fn a_tick_has_no_request() {
    let mut puppet = Puppet::new(&with_hook("weir_on_tick", &List::new()));
    puppet.guest.tick(&mut puppet.store).unwrap();
    assert_eq!(puppet.half(FRAME_AT), 13);
    assert_eq!(puppet.word(FRAME_AT + 8), 0);
}

#[test]
fn heads_are_changed() {
    let list = List::new()
        .line(Op::Set, "X-Two", " three ")
        .line(Op::Add, "x-new", "a")
        .line(Op::Add, "x-new", "b")
        .raw(Op::Remove as u8, b"accept", b"")
        .text(Op::Method, "POST")
        .text(Op::Target, "/other")
        .text(Op::Authority, "example.net")
        .text(Op::Upstream, "app")
        .number(Op::Want, 2)
        .bare(Op::Route);
    let mut puppet = Puppet::new(&with_hook("weir_on_request", &list));
    assert_eq!(puppet.hook(Phase::RequestHead).unwrap(), Action::Continue);
    let exchange = puppet.exchange();
    let head = exchange.request.as_ref().unwrap().get();
    assert_eq!(head.headers, headers(&[("x-two", "three"), ("x-new", "a"), ("x-new", "b")]));
    assert_eq!((head.method.as_str(), &head.target[..]), ("POST", "/other"));
    assert_eq!(head.authority, "example.net");
    assert_eq!(exchange.wishes.upstream.as_deref(), Some("app"));
    assert_eq!(exchange.wishes.request_body, Want::Whole);
    assert!(exchange.wishes.reroute);

    let list = List::new().number(Op::Status, 404).line(Op::Set, "server", "x").number(Op::Want, 1);
    let mut puppet = Puppet::new(&with_hook("weir_on_response", &list));
    puppet.hook(Phase::ResponseHead).unwrap();
    let exchange = puppet.exchange();
    let head = exchange.response.as_ref().unwrap().get();
    assert_eq!((head.status.as_u16(), &head.headers), (404, &headers(&[("server", "x")])));
    assert_eq!(exchange.wishes.response_body, Want::Pieces);
}

#[test]
fn a_plugin_answers_or_closes_from_any_hook() {
    let list = List::new()
        .number(Op::Answer, 403)
        .line(Op::Set, "content-type", "text/plain")
        .line(Op::Add, "x-why", "because")
        .text(Op::Body, "no ")
        .elsewhere(Op::Body, 1028, 4)
        .line(Op::Trailer, "x-end", "1")
        .long(Op::Note, 9);
    let close = List::new().bare(Op::Close);
    for hook in Hook::ALL.into_iter().filter(|hook| (*hook as u32) < Hook::Log as u32) {
        let phase = [
            Phase::Connection,
            Phase::RequestHead,
            Phase::RequestBody,
            Phase::RequestTrailers,
            Phase::Lookup,
            Phase::Hit,
            Phase::Miss,
            Phase::Store,
            Phase::ResponseHead,
            Phase::ResponseBody,
            Phase::ResponseTrailers,
        ][hook as usize - 1];
        let mut puppet = Puppet::new(&with_hook(hook.export(), &list));
        puppet.hook(phase).unwrap();
        let exchange = puppet.exchange();
        assert_eq!(exchange.note, 9);
        let answer = exchange.wishes.answer.take().unwrap();
        assert_eq!(answer.status, 403);
        assert_eq!(
            answer.headers,
            headers(&[("content-type", "text/plain"), ("x-why", "because")])
        );
        assert_eq!(&answer.body[..], b"no \x04\0\0\0", "the list's own bytes 4 to 7");
        assert_eq!(answer.trailers, headers(&[("x-end", "1")]));
        let mut puppet = Puppet::new(&with_hook(hook.export(), &close));
        puppet.hook(phase).unwrap();
        assert!(puppet.exchange().wishes.close);
    }
}

#[test]
fn the_cache_is_steered() {
    let list = List::new().text(Op::Key, "variant=a").number(Op::Cache, 1);
    let mut puppet = Puppet::new(&with_hook("weir_on_lookup", &list));
    puppet.hook(Phase::Lookup).unwrap();
    let wish = &puppet.exchange().wishes.cache;
    assert_eq!((wish.key.as_deref(), wish.pass), (Some(&b"variant=a"[..]), true));

    let list = List::new().number(Op::Cache, 2);
    let mut puppet = Puppet::new(&with_hook("weir_on_hit", &list));
    puppet.exchange().stored.ttl_ms = -7;
    puppet.exchange().stored.age_ms = 8;
    puppet.hook(Phase::Hit).unwrap();
    assert!(puppet.exchange().wishes.cache.validate);
    assert_eq!(puppet.word(FRAME_AT + 112).cast_signed(), -7);
    assert_eq!(puppet.word(FRAME_AT + 120), 8);

    let list = List::new().long(Op::Ttl, 5000).bare(Op::NoStore);
    let mut puppet = Puppet::new(&with_hook("weir_on_store", &list));
    puppet.hook(Phase::Store).unwrap();
    let wish = &puppet.exchange().wishes.cache;
    assert_eq!((wish.ttl_ms, wish.no_store), (Some(5000), true));
}

#[test]
fn bodies_pass_untouched_or_become_something_else() {
    let mut puppet = Puppet::new(&with_hook("weir_on_response_body", &List::new()));
    let piece = Bytes::from_static(b"untouched");
    puppet.exchange().response_body.push(piece.clone());
    puppet.hook(Phase::ResponseBody).unwrap();
    assert_eq!(puppet.text(FRAME_AT + 96), "untouched");
    let after = puppet.exchange().response_body.take();
    assert_eq!(after[0].as_ptr(), piece.as_ptr(), "nothing was copied back");

    let span = [1_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    let list = List::new()
        .text(Op::Body, "<")
        .raw(Op::Piece as u8, b"", &span)
        .elsewhere(Op::Body, BODY_AT as u32, 2)
        .line(Op::Trailer, "x-sum", "1");
    let mut puppet = Puppet::new(&with_hook("weir_on_response_body", &list));
    assert_eq!(puppet.piece(b"abcd", false).unwrap(), b"<bcab");
    assert_eq!(puppet.exchange().response_trailers, headers(&[("x-sum", "1")]));
    let list = List::new().text(Op::Body, "");
    let mut puppet = Puppet::new(&with_hook("weir_on_response_body", &list));
    assert_eq!(puppet.piece(b"abcd", false).unwrap(), b"");
}

#[test]
fn what_is_kept_comes_again_in_front_of_the_next_piece() {
    // Keeps as many bytes as the piece has beyond a multiple of 3, unless it is the last.
    let functions = r#"
        (func (export "weir_on_response_body") (param $frame i32) (result i64)
            (if (i32.and (i32.load offset=4 (local.get $frame)) (i32.const 2))
                (then (return (i64.const 0))))
            (i32.store (i32.const 1032)
                (i32.rem_u (i32.load offset=100 (local.get $frame)) (i32.const 3)))
            (i64.const 0x4000000000c))
        (data (i32.const 1024) "\16\00\00\00\04\00\00\00")"#;
    let mut puppet = Puppet::new(&module(functions));
    assert_eq!(puppet.piece(b"abcd", false).unwrap(), b"abc");
    assert_eq!(puppet.word(FRAME_AT + 104), 0);
    assert_eq!(puppet.piece(b"ef", false).unwrap(), b"def");
    assert_eq!(puppet.word(FRAME_AT + 104), 3, "the piece begins with what was kept");
    assert_eq!(puppet.piece(b"gh", false).unwrap(), b"");
    assert_eq!(puppet.piece(b"", true).unwrap(), b"gh");
    assert_eq!(puppet.text(FRAME_AT + 96), "gh");
}

#[test]
fn trailers_are_changed_in_their_hooks() {
    let list = List::new().line(Op::Set, "x-a", "2").line(Op::Trailer, "x-b", "3").raw(
        Op::Remove as u8,
        b"x-c",
        b"",
    );
    let mut puppet = Puppet::new(&with_hook("weir_on_request_trailers", &list));
    puppet.exchange().request_trailers = headers(&[("x-a", "1"), ("x-c", "1")]);
    puppet.run(Phase::RequestTrailers, true).unwrap();
    assert_eq!(puppet.fields(FRAME_AT + 88).len(), 2);
    assert_eq!(puppet.exchange().request_trailers, headers(&[("x-a", "2"), ("x-b", "3")]));
    let mut puppet = Puppet::new(&with_hook("weir_on_response_trailers", &list));
    puppet.run(Phase::ResponseTrailers, true).unwrap();
    assert_eq!(puppet.exchange().response_trailers, headers(&[("x-a", "2"), ("x-b", "3")]));
}

#[test]
fn plugins_need_not_be_shown_what_they_do_not_want() {
    let wants = |mask: i32| {
        module(&format!(
            r#"{} (func (export "weir_wants") (param i32) (result i32) (i32.const {mask}))"#,
            hook("weir_on_request", 1024, &List::new())
        ))
    };
    let mut puppet = Puppet::new(&wants(0));
    puppet.hook(Phase::RequestHead).unwrap();
    let nothing =
        [puppet.word(FRAME_AT + 24), puppet.word(FRAME_AT + 72), puppet.word(FRAME_AT + 80)];
    assert_eq!((nothing, puppet.half(FRAME_AT + 4)), ([0; 3], 0));
    let mut puppet = Puppet::new(&wants(1));
    puppet.hook(Phase::RequestHead).unwrap();
    assert_eq!((puppet.text(FRAME_AT + 24), puppet.half(FRAME_AT + 72)), ("GET".to_owned(), 0));
    let mut puppet = Puppet::new(&wants(2 | 4));
    puppet.hook(Phase::RequestHead).unwrap();
    let seen = [puppet.half(FRAME_AT + 72), puppet.half(FRAME_AT + 80), puppet.half(FRAME_AT + 68)];
    assert_eq!(seen, [3, 0, 201]);
}

#[test]
fn a_frame_that_does_not_fit_gets_a_larger_buffer() {
    let mut puppet = Puppet::new(&with_hook("weir_on_request", &List::new()));
    let long = HeaderValue::try_from("v".repeat(30_000)).unwrap();
    let Some(Lent::Own(head)) = &mut puppet.exchange().request else { unreachable!() };
    head.headers.insert("x-long", long.clone());
    puppet.hook(Phase::RequestHead).unwrap();
    assert_eq!(puppet.fields(FRAME_AT + 72)[3].1.len(), 30_000);
    let Some(Lent::Own(head)) = &mut puppet.exchange().request else { unreachable!() };
    for _ in 0..3 {
        head.headers.append("x-long", long.clone());
    }
    let failure = puppet.hook(Phase::RequestHead).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Memory);
    assert!(failure.message.contains("weir_buffer(0, "), "{failure}");
}

#[test]
fn buffers_are_looked_at_with_suspicion() {
    let cases = [
        ("(i32.const 0)", FailureKind::Memory, "gave no memory"),
        ("(i32.const 12)", FailureKind::Protocol, "no multiple of 8"),
        ("(i32.const 0x7ffffff8)", FailureKind::Protocol, "not 16384 bytes of the plugin's memory"),
        ("(i32.const -8)", FailureKind::Protocol, "not 16384 bytes of the plugin's memory"),
        ("(unreachable)", FailureKind::Trap, "unreachable"),
    ];
    for (gives, kind, expected) in cases {
        let module = format!(
            r#"(module (memory (export "memory") 1) (func (export "weir_abi_1"))
                (func (export "weir_buffer") (param i32 i32) (result i32) {gives}))"#
        );
        let failure = Puppet::start(&module, lenient(), "").err().unwrap();
        assert_eq!(failure.kind, kind);
        assert!(failure.message.contains(expected), "{failure}");
    }
}

#[test]
fn a_plugin_is_configured_and_may_refuse() {
    // The configuration's length is the result.
    let configure = r#"
        (func (export "weir_configure") (param i32 i32) (result i32) (local.get 1))"#;
    assert!(Puppet::start(module(configure), lenient(), "").is_ok());
    let failure = Puppet::start(module(configure), lenient(), "{}").err().unwrap();
    assert_eq!(failure.kind, FailureKind::Start);
    assert!(failure.message.contains("refused the configuration with 2"), "{failure}");
    let start = r#"(func (export "_start") (unreachable))"#;
    let failure = Puppet::start(module(start), lenient(), "").err().unwrap();
    assert_eq!(failure.kind, FailureKind::Trap);
}

#[test]
fn a_negative_result_is_a_failure() {
    let functions = r#"(func (export "weir_on_request") (param i32) (result i64) (i64.const -3))"#;
    let failure = Puppet::new(&module(functions)).hook(Phase::RequestHead).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Reported);
    assert!(failure.message.contains("weir_on_request returned -3"), "{failure}");
}

#[test]
fn wrong_lists_change_nothing_and_say_what_is_wrong() {
    let head = |mistake: List| List::new().line(Op::Set, "x-two", "changed").clone_with(mistake);
    let cases = [
        (head(List(vec![1, 0, 1])), "record 2 (cut off): 3 bytes left"),
        (head(List::new().raw(0, b"", b"")), "record 2 (0): expected an operation from 1 to"),
        (head(List::new().raw(99, b"", b"")), "record 2 (99)"),
        (head(List::new().flagged(1, 4, b"a", b"b")), "record 2 (SET): flags 0x04"),
        (head(List(vec![1, 0, 1, 0, 255, 0, 0, 0, b'a'])), "name and value have 256 bytes"),
        (head(List::new().raw(1, b"", b"v")), "record 2 (SET): expected a name"),
        (head(List::new().raw(4, b"n", b"GET")), "record 2 (METHOD): expected no name"),
        (head(List::new().flagged(1, 1, b"a", b"123")), "given by 8 bytes, found 3"),
        (head(List::new().elsewhere(Op::Target, 0x7_fff0, 0x11)), "not in the plugin's memory"),
        (head(List::new().elsewhere(Op::Target, u32::MAX, u32::MAX)), "not in the plugin's memory"),
        (head(List::new().raw(10, b"", b"123")), "expected a number of 4 bytes, found 3"),
        (head(List::new().number(Op::Want, 3)), "3, and at most 2 is allowed"),
        (head(List::new().raw(18, b"", b"x")), "record 2 (CLOSE): expected no value"),
        (head(List::new().number(Op::Status, 200)), "(STATUS): not allowed in weir_on_request"),
        (head(List::new().text(Op::Key, "k")), "(KEY): not allowed in weir_on_request"),
        (head(List::new().bare(Op::Resume)), "(RESUME): not allowed in weir_on_request"),
        (head(List::new().line(Op::Set, "a b", "v")), "a b is no field name"),
        (head(List::new().line(Op::Set, ":path", "v")), "is no field name"),
        (head(List::new().line(Op::Set, "x", "a\r\nb: c")), "cannot be a field's value"),
        (
            head(List::new().line(Op::Set, "Connection", "close")),
            "connection is written by the server",
        ),
        (head(List::new().line(Op::Add, "content-length", "3")), "content-length is written"),
        (head(List::new().raw(3, b"transfer-encoding", b"")), "transfer-encoding is written"),
        (head(List::new().line(Op::Add, "keep-alive", "3")), "keep-alive is written"),
        (head(List::new().line(Op::Set, "host", "h")), "expected AUTHORITY"),
        (head(List::new().text(Op::Method, "CONNECT")), "a method other than CONNECT"),
        (head(List::new().text(Op::Method, "A B")), "a method other than CONNECT"),
        (head(List::new().text(Op::Target, "http://a/")), "a path that begins with /"),
        (head(List::new().text(Op::Target, "/a b")), "a path that begins with /"),
        (head(List::new().text(Op::Target, "/a#b")), "a path that begins with /"),
        (head(List::new().text(Op::Authority, "u@h")), "a host and maybe a port"),
        (head(List::new().text(Op::Upstream, "nobody")), "there is no upstream \"nobody\""),
        (head(List::new().number(Op::Answer, 100)), "a status from 200 to 599, found 100"),
        (head(List::new().number(Op::Answer, 204).text(Op::Target, "/")), "after ANSWER"),
        (head(List::new().number(Op::Answer, 204).number(Op::Answer, 204)), "after ANSWER"),
        (head(List::new().number(Op::Hold, 0).number(Op::Answer, 204)), "beside ANSWER"),
        (head(List::new().number(Op::Hold, 60_001)), "at most 60000 is allowed"),
    ];
    for (list, expected) in cases {
        let mut puppet = Puppet::new(&with_hook("weir_on_request", &list));
        let failure = puppet.hook(Phase::RequestHead).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol);
        assert!(failure.message.starts_with("weir_on_request: edit list, record"), "{failure}");
        assert!(failure.message.contains(expected), "{failure}\nexpected {expected}");
        let exchange = puppet.exchange();
        assert_eq!(exchange.request.as_ref().unwrap().get().headers, request().headers);
    }
}

#[test]
fn wrong_edits_of_bodies_and_trailers_are_refused() {
    let span = [3_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    let cases = [
        (
            List::new().raw(Op::Piece as u8, b"", &span),
            false,
            "2 bytes from 3 on, but the piece has 4",
        ),
        (List::new().number(Op::Keep, 5), false, "5 bytes, but the piece has 4"),
        (List::new().number(Op::Keep, 1), true, "nothing comes after the last piece"),
        (List::new().number(Op::Keep, 1).number(Op::Want, 0), false, "none is to be shown"),
        (List::new().number(Op::Want, 2), false, "the body is shown already"),
        (List::new().text(Op::Body, "x").number(Op::Hold, 1), false, "cannot stand beside it"),
        (List::new().line(Op::Trailer, "content-type", "x"), false, "may not stand in trailers"),
        (List::new().line(Op::Set, "x", "y"), false, "not allowed in weir_on_response_body"),
    ];
    for (list, end, expected) in cases {
        let mut puppet = Puppet::new(&with_hook("weir_on_response_body", &list));
        let failure = puppet.piece(b"abcd", end).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol);
        assert!(failure.message.contains(expected), "{failure}\nexpected {expected}");
    }
}

#[test]
fn lists_are_bounded() {
    let functions = r#"(func (export "weir_on_request") (param i32) (result i64)
        (i64.const 0x400_00200000))"#;
    let failure = Puppet::new(&module(functions)).hook(Phase::RequestHead).unwrap_err();
    assert!(failure.message.contains("at most 1048576 are taken"), "{failure}");
    let many = (0..1030).fold(List::new(), |list, _| list.line(Op::Add, "x", "y"));
    let failure =
        Puppet::new(&with_hook("weir_on_request", &many)).hook(Phase::RequestHead).unwrap_err();
    assert!(failure.message.contains("a section has at most"), "{failure}");
}

#[test]
fn policies_bound_what_may_be_asked_for() {
    let mut policy = PluginPolicy::default();
    policy.allow.request_body = false;
    let cases = [
        (List::new().number(Op::Want, 1), "may not see bodies of requests"),
        (List::new().text(Op::Upstream, "app"), "may not use the upstream \"app\""),
    ];
    for (list, expected) in cases {
        let module = with_hook("weir_on_request", &list);
        let mut puppet = Puppet::start(&module, policy.clone(), "").unwrap();
        let failure = puppet.hook(Phase::RequestHead).unwrap_err();
        assert!(failure.message.contains(expected), "{failure}");
    }
}

#[test]
fn the_table_says_where_each_edit_may_stand() {
    for spec in OPS.iter().filter(|spec| spec.op != Op::Resume) {
        for hook in Hook::ALL {
            let expected = spec.hooks.has(hook);
            assert!(!expected || (hook as u32) < Hook::Log as u32, "{}", spec.name);
        }
        assert!(Hook::ALL.into_iter().any(|hook| spec.hooks.has(hook)), "{}", spec.name);
    }
}

impl List {
    fn clone_with(mut self, other: List) -> List {
        self.0.extend(other.0);
        self
    }
}
