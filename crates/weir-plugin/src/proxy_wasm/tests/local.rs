//! Responses of plugins' own.

use super::*;
use crate::test_support::{Arg::*, fields};

fn answer(bench: &mut Bench, status: u64, body: &str, headers: &[(&str, &str)], grpc: i32) -> u32 {
    let grpc = Num(u64::from(grpc.cast_unsigned()));
    let headers = map(headers);
    let args = [Num(status), Bytes(b"details"), Bytes(body.as_bytes()), Bytes(&headers), grpc];
    bench.call("proxy_send_local_response", &args)
}

#[test]
fn local_responses_are_answers() {
    let plain = ("content-type", "text/plain");
    for (status, body, given, grpc, expect_status, expect) in [
        (403, "no", &[("x", "1")][..], -1, 403, vec![("x", "1"), plain]),
        (403, "", &[], -1, 403, vec![]),
        (200, "{}", &[("Content-Type", "a/b")], -1, 200, vec![("content-type", "a/b")]),
        (
            200,
            "a\u{e9}",
            &[],
            7,
            200,
            vec![("grpc-status", "7"), ("grpc-message", "a%C3%A9"), plain],
        ),
        (0, "", &[], -1, 500, vec![]),
        (100, "", &[], -1, 500, vec![]),
        (70_000, "", &[], -1, 500, vec![]),
    ] {
        let mut bench = bench();
        let id = bench.open();
        assert_eq!(answer(&mut bench, status, body, given, grpc), OK);
        // The first one counts.
        assert_eq!(answer(&mut bench, 418, "", &[], -1), OK);
        bench.exchange(id, |exchange| {
            let answer = exchange.wishes.answer.take().unwrap();
            assert_eq!(answer.status.as_u16(), expect_status);
            assert_eq!(answer.body, body);
            assert_eq!(answer.details, "details");
            assert_eq!(answer.headers, fields(&expect));
        });
    }
}

#[test]
fn local_responses_to_grpc_are_grpcs() {
    for (status, grpc, expect) in [(503, -1, "14"), (200, 5, "5"), (404, -1, "12")] {
        let mut bench = bench();
        let id = bench.open();
        bench.exchange(id, |exchange| {
            let head = exchange.request.as_mut().unwrap().to_mut();
            head.headers = fields(&[("content-type", "application/grpc+proto")]);
        });
        assert_eq!(answer(&mut bench, status, "why", &[], grpc), OK);
        bench.exchange(id, |exchange| {
            let answer = exchange.wishes.answer.take().unwrap();
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
            let kind = ("content-type", "application/grpc");
            let expect = fields(&[kind, ("grpc-status", expect), ("grpc-message", "why")]);
            assert_eq!(answer.headers, expect);
        });
    }
}

#[test]
fn fields_that_cannot_be_are_left_out_of_local_responses() {
    for bad in [("a b", "1"), ("", "1"), ("a", "\n"), (":status", "201"), (":path", "/")] {
        let mut bench = bench();
        let id = bench.open();
        assert_eq!(answer(&mut bench, 401, "", &[("x", "1"), bad, ("y", "2")], -1), OK);
        bench.exchange(id, |exchange| {
            let answer = exchange.wishes.answer.take().unwrap();
            assert_eq!(answer.status.as_u16(), 401, "{bad:?}");
            assert_eq!(answer.headers, fields(&[("x", "1"), ("y", "2")]), "{bad:?}");
        });
    }
}
