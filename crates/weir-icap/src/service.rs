//! A service: where it is, what it wants, and the way to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Content;
use crate::answering::{Answering, Sending};
use crate::error::IcapError;
use crate::exchange::{self, Failed, Modified};
use crate::message::Shown;
use crate::options::Options;
use crate::pool::Pool;
use crate::wire::write_all;

/// How long an answer to OPTIONS is waited for anew after it failed.
const OPTIONS_RETRY: Duration = Duration::from_secs(1);

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
}

/// What a service has said of itself.
struct Known {
    options: Result<Arc<Options>, ()>,
    until: Instant,
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

    /// What it wants. Who does not know asks; nobody waits for what others have asked, since that
    /// is asked once an hour.
    pub(crate) async fn options(&self, worker: usize) -> Result<Arc<Options>, IcapError> {
        if let Some(known) = &*self.wants.lock()
            && Instant::now() < known.until
            && let Ok(options) = &known.options
        {
            return Ok(Arc::clone(options));
        }
        let asked = self.ask_options(worker).await;
        let known = match &asked {
            Ok(options) => {
                let until = Instant::now() + options.lifetime;
                Known { options: Ok(Arc::clone(options)), until }
            }
            Err(_) => Known { options: Err(()), until: Instant::now() + OPTIONS_RETRY },
        };
        *self.wants.lock() = Some(known);
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
        let sending = Sending::Done(line.to);
        let mut answering =
            Answering { incoming: line.incoming, place: line.place, sending, limit, held: None };
        let head = answering.icap_head().await?;
        if head.status != 200 {
            return Err(IcapError::Status(head.status));
        }
        let options = Options::new(&head.headers);
        // A connection with content that nobody wants is not used again.
        if !head.encapsulated()?.has_content {
            answering.finish();
        }
        Ok(Arc::new(options))
    }
}
