//! The `upstream` block.

use std::collections::HashMap;

use crate::check::Line;
use crate::limits::SERVERS_MAX;
use crate::model::{
    Balance, Concurrency, HashKey, HealthCheck, Passive, Upstream, UpstreamProtocol,
    UpstreamServer, UpstreamTls,
};
use crate::url::Origin;
use crate::value::Value;

use super::{Build, Expected};

impl Build<'_, '_> {
    /// Builds a group and adds it to the others.
    pub(super) fn upstream(&mut self, line: &Line) {
        let Some(name) = line.value::<String>("name") else { return };
        if self.upstream_by_name.contains_key(&name) {
            self.source
                .error(line.span_of("name"), format!("there is an upstream \"{name}\" already"));
        }
        // A name counts as known even if its group has errors, which are reported already.
        self.upstream_by_name.insert(name.clone(), self.upstreams.len());
        let upstream = self.upstream_settings(name.clone(), line);
        self.upstreams.push(upstream.unwrap_or_else(|| Upstream::new(name, Vec::new())));
    }

    fn upstream_settings(&mut self, name: String, line: &Line) -> Option<Upstream> {
        let lines = &line.lines;
        let servers = self.servers(line);
        let balance = self.balance(lines.one("balance")?);
        let health_check = lines.one("health-check").map(|line| self.health_check(line));
        let tls = self.upstream_tls(lines.one("tls")?, &servers);
        let keep_alive = lines.one("keep-alive")?;
        let timeout = lines.one("timeout")?;
        let passive = lines.one("passive-health")?;
        Some(Upstream {
            name,
            servers,
            balance: balance?,
            protocol: match lines.value::<&str>("protocol")? {
                "http1" => UpstreamProtocol::Http1,
                "http2" => UpstreamProtocol::Http2,
                _ => UpstreamProtocol::Auto,
            },
            keep_alive: keep_alive.value("count")?,
            keep_alive_timeout: keep_alive.value("timeout")?,
            connect_timeout: timeout.value("connect")?,
            first_byte_timeout: timeout.value("first-byte")?,
            idle_timeout: timeout.value("idle")?,
            retries: lines.value("retries")?,
            max_requests: lines.value("max-requests")?,
            concurrency: match lines.value::<Value>("concurrency")? {
                Value::Number(0) => Concurrency::Unlimited,
                // Its kind has no more than a million.
                Value::Number(limit) => {
                    Concurrency::Fixed(u32::try_from(limit).unwrap_or(u32::MAX))
                }
                _ => Concurrency::Auto,
            },
            health_check: match health_check {
                Some(health_check) => Some(health_check?),
                None => None,
            },
            passive: Passive {
                failures: passive.value("failures")?,
                window: passive.value("window")?,
                eject: passive.value("eject")?,
            },
            tls: tls?,
        })
    }

    fn servers(&mut self, line: &Line) -> Vec<UpstreamServer> {
        let mut servers = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        let mut written = 0;
        for server in line.lines.all("server") {
            written += 1;
            let Some(origin) = server.value::<Origin>("url") else { continue };
            let span = server.span_of("url");
            if let Some(at) = lines.insert(origin.name(), span.start) {
                let number = self.source.line_of(at);
                self.source
                    .error(span, format!("this server is on line {number} already"))
                    .expect(["weight=… to give a server a larger share"]);
            }
            servers.extend(server.value("weight").map(|weight| origin.into_server(weight)));
        }
        if line.lines.lacks("server") {
            self.source
                .error(line.span, "this upstream has no server")
                .expect(["server \"http://…\" in its block"]);
        }
        if written > SERVERS_MAX {
            self.source.error(line.span, format!("more than {SERVERS_MAX} servers"));
        }
        servers
    }

    fn balance(&mut self, line: &Line) -> Option<Balance> {
        let method = line.value::<&str>("method")?;
        if method != "hash" && line.is_written("key") {
            let span = line.span_of("key");
            self.source
                .error(span, format!("`key` has no meaning for \"{method}\""))
                .expect(["balance \"hash\" key=…"]);
        }
        Some(match method {
            "least-connections" => Balance::LeastConnections,
            "two-choices" => Balance::TwoChoices,
            "hash" => Balance::Hash(self.hash_key(line)?),
            _ => Balance::RoundRobin,
        })
    }

    fn hash_key(&mut self, line: &Line) -> Option<HashKey> {
        let key = line.value("key");
        if key.is_none() && !line.is_refused("key") {
            let keys = ["path", "client", "header:NAME", "cookie:NAME"];
            let keys = keys.map(|key| format!("key=\"{key}\""));
            self.source.error(line.span, "`balance \"hash\"` needs key=…").expect(keys);
        }
        key
    }

    fn health_check(&mut self, line: &Line) -> Option<HealthCheck> {
        let check = HealthCheck {
            path: line.value("path")?,
            interval: line.value("interval")?,
            timeout: line.value("timeout")?,
            healthy: line.value("healthy")?,
            unhealthy: line.value("unhealthy")?,
            status: line.value("status")?,
        };
        if check.timeout > check.interval {
            // Point at the one that is written.
            let slot = if line.is_written("timeout") { "timeout" } else { "interval" };
            self.source.error(line.span_of(slot), "a probe's timeout is longer than the interval");
        }
        Some(check)
    }

    fn upstream_tls(&mut self, line: &Line, servers: &[UpstreamServer]) -> Option<UpstreamTls> {
        let written =
            ["server-name", "ca", "insecure"].into_iter().find(|slot| line.is_written(slot));
        let uses_tls = servers.iter().any(|server| server.tls);
        if let Some(slot) = written
            && !uses_tls
            && !servers.is_empty()
        {
            let message = "no server of this upstream uses TLS";
            self.source.error(line.span_of(slot), message).expect(["server \"https://…\""]);
        }
        let insecure = line.value("insecure")?;
        let ca = line.value::<String>("ca").map(|ca| {
            self.file(&ca, "the upstream's trusted roots", Expected::File, line.span_of("ca"))
        });
        if insecure && ca.is_some() {
            let message = "`ca` has no meaning where any certificate is accepted";
            self.source.error(line.span_of("ca"), message).expect(["`ca` or `insecure`"]);
        }
        Some(UpstreamTls { server_name: line.value("server-name"), ca, insecure })
    }
}
