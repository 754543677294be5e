//! A server with plugins in front of something.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of this")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use crate::common::client::{self, Client, Response};
use crate::common::free_address;
use crate::common::server::Weir;

/// What a server with plugins is made of.
pub struct Setup {
    directory: TempDir,
    blocks: String,
    server: String,
    name: &'static str,
}

/// A server with plugins.
pub struct Site {
    pub weir: Weir,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    blocks: String,
    server: String,
    name: &'static str,
}

/// A setup to add to.
pub fn setup() -> Setup {
    let server = "workers 2".to_owned();
    Setup { directory: TempDir::new().unwrap(), blocks: String::new(), server, name: "*" }
}

impl Setup {
    /// A plugin, with lines in its block.
    pub fn plugin(mut self, name: &str, module: &str, lines: &str) -> Setup {
        let path = self.directory.path().join(format!("{name}.wat"));
        std::fs::write(path, module).unwrap();
        writeln!(self.blocks, "plugin \"{name}\" {{ source \"{name}.wat\"; {lines}; }}").unwrap();
        self
    }

    /// A module of the examples.
    pub fn built(mut self, name: &str, lines: &str) -> Setup {
        let path = format!("{}/../../plugins/built/{name}.wasm", env!("CARGO_MANIFEST_DIR"));
        writeln!(self.blocks, "plugin \"{name}\" {{ source \"{path}\"; {lines}; }}").unwrap();
        self
    }

    /// Any other block at the top.
    pub fn block(mut self, block: &str) -> Setup {
        writeln!(self.blocks, "{block}").unwrap();
        self
    }

    /// Other lines in the server's block.
    pub fn server(mut self, lines: &str) -> Setup {
        lines.clone_into(&mut self.server);
        self
    }

    /// Another name of the site than any.
    pub fn name(mut self, name: &'static str) -> Setup {
        self.name = name;
        self
    }

    /// A file beside the configuration.
    pub fn file(self, name: &str, content: &[u8]) -> Setup {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Runs the server with these routes.
    pub fn run(self, routes: &str) -> Site {
        let (address, admin) = (free_address(), free_address());
        let Setup { directory, blocks, server, name } = self;
        let config = config(name, &server, &blocks, routes, address, admin);
        let weir = Weir::run_in(directory, &config, &[address]);
        // Sockets are bound before plugins are started.
        weir.wait_for_log("listening on");
        Site { weir, address, admin, blocks, server, name }
    }
}

fn config(
    name: &str,
    server: &str,
    blocks: &str,
    routes: &str,
    address: SocketAddr,
    admin: SocketAddr,
) -> String {
    format!(
        "server {{ admin \"{admin}\"; {server}; }}\n{blocks}\nsite \"{name}\" {{\nlisten \"{address}\"\n{routes}\n}}\n"
    )
}

impl Site {
    pub fn get(&self, target: &str, fields: &[(&str, &str)]) -> Response {
        client::ask(self.address, "GET", target, fields)
    }

    pub fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        client::ask(self.address, method, target, fields)
    }

    /// A request with a body of known length.
    pub fn post(&self, target: &str, body: &[u8]) -> Response {
        let mut client = self.connect();
        post(&mut client, target, body)
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// A request to the admin API.
    pub fn manage(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let mut client = Client::connect(self.admin).unwrap();
        let (admin, len) = (self.admin, body.len());
        let kind = match body.first() {
            Some(b'{') => "application/json",
            _ => "text/wat",
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: {len}\r\n\
             Content-Type: {kind}\r\n\r\n"
        );
        client.send(&[head.as_bytes(), body].concat()).unwrap();
        let response = client.response(method).unwrap();
        (response.status, String::from_utf8(response.body).unwrap())
    }

    /// Changes the configuration: other blocks beside those that were there, other routes.
    pub fn reload(&self, blocks: &str, routes: &str) -> (u16, String) {
        let blocks = format!("{}\n{blocks}", self.blocks);
        self.reconfigure(&blocks, routes)
    }

    /// Changes all of the configuration but the server's block.
    pub fn reconfigure(&self, blocks: &str, routes: &str) -> (u16, String) {
        let config = config(self.name, &self.server, blocks, routes, self.address, self.admin);
        std::fs::write(self.weir.directory().join("weir.kdl"), config).unwrap();
        self.manage("POST", "/reload", b"{}")
    }

    /// Deploys a module in its binary form.
    pub fn deploy(&self, name: &str, module: &[u8]) -> (u16, String) {
        let mut client = Client::connect(self.admin).unwrap();
        client.set_patience(Duration::from_secs(120));
        let head = format!(
            "POST /plugins/{name}?route=/spare HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\
             Content-Type: application/wasm\r\n\r\n",
            self.admin,
            module.len()
        );
        // One that is too large is refused before it is sent.
        let _ = client.send(&[head.as_bytes(), module].concat());
        let response = client.response("POST").unwrap();
        (response.status, String::from_utf8(response.body).unwrap())
    }

    /// Purges a URL of the host `site.example`; how many responses that were.
    pub fn purge(&self, path: &str) -> u64 {
        let body = format!("{{\"url\": \"http://site.example{path}\"}}");
        let (status, said) = self.manage("POST", "/purge", body.as_bytes());
        assert_eq!(status, 200, "{said}");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["purged"].as_u64().unwrap()
    }

    /// The value of a line of the metrics.
    pub fn metric(&self, line: &str) -> Option<f64> {
        let (_, text) = self.manage("GET", "/metrics", b"");
        let value = text.lines().find_map(|found| found.strip_prefix(line))?;
        value.trim().parse().ok()
    }
}

/// A request with a body of known length.
pub fn post(client: &mut Client, target: &str, body: &[u8]) -> Response {
    let length = body.len();
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: site.example\r\nContent-Length: {length}\r\n\r\n");
    client.send(&[head.as_bytes(), body].concat()).unwrap();
    client.response("POST").unwrap()
}

/// A response's body as text.
pub fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}
