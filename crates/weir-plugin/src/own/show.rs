//! Shows the guest what its hooks are about: pieces of bodies in its body buffer, everything else
//! in its frame buffer.

use wasmtime::Store;

use super::apply::{self, body_of};
use super::area::{Area, Kind};
use super::frame::{
    Content, FLAG_AGAIN, FLAG_END, FLAG_FAILED, FLAG_FILL, Parts, Slice, TooSmall, lay_out,
};
use super::guest::Guest;
use super::hook::Hook;
use crate::call::CallAnswer;
use crate::exchange::{Exchange, Lent};
use crate::failure::Failure;
use crate::host::Host;

impl Guest {
    /// Copies the piece of a body hook to where the guest sees it, behind what it kept of the last.
    pub(super) fn show_piece(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
    ) -> Result<Slice, Failure> {
        let Some(exchange) = store.data_mut().exchanges.get_mut(&id) else {
            return Ok(Slice::default());
        };
        if !exchange.again {
            apply::prepend_kept(exchange, hook.side());
        }
        let len = body_of(exchange, hook.side()).len();
        if !self.wants[hook as usize].has(Parts::BODY) {
            return Ok(unseen(len));
        }
        self.ensure_body(store, len)?;
        let (data, host) = self.memory.data_and_store_mut(&mut *store);
        let mut to = self.body.of(data);
        if let Some(exchange) = host.exchanges.get_mut(&id) {
            for piece in body_of(exchange, hook.side()).pieces() {
                let (here, behind) = to.split_at_mut(piece.len());
                here.copy_from_slice(piece);
                to = behind;
            }
        }
        Ok(self.body.slice(len))
    }

    /// Lays out the frame of a hook.
    #[inline]
    pub(super) fn show(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
        end: bool,
        piece: Slice,
    ) -> Result<(), Failure> {
        let parts = self.wants[hook as usize];
        loop {
            let (data, host) = self.memory.data_and_store_mut(&mut *store);
            let Some(exchange) = host.exchanges.get_mut(&id) else { return Ok(()) };
            if exchange.own.number == 0 {
                exchange.own.number = host.own.new_number();
            }
            let content = content(exchange, hook, end, parts, piece);
            let laid = lay_out(self.frame.of(data), self.frame.ptr, &content);
            // The next hook is a first call again, unless it is held.
            exchange.again = false;
            match laid {
                Ok(()) => return Ok(()),
                Err(too_small) => self.grow_frame(store, &too_small)?,
            }
        }
    }

    /// Lays out the answer to a call, beside the request that it was made for, if that is here.
    pub(super) fn show_answer(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        (number, call): (u64, u32),
        answer: &Result<CallAnswer, String>,
    ) -> Result<(), Failure> {
        let parts = self.wants[Hook::Call as usize];
        let body = match answer {
            Ok(answer) => &answer.body[..],
            Err(why) => why.as_bytes(),
        };
        let body = match parts.has(Parts::BODY) {
            false => unseen(body.len()),
            true => {
                self.ensure_body(store, body.len())?;
                self.body.of(self.memory.data_mut(&mut *store))[..body.len()].copy_from_slice(body);
                self.body.slice(body.len())
            }
        };
        loop {
            let (data, host) = self.memory.data_and_store_mut(&mut *store);
            let mut content = match host.exchanges.get_mut(&id) {
                Some(exchange) => content(exchange, Hook::Call, true, parts, body),
                None => {
                    Content { hook: Hook::Call as u32, body, flags: FLAG_END, ..Content::default() }
                }
            };
            (content.number, content.call, content.status) = (number, call, 0);
            content.response = None;
            match answer {
                Ok(answer) => {
                    content.status = answer.head.status.as_u16().into();
                    content.response = parts.has(Parts::RESPONSE).then_some(&answer.head.headers);
                    content.trailers = Some(&answer.trailers);
                }
                Err(_) => content.flags |= FLAG_FAILED,
            }
            match lay_out(self.frame.of(data), self.frame.ptr, &content) {
                Ok(()) => return Ok(()),
                Err(too_small) => self.grow_frame(store, &too_small)?,
            }
        }
    }

    /// A larger buffer for frames: what is needed is known, so that the next attempt fits.
    #[cold]
    fn grow_frame(&mut self, store: &mut Store<Host>, needed: &TooSmall) -> Result<(), Failure> {
        self.frame = Area::ask(&mut *store, self.memory, &self.buffer, Kind::Frame, needed.0)?;
        Ok(())
    }

    pub(super) fn ensure_body(
        &mut self,
        store: &mut Store<Host>,
        len: usize,
    ) -> Result<(), Failure> {
        if self.body.len < len {
            self.body = Area::ask(&mut *store, self.memory, &self.buffer, Kind::Body, len)?;
        }
        Ok(())
    }
}

/// A body that is not laid out: its length alone.
fn unseen(len: usize) -> Slice {
    Slice { ptr: 0, len: u32::try_from(len).unwrap_or(u32::MAX) }
}

/// What a hook is shown of its exchange.
#[inline]
fn content(exchange: &Exchange, hook: Hook, end: bool, parts: Parts, body: Slice) -> Content<'_> {
    let request = match parts.has_any(Parts::LINE, Parts::REQUEST) {
        true => exchange.request.as_ref().map(Lent::get),
        false => None,
    };
    let response = match parts.has_any(Parts::STATUS, Parts::RESPONSE) {
        true => exchange.response.as_ref().map(Lent::get),
        false => None,
    };
    let mut flags = if end { FLAG_END } else { 0 };
    flags |= if exchange.again { FLAG_AGAIN } else { 0 };
    flags |= if exchange.facts.fills { FLAG_FILL } else { 0 };
    let trailers = match hook {
        Hook::RequestTrailers => Some(&exchange.request_trailers),
        Hook::ResponseTrailers => Some(&exchange.response_trailers),
        _ => None,
    };
    let body_offset = match hook {
        Hook::RequestBody => exchange.request_body_offset,
        Hook::ResponseBody => exchange.response_body_offset,
        _ => 0,
    };
    let before = if hook.shows_body() { exchange.own.shown_before as u64 } else { 0 };
    Content {
        hook: hook as u32,
        number: exchange.own.number,
        note: exchange.note,
        flags,
        status: response.map_or(0, |response| response.status.as_u16().into()),
        line: if parts.has(Parts::LINE) { request } else { None },
        client: exchange.facts.client,
        call: 0,
        request: request.filter(|_| parts.has(Parts::REQUEST)).map(|request| &request.headers),
        response: response.filter(|_| parts.has(Parts::RESPONSE)).map(|head| &head.headers),
        trailers,
        body,
        body_offset: body_offset.saturating_sub(before),
        ttl_ms: exchange.stored.ttl_ms,
        age_ms: exchange.stored.age_ms,
    }
}
