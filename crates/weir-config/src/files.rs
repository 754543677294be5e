//! The files a configuration needs: reading the configuration itself, those of its plugins and the
//! lists of addresses, and checking that roots, certificates, keys, trusted roots and modules are
//! there. The only part of the crate that does I/O.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::build::{Expected, FileUse};
use crate::error::{ConfigError, Errors};
use crate::fragment;
use crate::limits::{FILE_SIZE_MAX, LIST_SIZE_MAX, PLUGIN_CONFIG_MAX};
use crate::lists;
use crate::model::{Config, Guard, Source as RouteSource};
use crate::source::Source;
use crate::value::print_size;

/// What a plugin's `source` is for, as an error says it.
pub(crate) const MODULE_PURPOSE: &str = "the plugin's module";

/// What a `list`'s file is for, as an error says it.
pub(crate) const LIST_PURPOSE: &str = "the list of addresses";

/// Reads a configuration file, or says why not.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("cannot open the file: {error}"))?;
    let mut bytes = Vec::new();
    // One byte more than the limit, so that `parse` sees that it is passed; pipes have no length.
    let mut limited = file.take(FILE_SIZE_MAX as u64 + 1);
    limited.read_to_end(&mut bytes).map_err(|error| format!("cannot read the file: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
        format!("the file is not UTF-8 text: line {line} has a wrong byte")
    })
}

/// Reports the needed files that cannot be read, and puts the configurations of plugins and the
/// lists of addresses in place.
pub(crate) fn check(source: &mut Source<'_>, config: &mut Config, needed: &[FileUse]) {
    for file in needed {
        let result = match file.expected {
            Expected::Directory => check_one(&file.path, file.purpose, true),
            Expected::File => check_one(&file.path, file.purpose, false),
            Expected::AddressList(position) => {
                read_list(source, file, position, &mut config.guard);
                continue;
            }
            Expected::PluginConfig(position) => {
                read_text(&file.path, file.purpose, PLUGIN_CONFIG_MAX).map(|text| {
                    if let Some(plugin) = config.plugins.get_mut(position) {
                        plugin.config = text;
                    }
                })
            }
        };
        if let Err(reason) = result {
            source.error(file.span, reason);
        }
    }
    if !source.has_errors() && !lists::fill(&mut config.guard) {
        fragment::report_ranges(source);
    }
}

/// Reads a list of addresses, or reports what is wrong with it.
fn read_list(source: &mut Source<'_>, file: &FileUse, position: usize, guard: &mut Guard) {
    let text = match read_text(&file.path, file.purpose, LIST_SIZE_MAX) {
        Ok(text) => text,
        Err(reason) => {
            source.error(file.span, reason);
            return;
        }
    };
    match (lists::parse(&text), guard.lists.get_mut(position)) {
        (Ok(addresses), Some(list)) => list.addresses = addresses,
        (Ok(_), None) => {}
        (Err(errors), _) => {
            for error in errors {
                let shown = file.path.display();
                source.error(file.span, format!("{} ({shown}), {error}", file.purpose));
            }
        }
    }
}

/// Reads a file that a configuration names, or says why not.
fn read_text(path: &Path, purpose: &str, size_max: usize) -> Result<String, String> {
    // First of all, since opening a pipe would wait for its other end.
    check_one(path, purpose, false)?;
    let shown = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(size_max as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {purpose} ({shown}): {error}"))?;
    if bytes.len() > size_max {
        let size = print_size(size_max as u64);
        return Err(format!("{purpose} ({shown}) is larger than {size}"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{purpose} ({shown}) is not UTF-8 text"))
}

/// Checks that the files and directories a configuration names can be read: for configurations
/// that come from no file. [`crate::load`] does it with line numbers.
///
/// # Errors
/// One for each that cannot be read, with its path in place of the file's name.
pub fn check_files(config: &Config) -> Result<(), Errors> {
    let mut errors = Vec::new();
    let mut check = |path: &Path, purpose, is_directory| {
        if let Err(reason) = check_one(path, purpose, is_directory) {
            errors.push(ConfigError::whole(path.display().to_string(), reason));
        }
    };
    for upstream in &config.upstreams {
        if let Some(ca) = &upstream.tls.ca {
            check(ca, "the upstream's trusted roots", false);
        }
    }
    for list in &config.guard.lists {
        check(&list.path, LIST_PURPOSE, false);
    }
    for plugin in &config.plugins {
        check(&plugin.source, MODULE_PURPOSE, false);
    }
    for site in &config.sites {
        for certificate in &site.certificates {
            check(&certificate.chain, "the certificate", false);
            check(&certificate.key, "the certificate's key", false);
        }
        for route in &site.routes {
            if let RouteSource::Files(files) = &route.source {
                check(&files.root, "the directory of the files", true);
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
}

fn check_one(path: &Path, purpose: &str, is_directory: bool) -> Result<(), String> {
    let shown = path.display();
    let fail = |error| format!("cannot read {purpose} ({shown}): {error}");
    if is_directory {
        // Not read_dir: a directory may be searchable and not listable.
        let metadata = fs::metadata(path).map_err(fail)?;
        return match metadata.is_dir() {
            true => Ok(()),
            false => Err(format!("{purpose} ({shown}) is no directory")),
        };
    }
    let metadata = fs::metadata(path).map_err(fail)?;
    if !metadata.is_file() {
        return Err(format!("{purpose} ({shown}) is no file"));
    }
    File::open(path).map(drop).map_err(fail)
}
