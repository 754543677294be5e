//! Calls to upstreams.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Error, Outcome, Plugin};
use crate::call::{self, Call};
use crate::limits::{CALL_TIMEOUT_MAX, CALLS_MAX};
use crate::own::answers::{Caller, Mailbox};
use crate::own::edits;
use crate::own::messages;

pub(super) fn call(plugin: Plugin<'_>, ptr: u32, len: u32, timeout_ms: u32) -> Outcome<u32> {
    plugin.bytes(ptr, len)?;
    let message = match edits::decode(plugin.memory, ptr, len).and_then(messages::request) {
        Ok(message) => message,
        Err(error) => {
            plugin.warn(&format!("call: {error}"));
            return Err(Error::BadArgument);
        }
    };
    let environment = plugin.environment();
    if !environment.policy.allow.upstreams.contains(&message.upstream) {
        return Err(Error::NotAllowed);
    }
    if !environment.services.has_upstream(&message.upstream) {
        return Err(Error::NotFound);
    }
    if plugin.host.own.calls.len() >= CALLS_MAX {
        return Err(Error::Limit);
    }
    let timeout = match timeout_ms {
        0 => CALL_TIMEOUT_MAX,
        ms => Duration::from_millis(u64::from(ms)),
    };
    let messages::Request { upstream, head, body, trailers } = message;
    let id = new_id(&plugin);
    let call = Call { upstream, head, body, trailers, timeout };
    if let Err(cause) = call::start(plugin.host, id, call) {
        plugin.warn(&format!("a call cannot be sent: {cause}"));
        return Err(Error::Failed);
    }
    let host = plugin.host;
    let caller = match host.exchanges.get_mut(&host.own.current) {
        None => Caller { number: 0, mailbox: Weak::new() },
        Some(exchange) => {
            let signal = &exchange.signal;
            let mailbox =
                exchange.own.mailbox.get_or_insert_with(|| Mailbox::new(Arc::clone(signal)));
            Caller { number: exchange.own.number, mailbox: Arc::downgrade(mailbox) }
        }
    };
    host.own.last_call = id;
    host.own.calls.insert(id, caller);
    Ok(id)
}

/// A number of no call in flight, positive as a result has to be.
fn new_id(plugin: &Plugin<'_>) -> u32 {
    let own = &plugin.host.own;
    let mut id = own.last_call;
    loop {
        id = (id & 0x3fff_ffff) + 1;
        if !own.calls.contains_key(&id) {
            return id;
        }
    }
}
