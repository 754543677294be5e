//! Where generations are made: compiled and started, on threads of low priority, several at a time
//! and each for itself, so that no other change of the plugins waits for one. What was made comes
//! into force elsewhere, one change after the other; see `deployer`.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::limits::{
    COMPILER_THREADS_MAX, DEPLOYMENTS_MAX, DEPLOYMENTS_WAITING_MAX, MODULE_SMALL_BYTES,
};
use crate::problem::PluginError;

/// Compilers recurse.
const STACK_BYTES: usize = 8 << 20;

/// How often somebody who waits looks whether whoever asked is still there.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Benches of a workshop. One is for going back, so that this never waits for a deployment, and one
/// for the configuration.
pub(crate) const BENCHES: usize = 2 + DEPLOYMENTS_MAX;

/// What is being made, and waited for.
#[derive(Default)]
pub(crate) struct Workshop {
    state: Mutex<State>,
    changed: Condvar,
    /// Started with the first module of their lane.
    pools: [OnceLock<ThreadPool>; 2],
}

#[derive(Default)]
struct State {
    taken: [bool; BENCHES],
    /// Plugins that have a bench: one after the other deploys the same plugin, in the order in
    /// which they come into force.
    names: BTreeSet<String>,
    waiting: usize,
    /// The compiler at work on any module, and the one that only takes small ones.
    compiling: [bool; 2],
}

/// For whom a bench is.
pub(crate) enum Work {
    Deployment(String),
    Configuration,
    Rollback,
}

/// Whoever asked for something, if that can go away.
pub(crate) type Asker = Option<Weak<()>>;

/// A place to make something at, until it is dropped.
pub(crate) struct Bench {
    workshop: Arc<Workshop>,
    work: Work,
    number: usize,
}

/// A turn of the compiler, until it is dropped.
struct Turn<'a> {
    workshop: &'a Workshop,
    lane: usize,
}

impl Workshop {
    /// Waits for a bench.
    ///
    /// # Errors
    /// [`PluginError::Busy`] if too many wait; [`PluginError::Abandoned`].
    pub(crate) fn enter(self: &Arc<Self>, work: Work, asker: &Asker) -> Result<Bench, PluginError> {
        let mut state = self.state.lock();
        if matches!(work, Work::Deployment(_)) && state.waiting >= DEPLOYMENTS_WAITING_MAX {
            return Err(PluginError::Busy { limit: DEPLOYMENTS_WAITING_MAX });
        }
        state.waiting += 1;
        let number = self.wait(&mut state, asker, |state| state.bench(&work));
        state.waiting -= 1;
        let number = number?;
        state.taken[number] = true;
        if let Work::Deployment(name) = &work {
            state.names.insert(name.clone());
        }
        Ok(Bench { workshop: Arc::clone(self), work, number })
    }

    /// Compiles, when it is this module's turn: one large one at a time, and another that is small,
    /// so that a small one never waits for a large one.
    fn compile<R: Send>(
        &self,
        bytes: usize,
        asker: &Asker,
        compile: impl FnOnce() -> R + Send,
    ) -> Result<R, PluginError> {
        let lane = {
            let mut state = self.state.lock();
            let lane = self.wait(&mut state, asker, |state| {
                let small = (bytes <= MODULE_SMALL_BYTES && !state.compiling[1]).then_some(1);
                small.or_else(|| (!state.compiling[0]).then_some(0))
            })?;
            state.compiling[lane] = true;
            lane
        };
        let _turn = Turn { workshop: self, lane };
        Ok(self.pool(lane)?.install(compile))
    }

    /// Threads for one module's functions. In a pool for all, a small module's would wait behind
    /// those of a large one.
    fn pool(&self, lane: usize) -> Result<&ThreadPool, PluginError> {
        if let Some(pool) = self.pools[lane].get() {
            return Ok(pool);
        }
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.min(COMPILER_THREADS_MAX))
            .stack_size(STACK_BYTES)
            .thread_name(|number| format!("plugin-code-{number}"))
            .start_handler(|_| weir_work::begin_yielding())
            .build()
            .map_err(|cause| PluginError::Machine { cause: format!("no thread: {cause}") })?;
        Ok(self.pools[lane].get_or_init(|| pool))
    }

    fn wait(
        &self,
        state: &mut MutexGuard<'_, State>,
        asker: &Asker,
        free: impl Fn(&State) -> Option<usize>,
    ) -> Result<usize, PluginError> {
        loop {
            check(asker)?;
            if let Some(free) = free(state) {
                return Ok(free);
            }
            self.changed.wait_for(state, LOOK_PERIOD);
        }
    }
}

impl State {
    /// The number of a bench that is free for this.
    fn bench(&self, work: &Work) -> Option<usize> {
        let mut fit = match work {
            Work::Rollback => 0..1,
            Work::Configuration => 1..2,
            Work::Deployment(name) if self.names.contains(name) => 0..0,
            Work::Deployment(_) => 2..BENCHES,
        };
        fit.find(|number| !self.taken[*number])
    }
}

impl Bench {
    /// Makes something on a thread of low priority, and waits for it.
    ///
    /// # Errors
    /// What is said there; [`PluginError::Machine`] if there is no thread, or if it panicked.
    pub(crate) fn run<R: Send>(
        &self,
        make: impl FnOnce() -> Result<R, PluginError> + Send,
    ) -> Result<R, PluginError> {
        let panicked =
            || PluginError::Machine { cause: "the change panicked: a defect of Weir".to_owned() };
        let make = move || {
            weir_work::begin_yielding();
            catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| Err(panicked()))
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("plugin-make".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, make)
                .map_err(|cause| PluginError::Machine { cause: format!("no thread: {cause}") })?;
            thread.join().unwrap_or_else(|_| Err(panicked()))
        })
    }

    /// Compiles a module of so many bytes, when it is its turn.
    ///
    /// # Errors
    /// [`PluginError::Abandoned`]; [`PluginError::Machine`] if there are no threads.
    pub(crate) fn compile<R: Send>(
        &self,
        bytes: usize,
        asker: &Asker,
        compile: impl FnOnce() -> R + Send,
    ) -> Result<R, PluginError> {
        let compiled = self.workshop.compile(bytes, asker, compile)?;
        check(asker)?;
        Ok(compiled)
    }
}

/// Whether whoever asked is still there.
///
/// # Errors
/// [`PluginError::Abandoned`].
pub(crate) fn check(asker: &Asker) -> Result<(), PluginError> {
    match asker {
        Some(asker) if asker.strong_count() == 0 => Err(PluginError::Abandoned),
        _ => Ok(()),
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut state = self.workshop.state.lock();
        state.taken[self.number] = false;
        if let Work::Deployment(name) = &self.work {
            state.names.remove(name);
        }
        self.workshop.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.workshop.state.lock().compiling[self.lane] = false;
        self.workshop.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(workshop: &Arc<Workshop>, name: &str, asker: &Asker) -> Result<Bench, PluginError> {
        workshop.enter(Work::Deployment(name.to_owned()), asker)
    }

    /// Whoever is gone already, and so does not wait.
    fn gone() -> Asker {
        Some(Weak::new())
    }

    #[test]
    fn going_back_and_the_configuration_never_wait_for_deployments() {
        let workshop = Arc::new(Workshop::default());
        let taken: Vec<Bench> = (0..DEPLOYMENTS_MAX)
            .map(|number| enter(&workshop, &number.to_string(), &None).unwrap())
            .collect();
        let (back, configuration) = (Work::Rollback, Work::Configuration);
        let others = [workshop.enter(back, &None), workshop.enter(configuration, &None)];
        let mut numbers: Vec<usize> = taken.iter().map(|bench| bench.number).collect();
        numbers.extend(others.iter().map(|bench| bench.as_ref().unwrap().number));
        numbers.sort_unstable();
        assert_eq!(numbers, (0..BENCHES).collect::<Vec<_>>());
        assert!(matches!(enter(&workshop, "one more", &gone()), Err(PluginError::Abandoned)));
        drop(taken);
        assert!(enter(&workshop, "one more", &None).is_ok());
    }

    #[test]
    fn a_plugin_is_deployed_by_one_at_a_time_and_few_wait() {
        let workshop = Arc::new(Workshop::default());
        let first = enter(&workshop, "a", &None).unwrap();
        let other = enter(&workshop, "b", &None).unwrap();
        let asker = Arc::new(());
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..DEPLOYMENTS_WAITING_MAX)
                .map(|_| {
                    scope.spawn(|| {
                        drop(enter(&workshop, "a", &Some(Arc::downgrade(&asker))).unwrap());
                    })
                })
                .collect();
            while workshop.state.lock().waiting < DEPLOYMENTS_WAITING_MAX {
                std::thread::yield_now();
            }
            assert!(matches!(enter(&workshop, "c", &None), Err(PluginError::Busy { .. })));
            drop(first);
            waits.into_iter().for_each(|wait| wait.join().unwrap());
        });
        assert_eq!(workshop.state.lock().names.len(), 1);
        drop(other);
    }

    #[test]
    fn a_small_module_is_compiled_beside_a_large_one() {
        let workshop = Arc::new(Workshop::default());
        let bench = enter(&workshop, "a", &None).unwrap();
        let large = MODULE_SMALL_BYTES + 1;
        let compiled = bench.compile(large, &None, || {
            let second = workshop.compile(large, &gone(), || ());
            assert!(matches!(second, Err(PluginError::Abandoned)));
            let asker = Arc::new(());
            workshop.compile(1, &Some(Arc::downgrade(&asker)), || 7).unwrap()
        });
        assert_eq!(compiled.unwrap(), 7);
        assert_eq!(bench.compile(large, &None, || 8).unwrap(), 8);
        assert!(matches!(bench.compile(1, &gone(), || ()), Err(PluginError::Abandoned)));
    }

    #[test]
    fn a_panic_is_an_error_and_frees_the_compiler() {
        let workshop = Arc::new(Workshop::default());
        let bench = enter(&workshop, "a", &None).unwrap();
        let failed = bench.run(|| bench.compile(1 << 30, &None, || panic!("on purpose")));
        assert!(failed.unwrap_err().to_string().contains("panicked"));
        assert_eq!(bench.run(|| bench.compile(1 << 30, &None, || 7)).unwrap(), 7);
    }
}
