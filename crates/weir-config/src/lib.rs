//! Weir's configuration: KDL text becomes a validated, typed [`Config`], or errors that point at
//! file, line and column and say what was expected. Knows no sockets and no runtime.

mod model;

pub use model::*;
