//! Named facts that plugins may ask for: proxy-wasm's properties.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::limits::{BAG_BYTES_MAX, BAG_MAX};

/// A property's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, or bytes.
    Bytes(Bytes),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// Yes or no.
    Bool(bool),
    /// A moment.
    Time(SystemTime),
    /// A span of time.
    Duration(Duration),
    /// Names and values.
    Map(Vec<(String, String)>),
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Bytes(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// Whoever knows properties.
pub trait Properties: Send + Sync {
    /// The property at a path such as `["source", "address"]`, if it is known here.
    fn property(&self, path: &[&str]) -> Option<Value>;
}

/// Knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoProperties;

impl Properties for NoProperties {
    fn property(&self, _path: &[&str]) -> Option<Value> {
        None
    }
}

/// Properties that plugins set: what they tell each other, and their own later hooks, about one
/// request.
#[derive(Debug, Default)]
pub struct Bag(Mutex<Vec<(Box<[u8]>, Bytes)>>);

impl Bag {
    /// The value set at a path, as proxy-wasm writes paths: parts with a zero byte between them.
    pub(crate) fn value(&self, path: &[u8]) -> Option<Bytes> {
        let bag = self.0.lock();
        bag.iter().find(|(known, _)| **known == *path).map(|(_, value)| value.clone())
    }

    /// Sets one. False if that would be too many, or too much.
    pub(crate) fn set(&self, path: &[u8], value: Bytes) -> bool {
        let mut bag = self.0.lock();
        let others = bag.iter().filter(|(known, _)| **known != *path);
        let bytes: usize = others.map(|(path, value)| path.len() + value.len()).sum();
        if bytes + path.len() + value.len() > BAG_BYTES_MAX {
            return false;
        }
        match bag.iter().position(|(known, _)| **known == *path) {
            Some(index) => bag[index].1 = value,
            None if bag.len() < BAG_MAX => bag.push((path.into(), value)),
            None => return false,
        }
        true
    }
}
