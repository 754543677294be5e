//! What a start would find wrong with a configuration: certificates, upstreams, plugins. Nothing is
//! bound, and nothing lasts.

use std::collections::HashSet;
use std::sync::Arc;

use http::Request;
use weir_config::Config;
use weir_plugin::{
    CallBody, Calling, ContentError, Injection, Plugins, Services, StoredResponse, Value,
};

use crate::error::StartError;
use crate::live;
use crate::worker;

/// Looks into the certificates that a configuration names, and starts its plugins, as a start does.
///
/// # Errors
/// The first that cannot be used.
pub fn check(config: &Config) -> Result<(), StartError> {
    live::check_files(config)?;
    check_plugins(config)
}

/// Has each plugin compiled, started and configured, in one instance.
fn check_plugins(config: &Config) -> Result<(), StartError> {
    let mut config = config.clone();
    let has_store = config.plugin_settings.store.take().is_some();
    config.plugin_settings.long_threads = 0;
    if has_store {
        // It may have plugins without a block; a running server holds its lock.
        let blocks: HashSet<&str> = config.plugins.iter().map(|b| b.name.as_str()).collect();
        for site in &mut config.sites {
            site.plugins.retain(|plugin| blocks.contains(plugin.as_str()));
            for route in &mut site.routes {
                route.plugins.retain(|used| blocks.contains(used.plugin.as_str()));
            }
        }
    }
    let upstreams = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
    let plugins = Plugins::new(&config.plugin_settings, Arc::new(Rehearsal { upstreams }));
    let event_loop = worker::event_loop()?;
    plugins.start(vec![event_loop.handle().clone()])?;
    Ok(plugins.prepare(&config).map(drop)?)
}

/// The server, for plugins that are started and meet no request.
struct Rehearsal {
    upstreams: HashSet<String>,
}

impl Services for Rehearsal {
    fn has_upstream(&self, name: &str) -> bool {
        self.upstreams.contains(name)
    }

    fn call(&self, _worker: usize, _upstream: &str, _request: Request<CallBody>) -> Calling {
        Box::pin(async { Err("the configuration is only being checked".to_owned()) })
    }

    fn stored(&self, _url: &str) -> Result<Option<StoredResponse>, ContentError> {
        Ok(None)
    }

    fn inject(&self, _url: &str, _response: Injection) -> Result<(), ContentError> {
        Ok(())
    }

    fn purge(&self, _url: &str, _soft: bool) -> Result<usize, ContentError> {
        Ok(0)
    }

    fn property(&self, _path: &[&str]) -> Option<Value> {
        None
    }
}
