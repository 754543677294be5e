//! The parts of the binary that stand on their own: the origin behind `weir demo`.

pub mod demo;
