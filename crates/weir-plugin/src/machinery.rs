//! What plugins run on: the engine, the keeper and the low-priority threads. Started with the first
//! plugin, so that a server without plugins has none of it.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::keeper::Keeper;
use crate::place::Threads;
use crate::problem::PluginError;
use crate::stream::enter_place;

/// Engine, keeper and threads.
pub(crate) struct Machinery {
    pub(crate) engine: Engine,
    pub(crate) threads: Threads,
    pub(crate) keeper: Keeper,
    /// Threads for long calls end when these are dropped.
    _ends: Vec<oneshot::Sender<()>>,
}

impl Machinery {
    /// Starts everything. The calling thread must not be one of low priority: what it starts would
    /// have that too, and the watch keeps plugins to their time.
    ///
    /// # Errors
    /// [`PluginError::Machine`].
    pub(crate) fn start(
        workers: Vec<Handle>,
        long_threads: usize,
    ) -> Result<Machinery, PluginError> {
        let failed = |cause: String| PluginError::Machine { cause };
        let (mut long, mut ends) = (Vec::new(), Vec::new());
        for number in 0..long_threads {
            let (handle, end) = long_thread(number, workers.len() + number)
                .map_err(|cause| failed(format!("no thread for long calls: {cause}")))?;
            long.push(handle);
            ends.push(end);
        }
        let threads = Threads { workers, long };
        let engine = Engine::new().map_err(failed)?;
        let keeper = Keeper::start()
            .map_err(|cause| failed(format!("no thread for the keeper: {cause}")))?;
        Ok(Machinery { engine, threads, keeper, _ends: ends })
    }
}

/// A thread with an event loop of its own, for as long as the sender lives.
fn long_thread(number: usize, place: usize) -> std::io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel::<()>();
    std::thread::Builder::new().name(format!("plugin-long-{number}")).spawn(move || {
        weir_work::begin_yielding();
        enter_place(place);
        // Either way the sender is gone.
        let _ = runtime.block_on(ended);
    })?;
    Ok((handle, end))
}
