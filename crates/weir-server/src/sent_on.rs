//! What plugins are told of whom a request was sent on to, and of what came of it. By Envoy's
//! names: `upstream.*` and the parts of `response.*` that only the source knows.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::Response;
use rustls::pki_types::CertificateDer;
use weir_origin::error::{ErrorKind, OriginError};
use weir_origin::upstream::{Group, Peer, PeerTls, ResponseBody};
use weir_plugin::{Properties, Value};

use crate::certificate;

/// A request that was sent to an upstream, and has an answer or none.
pub(crate) struct SentOn {
    upstream: String,
    began: Instant,
    outcome: Outcome,
}

enum Outcome {
    Answered {
        peer: Option<Arc<Peer>>,
        /// When the last of the answer was there.
        end: Arc<OnceLock<Instant>>,
    },
    Failed {
        server: String,
        kind: ErrorKind,
        cause: String,
    },
}

impl SentOn {
    /// What is known when `result` is there of a request that was given to `group` when it `began`.
    pub(crate) fn new(
        group: &Group,
        began: Instant,
        result: &mut Result<Response<ResponseBody>, OriginError>,
    ) -> Arc<SentOn> {
        let outcome = match result {
            Ok(response) => {
                let (peer, end) = (response.body().peer().cloned(), Arc::default());
                response.body_mut().note_end(Arc::clone(&end));
                Outcome::Answered { peer, end }
            }
            Err(error) => {
                let (server, kind) = (error.server().to_owned(), error.kind());
                Outcome::Failed { server, kind, cause: error.cause() }
            }
        };
        Arc::new(SentOn { upstream: group.config().name.clone(), began, outcome })
    }

    fn peer(&self) -> Option<&Peer> {
        match &self.outcome {
            Outcome::Answered { peer, .. } => peer.as_deref(),
            Outcome::Failed { .. } => None,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        match &self.outcome {
            Outcome::Answered { peer, .. } => peer.as_ref()?.address,
            // The one of a name is not known.
            Outcome::Failed { server, .. } => server.parse().ok(),
        }
    }

    fn of_upstream(&self, name: &str) -> Option<Value> {
        let tls = || self.peer()?.tls.as_ref();
        let told = |what: fn(&CertificateDer<'_>) -> Option<String>| {
            let PeerTls { certificate, .. } = tls()?;
            what(certificate.as_ref()?).map(Value::from)
        };
        match name {
            "address" => self.address().map(|address| Value::from(address.to_string())),
            "port" => self.address().map(|address| Value::Int(address.port().into())),
            "local_address" => Some(Value::from(self.peer()?.local?.to_string())),
            "transport_failure_reason" => match &self.outcome {
                Outcome::Failed { kind, cause, .. } if is_of_transport(*kind) => {
                    Some(Value::from(cause.as_str()))
                }
                _ => None,
            },
            "tls_version" => tls().map(|tls| Value::from(tls.version)),
            "subject_peer_certificate" => told(certificate::subject),
            "dns_san_peer_certificate" => told(certificate::dns_name),
            "uri_san_peer_certificate" => told(certificate::uri),
            "sha256_peer_certificate_digest" => told(|own| Some(certificate::digest(own))),
            _ => None,
        }
    }

    fn code_details(&self) -> String {
        match &self.outcome {
            Outcome::Answered { .. } => "via_upstream".to_owned(),
            Outcome::Failed { kind, .. } => {
                format!("upstream_reset_before_response_started{{{}}}", kind.as_str())
            }
        }
    }

    fn flags(&self) -> i64 {
        match &self.outcome {
            Outcome::Answered { .. } => 0,
            Outcome::Failed { kind, .. } => flag(*kind),
        }
    }

    fn backend_latency(&self) -> Option<Value> {
        let Outcome::Answered { end, .. } = &self.outcome else { return None };
        let took = end.get()?.saturating_duration_since(self.began);
        Some(Value::Duration(took))
    }
}

/// Whether a connection could not be had.
fn is_of_transport(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::ConnectTimeout | ErrorKind::Tls
    )
}

/// Envoy's response flag for a failure: its `CoreResponseFlag`, of which each is one bit.
fn flag(kind: ErrorKind) -> i64 {
    let bit = match kind {
        ErrorKind::FirstByteTimeout => 2,
        ErrorKind::Connect | ErrorKind::ConnectTimeout | ErrorKind::Tls => 5,
        ErrorKind::ClosedEarly | ErrorKind::Truncated => 6,
        ErrorKind::Overloaded => 7,
        ErrorKind::IdleTimeout => 16,
        ErrorKind::Garbage => 23,
        ErrorKind::Resolve => 26,
        _ => return 0,
    };
    1 << bit
}

impl Properties for SentOn {
    fn property(&self, path: &[&str]) -> Option<Value> {
        match path {
            ["upstream", name] => self.of_upstream(name),
            ["response", "flags"] => Some(Value::Int(self.flags())),
            ["response", "code_details"] => Some(Value::from(self.code_details())),
            ["response", "backend_latency"] => self.backend_latency(),
            ["upstream_name"] | ["cluster_name"] | ["xds", "cluster_name"] => {
                Some(Value::from(self.upstream.as_str()))
            }
            _ => None,
        }
    }
}
