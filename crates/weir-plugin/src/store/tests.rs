//! The store on a real disk.
