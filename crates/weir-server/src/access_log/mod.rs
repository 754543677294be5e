//! Access logs: a record is formatted into its worker's buffer; one thread a log writes the buffers
//! out. Workers never touch the disk, and a disk that stands still costs records, not requests.

mod entry;
mod format;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use weir_config::LogFormat;

pub(crate) use entry::{Entry, Remembered};

/// A buffer of this size wakes the writer before its time.
const WAKE_BYTES: usize = 64 << 10;

/// Records that would grow a worker's buffer beyond this are dropped and counted.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// The longest a record waits in a buffer.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// One log file, shared by all sites that name it.
#[derive(Debug)]
pub(crate) struct AccessLog {
    inner: Arc<Inner>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    format: LogFormat,
    buffers: Box<[Mutex<Vec<u8>>]>,
    wake: Condvar,
    asleep: Mutex<()>,
    stop: AtomicBool,
    reopen: AtomicBool,
    dropped: AtomicU64,
}

impl AccessLog {
    /// Opens the file (`-` is standard output) and starts its writer.
    ///
    /// # Errors
    /// If the file cannot be opened for appending or no thread can be started.
    pub(crate) fn open(path: &Path, format: LogFormat, workers: usize) -> io::Result<AccessLog> {
        let output = open(path)?;
        let inner = Arc::new(Inner {
            path: path.to_owned(),
            format,
            buffers: (0..workers.max(1)).map(|_| Mutex::new(Vec::new())).collect(),
            wake: Condvar::new(),
            asleep: Mutex::new(()),
            stop: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        });
        let writer = std::thread::Builder::new().name("access-log".to_owned()).spawn({
            let inner = Arc::clone(&inner);
            move || {
                crate::worker::forgo_privileges();
                inner.write_until_stopped(output);
            }
        })?;
        Ok(AccessLog { inner, writer: Some(writer) })
    }

    /// Formats a record into the worker's buffer.
    pub(crate) fn record(&self, worker: usize, entry: &Entry<'_>) {
        let mut buffer = self.inner.buffers[worker % self.inner.buffers.len()].lock();
        if buffer.len() > BUFFER_BYTES_MAX {
            self.inner.dropped.fetch_add(1, Relaxed);
            return;
        }
        let before = buffer.len();
        format::append(&mut buffer, self.inner.format, entry);
        if before < WAKE_BYTES && buffer.len() >= WAKE_BYTES {
            self.inner.wake.notify_one();
        }
    }

    /// Opens the file anew before the next write, after a rotation moved it away.
    pub(crate) fn reopen(&self) {
        self.inner.reopen.store(true, Relaxed);
    }

    /// Records lost because the file took them too slowly.
    pub(crate) fn dropped(&self) -> u64 {
        self.inner.dropped.load(Relaxed)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.inner.format
    }
}

impl Drop for AccessLog {
    /// Writes what is buffered.
    fn drop(&mut self) {
        self.inner.stop.store(true, Relaxed);
        self.inner.wake.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so on standard error already.
            let _ = writer.join();
        }
    }
}

impl Inner {
    fn write_until_stopped(&self, mut output: Output) {
        let mut batch = Vec::new();
        loop {
            let stopping = self.stop.load(Relaxed);
            if self.reopen.swap(false, Relaxed) {
                match open(&self.path) {
                    Ok(fresh) => output = fresh,
                    Err(e) => {
                        tracing::error!(path = %self.path.display(), "cannot reopen access log: {e}");
                    }
                }
            }
            for buffer in &self.buffers {
                std::mem::swap(&mut *buffer.lock(), &mut batch);
                self.write(&mut output, &batch);
                batch.clear();
            }
            if stopping {
                return;
            }
            self.wake.wait_for(&mut self.asleep.lock(), FLUSH_INTERVAL);
        }
    }

    fn write(&self, output: &mut Output, batch: &[u8]) {
        if batch.is_empty() {
            return;
        }
        let result = match output {
            Output::File(file) => file.write_all(batch),
            Output::Stdout => io::stdout().lock().write_all(batch),
        };
        if let Err(e) = result {
            let lost = batch.iter().filter(|&&byte| byte == b'\n').count();
            self.dropped.fetch_add(lost as u64, Relaxed);
            tracing::error!(path = %self.path.display(), lost, "cannot write access log: {e}");
        }
    }
}

enum Output {
    File(File),
    Stdout,
}

fn open(path: &Path) -> io::Result<Output> {
    if path == Path::new("-") {
        return Ok(Output::Stdout);
    }
    Ok(Output::File(OpenOptions::new().create(true).append(true).open(path)?))
}
