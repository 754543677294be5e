//! weir-cache
