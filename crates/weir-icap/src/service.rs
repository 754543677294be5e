//! A service: where it is, what it wants, and the way to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Content;
use crate::answering::Answering;
use crate::error::IcapError;
use crate::exchange::{self, Failed, Modified};
use crate::message::Shown;
use crate::options::Options;
use crate::pool::Pool;
use crate::wire::write_all;

/// How long a service is left alone after it did not say what it wants.
const OPTIONS_RETRY: Duration = Duration::from_secs(3);

/// How to reach a service, and how far to go for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens.
    pub address: Address,
    /// Its path, with the slash, and its query.
    pub path: String,
    /// Connections at a time, of all workers.
    pub connections: usize,
    /// How long it may stand still.
    pub timeout: Duration,
}

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// 1344, unless it says otherwise (RFC 3507 §4.2).
    pub port: u16,
}

/// A service that messages can be shown to.
pub struct Service {
    pub(crate) settings: Settings,
    /// As it is named in what it is sent.
    pub(crate) url: String,
    pub(crate) authority: String,
    pub(crate) pool: Pool,
    wants: Mutex<Option<Known>>,
    /// Held by the one who asks for that.
    asking: tokio::sync::Mutex<()>,
}

/// What a service has said of itself.
#[derive(Clone)]
struct Known {
    /// `None` if it had no answer.
    options: Option<Arc<Options>>,
    until: Instant,
}

impl Known {
    fn new(options: Option<&Arc<Options>>) -> Known {
        let lasts = options.map_or(OPTIONS_RETRY, |options| options.lifetime);
        Known { options: options.cloned(), until: Instant::now() + lasts }
    }

    fn said(self) -> Result<Arc<Options>, IcapError> {
        self.options.ok_or(IcapError::Silent)
    }
}

impl Service {
    /// A service for so many workers. Nothing is asked until there is a message.
    #[must_use]
    pub fn new(settings: Settings, workers: usize) -> Service {
        let Address { host, port } = &settings.address;
        let authority = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Service {
            url: format!("icap://{authority}{}", settings.path),
            authority,
            pool: Pool::new(settings.connections, workers),
            wants: Mutex::new(None),
            asking: tokio::sync::Mutex::default(),
            settings,
        }
    }

    /// Shows it a message on behalf of a worker: its event loop runs what goes on afterwards, while
    /// content is read.
    ///
    /// # Errors
    /// Why it has no answer, with the content if nothing of it is lost.
    pub async fn modify(
        &self,
        worker: usize,
        shown: Shown<'_>,
        content: Option<Content>,
    ) -> Result<Modified, Failed> {
        exchange::run(self, worker, shown, content).await
    }

    /// Answers that were broken off since the start because their readers were too slow.
    pub fn slow_readers(&self) -> u64 {
        self.pool.room.slow()
    }

    /// What it wants. One of those who do not know asks, and the others wait for what he hears, or
    /// go on with what was said before. Of a service that had no answer nothing is asked for a
    /// while: all would wait for it.
    pub(crate) async fn options(&self, worker: usize) -> Result<Arc<Options>, IcapError> {
        let known = self.wants.lock().clone();
        let _asking = match (known, self.asking.try_lock()) {
            (Some(known), _) if Instant::now() < known.until => return known.said(),
            (_, Ok(asking)) => asking,
            (Some(Known { options: Some(outdated), .. }), Err(_)) => return Ok(outdated),
            (_, Err(_)) => self.asking.lock().await,
        };
        let heard = self.wants.lock().clone().filter(|known| Instant::now() < known.until);
        if let Some(heard) = heard {
            return heard.said();
        }
        let asked = self.ask_options(worker).await;
        *self.wants.lock() = Some(Known::new(asked.as_ref().ok()));
        asked
    }

    async fn ask_options(&self, worker: usize) -> Result<Arc<Options>, IcapError> {
        let limit = self.settings.timeout;
        let mut line = self.pool.line(worker, &self.settings.address, true, limit).await?;
        let text = format!(
            "OPTIONS {} ICAP/1.0\r\nHost: {}\r\nUser-Agent: Weir\r\nEncapsulated: null-body=0\r\n\r\n",
            self.url, self.authority
        );
        write_all(&mut line.to, text.as_bytes(), limit).await?;
        let mut answering = Answering::new(line, limit);
        let head = answering.icap_head().await?;
        if head.status != 200 {
            return Err(IcapError::Status(head.status));
        }
        let options = Options::new(&head.headers);
        let most = options.connections.unwrap_or(usize::MAX);
        self.pool.limit(most.min(self.settings.connections));
        // A connection with content that nobody wants is not used again.
        if !head.encapsulated()?.has_content {
            answering.finish();
        }
        Ok(Arc::new(options))
    }
}
