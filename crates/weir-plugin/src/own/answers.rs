//! Answers to calls. A request that waits for one is elsewhere by then: the answer is put into its
//! mailbox, and is shown to the plugin when the request comes back, before the hook that holds it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wasmtime::Store;

use super::apply::{self, Trail};
use super::guest::{Guest, NO_REQUEST, Source, no_edits};
use super::hook::Hook;
use crate::call::CallResult;
use crate::exchange::Action;
use crate::failure::Failure;
use crate::host::Host;
use crate::signal::Signal;

/// Where a request finds the answers to its calls. There are never more than calls were made.
pub(crate) struct Mailbox {
    signal: Arc<Signal>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// A hook holds the request.
    is_held: bool,
    answers: VecDeque<CallResult>,
}

impl Mailbox {
    pub(crate) fn new(signal: Arc<Signal>) -> Arc<Mailbox> {
        Arc::new(Mailbox { signal, inside: Mutex::default() })
    }

    /// Puts an answer in and wakes the request, if that is held.
    /// Returns it if nobody waits.
    fn deliver(&self, answer: CallResult) -> Option<CallResult> {
        let mut inside = self.inside.lock();
        if !inside.is_held {
            return Some(answer);
        }
        inside.answers.push_back(answer);
        drop(inside);
        self.signal.tell();
        None
    }
}

/// Who made a call.
pub(crate) struct Caller {
    /// The request's number; 0 if none was in hand.
    pub(crate) number: u64,
    pub(crate) mailbox: Weak<Mailbox>,
}

impl Trail {
    /// A hook holds the request from now on.
    pub(super) fn hold(&self) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.inside.lock().is_held = true;
        }
    }
}

impl Guest {
    /// A call was answered: the request that waits for it is woken; if none does, weir_on_call is
    /// called at once.
    ///
    /// # Errors
    /// If the guest fails.
    pub(crate) fn called(
        &mut self,
        store: &mut Store<Host>,
        called: CallResult,
    ) -> Result<(), Failure> {
        let Some(caller) = store.data_mut().own.calls.remove(&called.id) else { return Ok(()) };
        let called = match caller.mailbox.upgrade() {
            None => called,
            Some(mailbox) => match mailbox.deliver(called) {
                None => return Ok(()),
                Some(called) => called,
            },
        };
        if !self.has(Hook::Call) {
            return Ok(());
        }
        self.show_answer(store, NO_REQUEST, (caller.number, called.id), &called.answer)?;
        no_edits(Hook::Call, self.call(store, NO_REQUEST, Hook::Call)?)
    }

    /// The request is back in the hook that held it: shows the answers that came meanwhile. Returns
    /// how it goes on if that is settled without the hook.
    ///
    /// # Errors
    /// If the guest fails.
    #[inline]
    pub(super) fn answers(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
    ) -> Result<Option<Action>, Failure> {
        let Some(exchange) = store.data_mut().exchanges.get_mut(&id) else {
            return Ok(Some(Action::Continue));
        };
        match &exchange.own.mailbox {
            None => Ok(None),
            Some(mailbox) => {
                let mailbox = Arc::clone(mailbox);
                self.open(store, id, hook, &mailbox)
            }
        }
    }

    fn open(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        hook: Hook,
        mailbox: &Mailbox,
    ) -> Result<Option<Action>, Failure> {
        let answers = {
            let mut inside = mailbox.inside.lock();
            inside.is_held = false;
            std::mem::take(&mut inside.answers)
        };
        let mut action = None;
        for CallResult { id: call, answer } in answers {
            if !self.has(Hook::Call) {
                break;
            }
            let number = store.data().exchanges.get(&id).map_or(0, |exchange| exchange.own.number);
            self.show_answer(store, id, (number, call), &answer)?;
            let result = self.call(store, id, Hook::Call)?;
            if result == 0 {
                continue;
            }
            // KEEP and the like are refused in calls, so that nothing depends on the piece.
            let source = Source { from: Hook::Call, end: true };
            let changes = self.read(store, id, hook, source, result)?;
            let Some(exchange) = store.data_mut().exchanges.get_mut(&id) else { continue };
            let goes_on = changes.resume || changes.answer.is_some() || changes.close;
            let hold = changes.hold;
            apply::apply(exchange, hook, changes);
            if goes_on {
                action = Some(Action::Continue);
            } else if hold.is_some() && action != Some(Action::Continue) {
                exchange.wishes.hold = hold;
                action = Some(Action::Pause);
            }
        }
        if let Some(exchange) = store.data_mut().exchanges.get_mut(&id) {
            match action {
                Some(Action::Pause) => exchange.own.hold(),
                Some(Action::Continue) => {
                    exchange.again = false;
                    exchange.wishes.hold = None;
                }
                None => {}
            }
        }
        Ok(action)
    }
}
