//! The server's own log: on standard error, for people on a terminal and for collectors elsewhere.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging. `WEIR_LOG` sets the level, overall or by module (`debug`, `weir_origin=debug`);
/// `info` is the default.
pub(crate) fn start() {
    let filter = EnvFilter::builder()
        .with_env_var("WEIR_LOG")
        .with_default_directive(tracing::level_filters::LevelFilter::INFO.into())
        .from_env_lossy();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A second start, as tests in one process may ask for, changes nothing.
    let _ = builder.try_init();
}
