//! Prints plugins: the `plugins` and `plugin` blocks, and a route's `use` lines.

use crate::model::{Allow, At, Config, Names, OnFailure, Plugin, PluginPolicy, Quarantine, Use};

use super::{Printer, path, property, quote, size, switch, time};

impl Printer {
    /// Nothing for a configuration that says nothing of plugins.
    pub(super) fn plugins(&mut self, config: &Config) {
        let settings = &config.plugin_settings;
        if *settings != crate::Plugins::default() || !config.plugins.is_empty() {
            self.block("plugins", |out| {
                if let Some(store) = &settings.store {
                    out.line(format_args!("store {}", path(store)));
                }
                out.line(format_args!("long-threads {}", settings.long_threads));
            });
        }
        for plugin in &config.plugins {
            self.plugin(plugin);
        }
    }

    fn plugin(&mut self, plugin: &Plugin) {
        self.block(format_args!("plugin {}", quote(&plugin.name)), |out| {
            out.line(format_args!("source {}", path(&plugin.source)));
            // What came from a `config-file` is printed as it was read.
            for (key, text) in [("config", &plugin.config), ("vm-config", &plugin.vm_config)] {
                if !text.is_empty() {
                    out.line(format_args!("{key} {}", quote(text)));
                }
            }
            if let Some(root_id) = &plugin.root_id {
                out.line(format_args!("root-id {}", quote(root_id)));
            }
            out.policy(&plugin.policy);
        });
    }

    fn policy(&mut self, policy: &PluginPolicy) {
        self.line(format_args!(
            "limits cpu={} memory={} tables={} long={} log={}",
            time(policy.cpu),
            size(policy.memory),
            policy.tables,
            time(policy.long),
            policy.log_per_s
        ));
        let on_failure = match policy.on_failure {
            OnFailure::Pass => "pass",
            OnFailure::Fail => "fail",
        };
        self.line(format_args!("on-failure \"{on_failure}\""));
        let Quarantine { failures, window, back_off, back_off_max } = &policy.quarantine;
        self.line(format_args!(
            "quarantine failures={failures} window={} back-off={} back-off-max={}",
            time(*window),
            time(*back_off),
            time(*back_off_max)
        ));
        self.block("allow", |out| out.allow(&policy.allow));
    }

    fn allow(&mut self, allow: &Allow) {
        for (key, names) in [("upstreams", &allow.upstreams), ("shared", &allow.shared)] {
            let names: Vec<String> = match names {
                Names::All => vec![quote("*")],
                Names::These(names) => names.iter().map(|name| quote(name)).collect(),
            };
            if !names.is_empty() {
                self.line(format_args!("{key} {}", names.join(" ")));
            }
        }
        let bodies = match (allow.request_body, allow.response_body) {
            (true, true) => "\"request\" \"response\"",
            (true, false) => "\"request\"",
            (false, true) => "\"response\"",
            (false, false) => "\"none\"",
        };
        self.line(format_args!("bodies {bodies}"));
        if allow.cache {
            self.line("cache");
        }
        self.line(format_args!("log {}", switch(allow.log)));
        for (name, value) in &allow.environment {
            self.line(format_args!("environment {} {}", quote(name), quote(value)));
        }
    }

    pub(super) fn uses(&mut self, uses: &[Use]) {
        for Use { plugin, at } in uses {
            let mut line = format!("use {}", quote(plugin));
            if *at == At::Fill {
                property(&mut line, "at", quote("fill"));
            }
            self.line(line);
        }
    }
}
