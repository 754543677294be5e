//! What connections and routes tell plugins of themselves.

use weir_plugin::{Properties, Value};

use crate::chain;
use crate::connection::Connection;
use crate::live::{Route, Source};

impl Properties for Connection {
    fn property(&self, path: &[&str]) -> Option<Value> {
        let text = |address: std::net::SocketAddr| Value::from(address.to_string());
        match path {
            ["source", "address"] => self.client.map(text),
            ["source", "port"] => self.client.map(|address| Value::Int(address.port().into())),
            ["destination", "address"] => self.socket.local().map(text),
            ["destination", "port"] => Some(Value::Int(self.port.into())),
            ["connection", "id"] => Some(Value::Uint(self.id)),
            ["connection", "mtls"] => Some(Value::Bool(false)),
            ["connection", "tls"] => Some(Value::Bool(self.tls)),
            _ => None,
        }
    }
}

impl Properties for Route {
    fn property(&self, path: &[&str]) -> Option<Value> {
        match path {
            ["route_name"] | ["xds", "route_name"] => Some(Value::from(chain::text(&self.pattern))),
            ["site_name"] | ["xds", "virtual_host_name"] => {
                Some(Value::from(self.site.name.as_str()))
            }
            ["upstream_name"] | ["cluster_name"] | ["xds", "cluster_name"] => match &self.source {
                Source::Proxy(proxy) => Some(Value::from(proxy.name.as_str())),
                _ => None,
            },
            _ => None,
        }
    }
}
