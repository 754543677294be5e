//! Checked lines become the typed [`Config`]; what keys mean together is checked here. A function
//! that returns `None` has reported why, or was not given a value whose error is reported already.

mod adapt;
mod forward;
mod guard;
mod html;
mod icap;
mod image;
mod listeners;
mod plugin;
mod route;
mod server;
mod site;
mod upstream;

use std::collections::HashMap;
use std::path::PathBuf;

use crate::check::Lines;
use crate::limits::{SITES_MAX, UPSTREAMS_MAX};
use crate::model::{Config, Guard, GuardRule, Html, Icap, Upstream};
use crate::source::{Source, Span};
use crate::suggest;
use crate::url::Origin;

pub(crate) use forward::PORTS_DEFAULT;
use guard::Known;
pub(crate) use guard::default_answer;

/// A file or directory that the configuration needs.
#[derive(Clone, Debug)]
pub(crate) struct FileUse {
    pub(crate) path: PathBuf,
    /// What it is for, as an error says it.
    pub(crate) purpose: &'static str,
    pub(crate) expected: Expected,
    pub(crate) span: Span,
}

/// What stands at the path of a [`FileUse`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    Directory,
    File,
    /// A text: the configuration of the plugin at this position in [`Config::plugins`].
    PluginConfig(usize),
    /// A text: the addresses of the list at this position in [`crate::model::Guard::lists`].
    AddressList(usize),
}

/// What the building of one configuration shares.
struct Build<'s, 'a> {
    source: &'s mut Source<'a>,
    files: Vec<FileUse>,
    upstreams: Vec<Upstream>,
    /// Position of each group in `upstreams`.
    upstream_by_name: HashMap<String, usize>,
    icap: Vec<Icap>,
}

/// Builds the configuration from the file's lines, with the files it needs.
pub(crate) fn config(source: &mut Source<'_>, lines: &Lines) -> Option<(Config, Vec<FileUse>)> {
    let mut build = Build::new(source);
    let server = lines.one("server").and_then(|line| build.server(line));
    let cache = lines.one("cache").and_then(|line| build.cache(line));
    for line in lines.all("upstream") {
        build.upstream(line);
    }
    let plugin_settings = lines.one("plugins").and_then(|line| build.plugin_settings(line));
    let plugins = build.plugins(lines);
    let icap = build.icap(lines);
    let mut sites = Vec::new();
    for (number, line) in lines.all("site").enumerate() {
        if number == SITES_MAX {
            build.source.error(line.span, format!("more than {SITES_MAX} sites"));
            break;
        }
        sites.push((line, build.site(line)));
    }
    if lines.lacks("site") {
        // An empty file must not pass: a reload in the midst of a save would take all sites down.
        let error = build.source.whole_error("there is no site");
        error.expect(["site \"*\" { listen \":8080\"; … }"]);
    }
    let guard = lines.one("guard").and_then(|line| {
        let known = Known::of_file(lines, &line.lines);
        build.guard(line, &known)
    });
    let adapt = lines.one("adapt").and_then(|line| build.adapt(line));
    build.check_listeners(&sites, server.as_ref().and_then(|server| server.admin.as_ref()));
    let sites = sites.into_iter().map(|(_, site)| site).collect::<Option<Vec<_>>>();
    if build.upstreams.len() > UPSTREAMS_MAX {
        build.source.whole_error(format!("more than {UPSTREAMS_MAX} upstreams"));
    }
    icap?;
    let Build { files, upstreams, icap, .. } = build;
    let config = Config {
        server: server?,
        cache: cache?,
        upstreams,
        plugin_settings: plugin_settings?,
        plugins: plugins?,
        guard: guard?,
        adapt: adapt?,
        icap,
        sites: sites?,
    };
    Some((config, files))
}

/// Builds rules from lines that stand in a `guard` block of their own.
pub(crate) fn rules(
    source: &mut Source<'_>,
    lines: &Lines,
    running: &Config,
) -> Option<Vec<GuardRule>> {
    Build::new(source).rules(lines, &Known::of_config(running, None))
}

/// Builds the `guard` block of a file that has nothing else, with the places of its lists.
pub(crate) fn guard(
    source: &mut Source<'_>,
    file: &Lines,
    running: &Config,
) -> Option<(Guard, Vec<Span>)> {
    let line = file.one("guard")?;
    let mut build = Build::new(source);
    let guard = build.guard(line, &Known::of_config(running, Some(&line.lines)))?;
    Some((guard, build.files.into_iter().map(|file| file.span).collect()))
}

/// Builds what lines of an `html` block say that has no route around it.
pub(crate) fn html(source: &mut Source<'_>, lines: &Lines) -> Option<Html> {
    Build::new(source).html_lines(lines, Span::new(0, 0))
}

impl<'s, 'a> Build<'s, 'a> {
    fn new(source: &'s mut Source<'a>) -> Build<'s, 'a> {
        Build {
            source,
            files: Vec::new(),
            upstreams: Vec::new(),
            upstream_by_name: HashMap::new(),
            icap: Vec::new(),
        }
    }
}

impl Build<'_, '_> {
    /// A path as written, resolved, and noted as needed.
    fn file(
        &mut self,
        path: &str,
        purpose: &'static str,
        expected: Expected,
        span: Span,
    ) -> PathBuf {
        let path = self.source.resolve(path);
        self.files.push(FileUse { path: path.clone(), purpose, expected, span });
        path
    }

    /// The same for a file that need not exist, in a directory that must.
    fn directory_of(&mut self, path: &str, purpose: &'static str, span: Span) -> PathBuf {
        let path = self.source.resolve(path);
        let directory = match path.parent() {
            Some(directory) if directory.as_os_str().is_empty() => PathBuf::from("."),
            Some(directory) => directory.to_owned(),
            None => return path,
        };
        self.files.push(FileUse { path: directory, purpose, expected: Expected::Directory, span });
        path
    }

    /// Reports a name that no `upstream` block has; `also` is what else would have been right.
    fn check_upstream(&mut self, name: &str, span: Span, also: Option<&str>) {
        if self.upstream_by_name.contains_key(name) {
            return;
        }
        // An anonymous group has the name of its URL, and no written name has a colon.
        let named = self.upstream_by_name.keys().filter(|name| !name.contains(':'));
        let mut known: Vec<String> = named.cloned().collect();
        known.sort();
        let near = suggest::nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        let error = self.source.error(span, format!("there is no upstream \"{name}\""));
        error.suggest(near);
        error.expect(known.into_iter().take(20).chain(also.map(str::to_owned)));
    }

    /// The name of the anonymous group of one server, made on first use.
    fn anonymous_upstream(&mut self, origin: Origin) -> String {
        let name = origin.name();
        if !self.upstream_by_name.contains_key(&name) {
            self.upstream_by_name.insert(name.clone(), self.upstreams.len());
            self.upstreams.push(Upstream::new(name.clone(), vec![origin.into_server(1)]));
        }
        name
    }
}
