//! weir-arena
