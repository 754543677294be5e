//! The `plugins` and `plugin` blocks, and a route's `use` lines.

use std::collections::HashMap;

use crate::check::{Line, Lines};
use crate::files::MODULE_PURPOSE;
use crate::limits::{ALLOWED_MAX, PLUGINS_MAX, USES_MAX};
use crate::model::{Allow, At, Names, OnFailure, Plugin, PluginPolicy, Plugins, Quarantine, Use};
use crate::rules::plugin::ALL;
use crate::source::Span;

use super::route::is_never_stored;
use super::{Build, Expected};

impl Build<'_, '_> {
    pub(super) fn plugin_settings(&mut self, line: &Line) -> Option<Plugins> {
        let store = line.lines.one("store").and_then(|line| {
            let path: String = line.value("path")?;
            // The store itself is made when it is missing; the directory it is in is not.
            Some(self.directory_of(&path, "the store's directory", line.span_of("path")))
        });
        Some(Plugins { store, long_threads: line.lines.value("long-threads")? })
    }

    /// All plugins, whose positions are those of the result.
    pub(super) fn plugins(&mut self, lines: &Lines) -> Option<Vec<Plugin>> {
        let mut plugins = Vec::new();
        let mut first: HashMap<String, Span> = HashMap::new();
        for (position, line) in lines.all("plugin").enumerate() {
            if position == PLUGINS_MAX {
                self.source.error(line.span, format!("more than {PLUGINS_MAX} plugins"));
                break;
            }
            if let Some(name) = line.value::<String>("name") {
                let span = line.span_of("name");
                if let Some(earlier) = first.get(&name) {
                    let number = self.source.line_of(earlier.start);
                    let message = format!("there is a plugin \"{name}\" on line {number} already");
                    self.source.error(span, message);
                }
                first.entry(name).or_insert(span);
            }
            plugins.push(self.plugin(line, position));
        }
        plugins.into_iter().collect()
    }

    fn plugin(&mut self, line: &Line, position: usize) -> Option<Plugin> {
        let lines = &line.lines;
        if lines.lacks("source") {
            let error = self.source.error(line.span, "this plugin has no `source` line");
            error.expect(["`source \"plugin.wasm\"` in its block"]);
        }
        let source = lines.one("source").and_then(|line| {
            let path: String = line.value("path")?;
            Some(self.file(&path, MODULE_PURPOSE, Expected::File, line.span_of("path")))
        });
        self.config_file(lines, position);
        let policy = self.policy(lines);
        Some(Plugin {
            name: line.value("name")?,
            source: source?,
            config: lines.value("config").unwrap_or_default(),
            vm_config: lines.value("vm-config").unwrap_or_default(),
            root_id: lines.value("root-id"),
            policy: policy?,
        })
    }

    /// Notes the file that becomes the plugin's `config` when files are read.
    fn config_file(&mut self, lines: &Lines, position: usize) {
        let Some(line) = lines.one("config-file") else { return };
        if let Some(config) = lines.one("config") {
            let (first, second) = match config.span.start < line.span.start {
                true => (config, line),
                false => (line, config),
            };
            let number = self.source.line_of(first.span.start);
            let message = format!("`{}` on line {number} configures it already", first.key.name);
            self.source.error(second.span, message).expect(["`config` or `config-file`"]);
            return;
        }
        if let Some(path) = line.value::<String>("path") {
            let expected = Expected::PluginConfig(position);
            self.file(&path, "the plugin's configuration", expected, line.span_of("path"));
        }
    }

    fn policy(&mut self, lines: &Lines) -> Option<PluginPolicy> {
        let quarantine = lines.one("quarantine").and_then(|line| self.quarantine(line));
        let allow = lines.one("allow").and_then(|line| self.allow(&line.lines));
        let limits = lines.one("limits")?;
        Some(PluginPolicy {
            cpu: limits.value("cpu")?,
            memory: limits.value("memory")?,
            tables: limits.value("tables")?,
            long: limits.value("long")?,
            log_per_s: limits.value("log")?,
            on_failure: match lines.value::<&str>("on-failure")? {
                "fail" => OnFailure::Fail,
                _ => OnFailure::Pass,
            },
            quarantine: quarantine?,
            allow: allow?,
        })
    }

    fn quarantine(&mut self, line: &Line) -> Option<Quarantine> {
        let quarantine = Quarantine {
            failures: line.value("failures")?,
            window: line.value("window")?,
            back_off: line.value("back-off")?,
            back_off_max: line.value("back-off-max")?,
        };
        if quarantine.back_off > quarantine.back_off_max {
            // Point at the one that is written.
            let slot = if line.is_written("back-off") { "back-off" } else { "back-off-max" };
            self.source.error(line.span_of(slot), "`back-off` is longer than `back-off-max`");
        }
        Some(quarantine)
    }

    fn allow(&mut self, lines: &Lines) -> Option<Allow> {
        let upstreams = self.allowed(lines, "upstreams");
        if let (Some(line), Names::These(_)) = (lines.one("upstreams"), &upstreams) {
            for (name, span) in line.values::<String>("name") {
                self.check_upstream(&name, span, Some("\"*\""));
            }
        }
        let shared = self.allowed(lines, "shared");
        let (request_body, response_body) = self.bodies(lines.one("bodies"));
        let environment = self.environment(lines);
        Some(Allow {
            upstreams,
            shared,
            request_body,
            response_body,
            cache: lines.one("cache").is_some(),
            log: lines.value("log")?,
            environment: environment?,
        })
    }

    /// The names of a line that may be left out.
    fn allowed(&mut self, lines: &Lines, key: &str) -> Names {
        let Some(line) = lines.one(key) else { return Names::default() };
        let names = line.values::<String>("name");
        self.check_allowed(names.len(), line.span);
        self.check_doubled(names.iter().map(|(name, span)| (name.as_str(), *span)));
        if names.iter().all(|(name, _)| name != ALL) {
            return Names::These(names.into_iter().map(|(name, _)| name).collect());
        }
        if let Some((_, span)) = names.iter().find(|(name, _)| name != ALL) {
            self.source.error(*span, "a name has no meaning beside \"*\", which is all names");
        }
        Names::All
    }

    /// Whether bodies of requests and of responses may be seen.
    fn bodies(&mut self, line: Option<&Line>) -> (bool, bool) {
        let Some(line) = line else {
            let Allow { request_body, response_body, .. } = Allow::default();
            return (request_body, response_body);
        };
        let sides = line.values::<&'static str>("side");
        self.check_doubled(sides.iter().copied());
        let has = |side| sides.iter().any(|&(given, _)| given == side);
        if has("none")
            && let Some((side, span)) = sides.iter().find(|(side, _)| *side != "none")
        {
            let message = format!("\"{side}\" has no meaning beside \"none\"");
            self.source.error(*span, message);
        }
        (has("request"), has("response"))
    }

    fn environment(&mut self, lines: &Lines) -> Option<Vec<(String, String)>> {
        let mut variables = Vec::new();
        let mut names = Vec::new();
        for line in lines.all("environment") {
            let name: String = line.value("name")?;
            names.push((name.clone(), line.span_of("name")));
            variables.push((name, line.value("value")?));
            if variables.len() > ALLOWED_MAX {
                self.check_allowed(variables.len(), line.span);
                return None;
            }
        }
        self.check_doubled(names.iter().map(|(name, span)| (name.as_str(), *span)));
        Some(variables)
    }

    fn check_allowed(&mut self, count: usize, span: Span) {
        if count > ALLOWED_MAX {
            self.source.error(span, format!("more than {ALLOWED_MAX} names"));
        }
    }

    fn check_doubled<'n>(&mut self, names: impl Iterator<Item = (&'n str, Span)>) {
        let mut seen = HashMap::new();
        for (name, span) in names {
            if seen.insert(name, ()).is_some() {
                self.source.error(span, format!("\"{name}\" is given twice"));
            }
        }
    }

    /// The `use` lines of a site.
    pub(super) fn names_used(&mut self, site: &Line) -> Option<Vec<String>> {
        let lines: Vec<&Line> = site.lines.all("use").collect();
        if let Some(line) = lines.get(USES_MAX) {
            self.source.error(line.span, format!("more than {USES_MAX} `use` lines"));
            return None;
        }
        lines.into_iter().map(|line| line.value("plugin")).collect()
    }

    /// The `use` lines of a route. Whether there is such a plugin is the server's to say, which
    /// knows those that are deployed.
    pub(super) fn uses(&mut self, route: &Line) -> Option<Vec<Use>> {
        let mut uses = Vec::new();
        for line in route.lines.all("use") {
            if uses.len() == USES_MAX {
                self.source.error(line.span, format!("more than {USES_MAX} `use` lines"));
                return None;
            }
            let at = match line.value::<&str>("at") {
                Some("fill") => At::Fill,
                _ => At::Delivery,
            };
            if at == At::Fill && is_never_stored(route) {
                let message = "`at=\"fill\"` has no meaning here: this answer is never stored";
                self.source.error(line.span_of("at"), message);
            }
            uses.push(line.value("plugin").map(|plugin| Use { plugin, at }));
        }
        uses.into_iter().collect()
    }
}
