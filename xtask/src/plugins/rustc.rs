//! A wrapper of rustc for cargo. Cargo tells a crate apart from others by a hash of where it lies,
//! if that is outside the workspace, as the SDK is; and the compiler puts functions in an order
//! that depends on it. Package and version tell apart as well, and are the same everywhere.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Set where this program is to be the wrapper: then its arguments are rustc and rustc's.
pub(crate) const WRAPPER: &str = "WEIR_XTASK_WRAPS_RUSTC";

/// Runs rustc.
///
/// # Errors
/// It cannot be run.
pub(crate) fn run(mut arguments: Vec<OsString>) -> Result<ExitCode, String> {
    if arguments.is_empty() {
        return Err(format!("{WRAPPER} is set, but there is no rustc to run"));
    }
    let variable = |name| env::var(name).unwrap_or_default();
    let package = format!("{}-{}", variable("CARGO_PKG_NAME"), variable("CARGO_PKG_VERSION"));
    let rustc = arguments.remove(0);
    name_metadata(&mut arguments, &package);
    let status = Command::new(&rustc).args(arguments).status();
    let status = status.map_err(|e| format!("{}: {e}", rustc.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replaces the hash in `-C metadata=…` by the package and the crate, of which a package may have
/// several.
fn name_metadata(arguments: &mut [OsString], package: &str) {
    let place = arguments.iter().position(|argument| argument == "--crate-name");
    let name = place.and_then(|at| arguments.get(at + 1)?.to_str()).unwrap_or_default();
    let metadata = format!("metadata={package}-{name}");
    for argument in arguments {
        if argument.to_str().is_some_and(|text| text.starts_with("metadata=")) {
            *argument = metadata.clone().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_named() {
        let check = |before: &[&str], expect: &[&str]| {
            let mut arguments: Vec<OsString> = before.iter().map(OsString::from).collect();
            name_metadata(&mut arguments, "a-1.0");
            assert_eq!(arguments, expect);
        };
        let before = ["--crate-name", "a", "-C", "metadata=0123", "-C", "extra-filename=-0123"];
        let after = ["--crate-name", "a", "-C", "metadata=a-1.0-a", "-C", "extra-filename=-0123"];
        check(&before, &after);
        check(&["-vV"], &["-vV"]);
        check(&["--crate-name"], &["--crate-name"]);
        assert!(run(Vec::new()).is_err());
    }
}
