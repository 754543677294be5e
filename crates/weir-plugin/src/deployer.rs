//! The thread on which plugins change, one change after the other. None of them takes long: what is
//! to come into force was made before, in the `workshop`. It also looks after canaries, and writes
//! what a disk did not take, once a second.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::limits::CANARY_PERIOD;
use crate::problem::PluginError;
use crate::registry::Inner;

type Job = Box<dyn FnOnce() + Send>;

/// Hands work to the thread, which is started when there is some.
#[derive(Default)]
pub(crate) struct Deployer(Mutex<Option<Sender<Job>>>);

impl Deployer {
    /// Runs a change on the thread and waits for it.
    ///
    /// # Errors
    /// What the change says; [`PluginError::Machine`] if there is no thread, or if the change
    /// panicked.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        inner: &Arc<Inner>,
        change: impl FnOnce(&Arc<Inner>) -> Result<R, PluginError> + Send + 'static,
    ) -> Result<R, PluginError> {
        let (answer, answered) = mpsc::channel();
        let shared = Arc::clone(inner);
        let job: Job = Box::new(move || {
            // Whoever asked waits below.
            let _ = answer.send(change(&shared));
        });
        self.send(inner, job)?;
        answered.recv().unwrap_or_else(|_| {
            Err(PluginError::Machine { cause: "the change panicked: a defect of Weir".to_owned() })
        })
    }

    fn send(&self, inner: &Arc<Inner>, job: Job) -> Result<(), PluginError> {
        let mut sender = self.0.lock();
        let job = match &*sender {
            None => job,
            Some(jobs) => match jobs.send(job) {
                Ok(()) => return Ok(()),
                // The thread is gone: another takes its place.
                Err(unsent) => unsent.0,
            },
        };
        let (jobs, work) = mpsc::channel();
        let weak = Arc::downgrade(inner);
        std::thread::Builder::new()
            .name("plugin-deploy".to_owned())
            .spawn(move || serve(&weak, &work))
            .map_err(|cause| PluginError::Machine { cause: format!("no thread: {cause}") })?;
        // The thread has just begun to receive.
        let _ = jobs.send(job);
        *sender = Some(jobs);
        Ok(())
    }
}

fn serve(inner: &Weak<Inner>, work: &Receiver<Job>) {
    weir_work::begin();
    let mut has_more_to_do = false;
    loop {
        let job = match has_more_to_do {
            true => work.recv_timeout(CANARY_PERIOD),
            false => work.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match job {
            // A panic is reported by the hook, and to whoever waits by the answer that is missing.
            Ok(job) => drop(catch_unwind(AssertUnwindSafe(job))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(inner) = inner.upgrade() else { return };
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let has_canaries = inner.look_after_canaries();
            inner.catch_up() || has_canaries
        }));
        has_more_to_do = looked.unwrap_or(false);
    }
}
