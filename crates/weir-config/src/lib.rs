//! Weir's configuration: KDL text becomes a validated, typed [`Config`], or errors that point at
//! file, line and column and say what was expected. Knows no sockets and no runtime.
//!
//! The text passes four stages, each reporting through one list of errors: [`syntax`] (its shape),
//! the `kdl` crate (its values), [`check`] (each line against the key table) and [`build`] (what
//! lines mean together).

#![forbid(unsafe_code)]

mod address;
mod build;
mod check;
mod error;
mod files;
mod fragment;
mod keys;
pub mod limits;
mod lists;
mod model;
mod prefix;
mod presets;
mod print;
mod reference;
mod rules;
mod source;
mod suggest;
mod syntax;
mod table;
mod url;
mod value;

use std::path::Path;

pub use error::{ConfigError, Errors};
pub use files::check_files;
pub use fragment::{parse_guard, parse_html, parse_rules};
pub use model::*;
pub use prefix::Prefix;
pub use presets::{parse_listen, proxy_url, serve_dir};
pub use print::{print, print_rules};
pub use reference::reference;
pub use rules::plugin::{is_plugin_name, is_root_id};

use build::FileUse;
use limits::FILE_SIZE_MAX;
use source::{Source as Text, Span};
use table::Block;

/// Parses and validates a configuration without any I/O. Relative paths in it are taken as
/// relative to the directory of `file_name`. A plugin's `config-file` is not read: its
/// configuration is empty in the result; and neither are lists of addresses, in which there is
/// nobody then.
///
/// # Errors
/// All errors that were found, at most [`limits::ERRORS_MAX`].
pub fn parse(file_name: &str, text: &str) -> Result<Config, Errors> {
    let directory = Path::new(file_name).parent().unwrap_or(Path::new(""));
    let mut source = Text::new(file_name, text, directory);
    finish(source.config(), source)
}

/// Reads and parses a configuration file with the `config-file`s of its plugins and the lists of
/// addresses of its rules, and checks that the files and directories it names can be read. Relative
/// paths in it are relative to its directory, and absolute in the result.
///
/// # Errors
/// What is wrong with the file, or why it cannot be read.
pub fn load(path: &Path) -> Result<Config, Errors> {
    let name = path.display().to_string();
    let text = files::read(path).map_err(|reason| ConfigError::whole(&*name, reason))?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let directory = absolute.parent().unwrap_or(Path::new("/"));
    let mut source = Text::new(&name, &text, directory);
    let mut config = source.config();
    if let Some((config, needed)) = &mut config {
        files::check(&mut source, config, needed);
    }
    finish(config, source)
}

fn finish(config: Option<(Config, Vec<FileUse>)>, source: Text<'_>) -> Result<Config, Errors> {
    let file = source.file().to_owned();
    match (source.finish(), config) {
        (Some(errors), _) => Err(errors),
        (None, Some((config, _))) => Ok(config),
        (None, None) => Err(lost_value(file)),
    }
}

/// The key table and `build` disagree about a kind of value; tests of every key prevent it.
fn lost_value(file: String) -> Errors {
    ConfigError::whole(file, "a value was lost: a defect of Weir").into()
}

impl Text<'_> {
    /// Runs the stages; `None` after an error.
    fn config(&mut self) -> Option<(Config, Vec<FileUse>)> {
        let document = self.document()?;
        let lines = check::block(self, Block::File, document.nodes(), Span::new(0, 0));
        build::config(self, &lines)
    }

    /// The text as nodes of KDL; `None` after an error.
    fn document(&mut self) -> Option<kdl::KdlDocument> {
        if self.text().len() > FILE_SIZE_MAX {
            let size = value::print_size(FILE_SIZE_MAX as u64);
            self.whole_error(format!("the file is larger than {size}"));
            return None;
        }
        let text = syntax::scan(self)?;
        let document = kdl::KdlDocument::parse_v2(&text);
        document.map_err(|error| self.kdl_errors(&error)).ok()
    }

    /// What `kdl` finds and [`syntax`] does not know of.
    fn kdl_errors(&mut self, error: &kdl::KdlError) {
        for diagnostic in &error.diagnostics {
            let start = diagnostic.span.offset();
            let span = Span::new(start, start + diagnostic.span.len());
            let expected = diagnostic.help.clone();
            self.error(span, format!("not valid KDL: {diagnostic}")).expect(expected);
        }
        if !self.has_errors() {
            self.whole_error("not valid KDL");
        }
    }
}
