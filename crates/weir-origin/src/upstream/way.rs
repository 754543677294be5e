//! How a forward proxy reaches the servers that its clients name: where it may connect to, and how
//! they are verified. One for all of them, since roots are many.

use std::fmt;
use std::sync::Arc;

use weir_config::{Forward, UpstreamProtocol, UpstreamTls};

use super::tls::Tls;
use crate::egress::Egress;
use crate::error::OriginError;

/// The way out of a forward proxy.
pub struct Way {
    pub(super) egress: Arc<Egress>,
    /// `None` where the system has no roots: then no origin can be verified.
    pub(super) tls: Option<Tls>,
}

impl Way {
    /// The way that `settings` describe, within what `egress` allows. Reads the CA file, if one is
    /// named, or else the operating system's roots.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Config`] with the file that cannot be used.
    pub fn new(settings: &Forward, egress: Egress) -> Result<Way, OriginError> {
        let tls = UpstreamTls { ca: settings.ca.clone(), ..UpstreamTls::default() };
        let tls = match Tls::new(&tls, UpstreamProtocol::Auto, "forward") {
            Ok(tls) => Some(tls),
            Err(error) if settings.ca.is_none() => {
                tracing::warn!(cause = error.cause(), "no origin can be asked over https");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Way { egress: Arc::new(egress), tls })
    }

    /// Where it may lead.
    pub fn egress(&self) -> &Egress {
        &self.egress
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("egress", &self.egress).finish_non_exhaustive()
    }
}
