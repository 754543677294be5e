//! Requests that are held, and answers to the calls that they wait for.

use super::*;

/// A request hook that calls an upstream and holds, or goes on when it is called again; and
/// `weir_on_call` with these edits.
fn caller(on_call: &str) -> String {
    let request = List::new().text(Op::Upstream, "auth").text(Op::Target, "/check");
    let data: String = request.0.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let hold = List::new().number(Op::Hold, 0).long(Op::Note, 5);
    let hold_data: String = hold.0.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let (len, hold_len) = (request.0.len(), hold.0.len());
    let (at, hold_at) = (2048, 2304);
    let hold_result = hold_at << 32 | hold_len;
    module(&format!(
        r#"(import "weir" "call" (func $call (param i32 i32 i32) (result i32)))
           (func (export "weir_on_request") (param $frame i32) (result i64)
               (if (i32.and (i32.load offset=4 (local.get $frame)) (i32.const 32))
                   (then (return (i64.const 0))))
               (i32.store (i32.const 512)
                   (call $call (i32.const {at}) (i32.const {len}) (i32.const 0)))
               (i64.const {hold_result}))
           (data (i32.const {at}) "{data}") (data (i32.const {hold_at}) "{hold_data}")
           {on_call}"#
    ))
}

fn on_call(list: &List) -> String {
    hook("weir_on_call", 4096, list)
}

/// The hook ran and holds; returns the call's number.
fn held(puppet: &mut Puppet) -> u32 {
    assert_eq!(puppet.hook(Phase::RequestHead).unwrap(), Action::Pause);
    let exchange = puppet.exchange();
    assert_eq!(exchange.note, 5);
    assert_eq!(exchange.wishes.hold.take(), Some(Duration::from_secs(5)));
    puppet.half(512) as u32
}

fn told(puppet: &mut Puppet) -> bool {
    puppet.exchange().signal.heard() > 0
}

fn again(puppet: &mut Puppet) -> Action {
    puppet.exchange().again = true;
    puppet.hook(Phase::RequestHead).unwrap()
}

#[test]
fn an_answer_wakes_the_request_and_is_shown_with_it() {
    let mut puppet = Puppet::new(&caller(&on_call(&List::new().line(Op::Set, "x-user", "anna"))));
    let call = held(&mut puppet);
    assert_eq!(call, 1);
    puppet.guest.called(&mut puppet.store, answered(call, "ok")).unwrap();
    assert!(told(&mut puppet));
    assert_ne!(puppet.half(FRAME_AT), 14, "it is shown when the request is back");
    assert_eq!(again(&mut puppet), Action::Continue);
    let head = puppet.exchange().request.as_ref().unwrap().get();
    assert_eq!(head.headers["x-user"], "anna");
    // The hook was called again after that.
    assert_eq!((puppet.half(FRAME_AT), puppet.half(FRAME_AT + 4) & 32), (2, 32));
}

#[test]
fn an_answer_can_settle_how_the_request_goes_on() {
    let refuse = List::new().number(Op::Answer, 401);
    let resume = List::new().bare(Op::Resume).long(Op::Note, 6);
    for list in [refuse, resume] {
        let mut puppet = Puppet::new(&caller(&on_call(&list)));
        let call = held(&mut puppet);
        puppet.guest.called(&mut puppet.store, answered(call, "the answer")).unwrap();
        assert_eq!(again(&mut puppet), Action::Continue);
        let at = FRAME_AT;
        assert_eq!(puppet.half(at), 14, "the hook was not called after weir_on_call");
        assert_eq!((puppet.half(at + 128), puppet.half(at + 68)), (1, 202));
        assert_eq!(puppet.text(at + 96), "the answer");
        assert_eq!(puppet.text(at + 40), "/path?query=1", "the request is shown too");
        assert_eq!(puppet.fields(at + 80)[0].0, "x-from");
        assert_eq!(puppet.fields(at + 88)[0].0, "x-end");
        assert!(!puppet.exchange().again);
    }
}

#[test]
fn a_request_can_wait_for_more() {
    let mut puppet = Puppet::new(&caller(&on_call(&List::new().number(Op::Hold, 60_000))));
    let call = held(&mut puppet);
    puppet.guest.called(&mut puppet.store, answered(call, "")).unwrap();
    assert_eq!(again(&mut puppet), Action::Pause);
    assert_eq!(puppet.exchange().wishes.hold, Some(NEVER));
}

#[test]
fn a_hold_ends_without_an_answer() {
    let mut puppet = Puppet::new(&caller(&on_call(&List::new())));
    let call = held(&mut puppet);
    assert_eq!(again(&mut puppet), Action::Continue);
    // Too late for the request: the answer is shown without it.
    puppet.guest.called(&mut puppet.store, answered(call, "late")).unwrap();
    assert!(!told(&mut puppet));
    assert_eq!((puppet.half(FRAME_AT), puppet.text(FRAME_AT + 96)), (14, "late".to_owned()));
    assert_eq!(puppet.half(FRAME_AT + 72), 0);
    assert_ne!(puppet.word(FRAME_AT + 8), 0, "but with its number");
    // Each answer comes once.
    puppet.guest.called(&mut puppet.store, answered(call, "again")).unwrap();
    assert_eq!(puppet.text(FRAME_AT + 96), "late");
}

#[test]
fn a_failed_call_says_why() {
    let mut puppet = Puppet::new(&caller(&on_call(&List::new())));
    let call = held(&mut puppet);
    let failed = CallResult { id: call, answer: Err("no answer within 5 ms".to_owned()) };
    puppet.store.data_mut().exchanges.clear();
    puppet.guest.called(&mut puppet.store, failed).unwrap();
    assert_eq!(puppet.half(FRAME_AT + 4), 2 | 16);
    assert_eq!(puppet.text(FRAME_AT + 96), "no answer within 5 ms");
}

#[test]
fn answers_to_nobody_change_nothing() {
    let mut puppet = Puppet::new(&caller(&on_call(&List::new().long(Op::Note, 1))));
    let call = held(&mut puppet);
    puppet.store.data_mut().exchanges.clear();
    let failure = puppet.guest.called(&mut puppet.store, answered(call, "")).unwrap_err();
    assert!(failure.message.contains("takes no edits here"), "{failure}");
}

#[test]
fn without_its_hook_an_answer_only_wakes() {
    let mut puppet = Puppet::new(&caller(""));
    let call = held(&mut puppet);
    puppet.guest.called(&mut puppet.store, answered(call, "")).unwrap();
    assert!(told(&mut puppet));
    assert_eq!(again(&mut puppet), Action::Continue);
}

#[test]
fn bodies_are_not_changed_by_answers() {
    let list = List::new().number(Op::Keep, 0);
    let functions = caller(&on_call(&list)).replace("weir_on_request", "weir_on_request_body");
    let mut puppet = Puppet::new(&functions);
    puppet.exchange().request_body.push(Bytes::from("abc"));
    assert_eq!(puppet.hook(Phase::RequestBody).unwrap(), Action::Pause);
    let call = puppet.half(512) as u32;
    puppet.guest.called(&mut puppet.store, answered(call, "")).unwrap();
    puppet.exchange().again = true;
    let failure = puppet.hook(Phase::RequestBody).unwrap_err();
    assert!(failure.message.contains("weir_on_call: edit list, record 1 (KEEP)"), "{failure}");
}
