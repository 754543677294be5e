//! Weir's plugin host in the lab's own process, without a server: what a plugin costs by itself.
//! The calling thread is the one worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Version};
use tokio::runtime::Runtime;
use weir_config::PluginPolicy;
use weir_plugin::{
    About, CallBody, Calling, ContentError, Deployed, Deployment, Facts, Generation, Glance,
    Injection, Lend, NoProperties, Plugin, PluginError, Plugins, RequestHead, ResponseHead,
    Services, StoredResponse, Value, enter_place,
};

use crate::error::{Doing, Error, Result};

/// The number of the one worker.
pub const WORKER: usize = 0;

/// From what time on a call is taken for a long one.
const LONG: Duration = Duration::from_secs(1);

/// What the configuration says beside plugins, which are deployed.
const CONFIGURATION: &str =
    "site \"*\" {\n listen \"127.0.0.1:0\"\n route \"/*\" {\n respond \"\"\n }\n}\n";

/// The fields of a request, as a browser sends them without cookies.
const REQUEST_FIELDS: [(&str, &str); 8] = [
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.5"),
    ("referer", "https://www.example.org/catalogue/"),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-mode", "navigate"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
];

/// A server that has nothing to offer to plugins.
struct Nothing;

impl Services for Nothing {
    fn has_upstream(&self, _name: &str) -> bool {
        false
    }

    fn call(&self, _worker: usize, _upstream: &str, _request: http::Request<CallBody>) -> Calling {
        Box::pin(async { Err("there is no upstream".to_owned()) })
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

/// Plugins without a server.
pub struct Local {
    plugins: Plugins,
    /// The worker's event loop; it turns only while something waits for it.
    pub runtime: Runtime,
}

impl Local {
    /// Starts; the calling thread becomes the worker.
    ///
    /// # Errors
    /// When the system gives no event loop or no threads.
    pub fn start() -> Result<Local> {
        let config = weir_config::parse("the lab's own", CONFIGURATION)
            .map_err(|error| Error::Answer(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.doing(|| "making an event loop".to_owned())?;
        enter_place(WORKER);
        let plugins = Plugins::new(&config.plugin_settings, Arc::new(Nothing));
        plugins.start(vec![runtime.handle().clone()]).map_err(failed)?;
        plugins.configure(&config).map_err(failed)?;
        Ok(Local { plugins, runtime })
    }

    /// Deploys a module under a name.
    ///
    /// # Errors
    /// When it is refused.
    pub fn deploy(&self, name: &str, module: Vec<u8>) -> Result<Deployed> {
        // A call that the machine interrupts for long must not send those after it to a thread for
        // long work: what is measured is the worker.
        let policy = PluginPolicy { long: LONG, ..PluginPolicy::default() };
        let wanted = Deployment { policy: Some(policy), ..Deployment::new(name, module) };
        self.plugins.deploy(wanted).map_err(failed)
    }

    /// A plugin that was deployed.
    ///
    /// # Errors
    /// When it was not.
    pub fn plugin(&self, name: &str) -> Result<Arc<Plugin>> {
        self.plugins.plugin(name).ok_or_else(|| Error::Answer(format!("no plugin {name}")))
    }

    /// Its generation in force.
    ///
    /// # Errors
    /// When there is none.
    pub fn generation(&self, name: &str) -> Result<Arc<Generation>> {
        let active = self.plugin(name)?.pick();
        active.ok_or_else(|| Error::Answer(format!("plugin {name} is not in force")))
    }
}

/// Why a quick look was not one.
#[must_use]
pub fn objection(glance: &Glance) -> String {
    match glance {
        Glance::Passed => "none".to_owned(),
        Glance::More(..) => "the plugin did not let the request pass as it was".to_owned(),
        Glance::Failed(failure) => format!("the plugin failed: {failure}"),
        Glance::Not => "the plugin could not be shown the request at once".to_owned(),
    }
}

fn failed(error: PluginError) -> Error {
    Error::Answer(format!("plugins in the lab: {error}"))
}

/// A head that somebody else owns, as in the server.
struct Shown<T>(T);

impl<T: Send + Sync> Lend<T> for Shown<T> {
    fn lend(&self) -> &T {
        &self.0
    }
}

/// The facts of a request.
#[must_use]
pub fn facts() -> Facts {
    let about = About {
        client: Some(([192, 0, 2, 7], 4_711).into()),
        connection: Arc::new(NoProperties),
        route: Arc::new(NoProperties),
        fills: false,
    };
    Facts { about: Arc::new(about), started: Instant::now(), bag: None }
}

/// A request with eight fields.
#[must_use]
pub fn request_head() -> Arc<dyn Lend<RequestHead>> {
    Arc::new(Shown(RequestHead {
        method: Method::GET,
        secure: false,
        authority: "www.example.org".to_owned(),
        target: "/catalogue/item?id=7".to_owned(),
        version: Version::HTTP_11,
        headers: fields(&REQUEST_FIELDS),
    }))
}

/// A response with content of this type.
#[must_use]
pub fn response_head(content_type: &'static str) -> Arc<dyn Lend<ResponseHead>> {
    let headers = fields(&[("content-type", content_type), ("cache-control", "max-age=3600")]);
    Arc::new(Shown(ResponseHead { status: http::StatusCode::OK, headers }))
}

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    pairs.iter().map(field).collect()
}
