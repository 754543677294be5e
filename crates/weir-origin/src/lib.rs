//! weir-origin
