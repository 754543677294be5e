//! What connections and routes tell plugins of themselves.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ProtocolVersion, ServerConnection};
use weir_config::At;
use weir_plugin::{About, Properties, Value};

use crate::connection::Connection;

/// What plugins may know of a connection. A copy, so that whoever holds it does not hold the
/// connection.
pub(crate) struct ConnectionFacts {
    client: Option<SocketAddr>,
    local: Option<SocketAddr>,
    port: u16,
    tls: bool,
    session: Option<Session>,
    id: u64,
}

/// What a TLS handshake agreed on.
#[derive(Clone)]
pub(crate) struct Session {
    version: &'static str,
    /// The name that the client asked for.
    server_name: Option<Arc<str>>,
}

impl Session {
    pub(crate) fn new(session: &ServerConnection) -> Session {
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            // Others are not offered.
            _ => "",
        };
        Session { version, server_name: session.server_name().map(Arc::from) }
    }

    /// The name that the client asked for.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
}

/// What plugins may know of a route.
pub(crate) struct RouteFacts {
    pub(crate) pattern: String,
    pub(crate) site: String,
    /// The upstream's name.
    pub(crate) upstream: Option<String>,
}

/// The facts of a connection's requests to the route that it was first asked for, which is most
/// often the only one.
pub(crate) struct FirstAbout {
    route: Arc<RouteFacts>,
    about: Arc<About>,
}

impl Connection {
    /// Who asks, and where.
    #[inline]
    pub(crate) fn about(&self, route: &Arc<RouteFacts>, at: At) -> Arc<About> {
        let first = self.first_about.get_or_init(|| FirstAbout {
            route: Arc::clone(route),
            about: self.new_about(route, at),
        });
        let is_same = Arc::ptr_eq(&first.route, route) && first.about.fills == (at == At::Fill);
        match is_same {
            true => Arc::clone(&first.about),
            false => self.new_about(route, at),
        }
    }

    /// The same before there is a request.
    pub(crate) fn about_connection(&self, at: At) -> Arc<About> {
        let nowhere = RouteFacts { pattern: String::new(), site: String::new(), upstream: None };
        self.new_about(&Arc::new(nowhere), at)
    }

    fn new_about(&self, route: &Arc<RouteFacts>, at: At) -> Arc<About> {
        let connection = ConnectionFacts {
            client: self.client,
            local: self.destination,
            port: self.port,
            tls: self.tls,
            session: self.session.get().cloned(),
            id: self.id,
        };
        Arc::new(About {
            client: self.client,
            connection: Arc::new(connection),
            route: Arc::clone(route) as _,
            fills: at == At::Fill,
        })
    }
}

impl Properties for ConnectionFacts {
    fn property(&self, path: &[&str]) -> Option<Value> {
        let text = |address: SocketAddr| Value::from(address.to_string());
        match path {
            ["source", "address"] => self.client.map(text),
            ["source", "port"] => self.client.map(|address| Value::Int(address.port().into())),
            ["destination", "address"] => self.local.map(text),
            ["destination", "port"] => Some(Value::Int(self.port.into())),
            ["connection", "id"] => Some(Value::Uint(self.id)),
            ["connection", "mtls"] => Some(Value::Bool(false)),
            ["connection", "tls"] => Some(Value::Bool(self.tls)),
            ["connection", "tls_version"] => {
                self.session.as_ref().map(|session| Value::from(session.version))
            }
            ["connection", "requested_server_name"] => {
                self.session.as_ref()?.server_name.as_deref().map(Value::from)
            }
            _ => None,
        }
    }
}

impl Properties for RouteFacts {
    fn property(&self, path: &[&str]) -> Option<Value> {
        match path {
            ["route_name"] | ["xds", "route_name"] => Some(Value::from(self.pattern.as_str())),
            ["site_name"] | ["xds", "virtual_host_name"] => Some(Value::from(self.site.as_str())),
            ["upstream_name"] | ["cluster_name"] | ["xds", "cluster_name"] => {
                self.upstream.as_deref().map(Value::from)
            }
            _ => None,
        }
    }
}
