//! Shared data: keys and values, changed by compare-and-swap.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};

use crate::limits::{
    DATA_BYTES_MAX, DATA_ENTRIES_MAX, DATA_KEY_BYTES_MAX, DATA_VALUE_BYTES_MAX, SPACES_MAX,
};

/// Why a value was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataError {
    /// Somebody else set it since.
    #[error("it has been changed since it was read")]
    Mismatch,
    /// Over a limit.
    #[error("{what} would be more than {limit}")]
    Beyond { what: &'static str, limit: usize },
}

/// All shared data.
#[derive(Default)]
pub(super) struct Data {
    spaces: RwLock<HashMap<Box<str>, Arc<Space>, RandomState>>,
}

#[derive(Default)]
struct Space(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    values: HashMap<Box<str>, (Bytes, u32), RandomState>,
    /// Of all keys and values.
    bytes: usize,
    last_cas: u32,
}

impl Data {
    pub(super) fn value(&self, space: &str, key: &str) -> Option<(Bytes, u32)> {
        let space = self.spaces.read().get(space)?.clone();
        let entries = space.0.lock();
        entries.values.get(key).cloned()
    }

    pub(super) fn set(
        &self,
        space: &str,
        key: &str,
        value: Bytes,
        cas: u32,
    ) -> Result<u32, DataError> {
        at_most("bytes of a key", key.len(), DATA_KEY_BYTES_MAX)?;
        at_most("bytes of a value", value.len(), DATA_VALUE_BYTES_MAX)?;
        self.space(space)?.0.lock().set(key, value, cas)
    }

    pub(super) fn forget(&self, space: &str) {
        self.spaces.write().remove(space);
    }

    fn space(&self, name: &str) -> Result<Arc<Space>, DataError> {
        if let Some(space) = self.spaces.read().get(name) {
            return Ok(space.clone());
        }
        let mut spaces = self.spaces.write();
        if !spaces.contains_key(name) {
            at_most("names with shared data", spaces.len() + 1, SPACES_MAX)?;
        }
        Ok(spaces.entry(name.into()).or_default().clone())
    }
}

impl Entries {
    fn set(&mut self, key: &str, value: Bytes, cas: u32) -> Result<u32, DataError> {
        let held = self.values.get_mut(key);
        let held_cas = held.as_ref().map_or(0, |(_, cas)| *cas);
        if cas != 0 && cas != held_cas {
            return Err(DataError::Mismatch);
        }
        let held_bytes = held.as_ref().map_or(0, |(held, _)| key.len() + held.len());
        let bytes = self.bytes - held_bytes + key.len() + value.len();
        at_most("bytes of shared data", bytes, DATA_BYTES_MAX)?;
        // Never 0, which means any.
        let next = self.last_cas.checked_add(1).unwrap_or(1);
        match held {
            Some(held) => *held = (value, next),
            None => {
                at_most("entries of shared data", self.values.len() + 1, DATA_ENTRIES_MAX)?;
                self.values.insert(key.into(), (value, next));
            }
        }
        self.bytes = bytes;
        self.last_cas = next;
        Ok(next)
    }
}

fn at_most(what: &'static str, count: usize, limit: usize) -> Result<(), DataError> {
    if count > limit { Err(DataError::Beyond { what, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn a_value_is_only_replaced_by_whoever_knows_it() {
        let data = Data::default();
        let first = data.set("a", "key", bytes("1"), 0).unwrap();
        assert_ne!(first, 0);
        assert_eq!(data.value("a", "key"), Some((bytes("1"), first)));
        let second = data.set("a", "key", bytes("2"), first).unwrap();
        assert_ne!(second, first);
        assert_eq!(data.set("a", "key", bytes("3"), first), Err(DataError::Mismatch));
        assert_eq!(data.set("a", "other", bytes("3"), 7), Err(DataError::Mismatch));
        assert_eq!(data.value("a", "key").unwrap().0, "2");
        assert_eq!(data.value("b", "key"), None);
        data.forget("a");
        assert_eq!(data.value("a", "key"), None);
    }

    #[test]
    fn compare_and_swap_loses_no_update_of_two_threads() {
        let data = Data::default();
        data.set("a", "n", bytes("0"), 0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        loop {
                            let (value, cas) = data.value("a", "n").unwrap();
                            let n: u32 = std::str::from_utf8(&value).unwrap().parse().unwrap();
                            if data.set("a", "n", bytes(&(n + 1).to_string()), cas).is_ok() {
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(data.value("a", "n").unwrap().0, "2000");
    }

    #[test]
    fn grows_no_further_than_its_limits() {
        let data = Data::default();
        let value = Bytes::from(vec![0; DATA_VALUE_BYTES_MAX]);
        let is_beyond = |key: &str, value: Bytes| {
            matches!(data.set("a", key, value, 0), Err(DataError::Beyond { .. }))
        };
        assert!(is_beyond(&"k".repeat(DATA_KEY_BYTES_MAX + 1), bytes("")));
        assert!(is_beyond("k", Bytes::from(vec![0; DATA_VALUE_BYTES_MAX + 1])));
        let fit = DATA_BYTES_MAX / (DATA_VALUE_BYTES_MAX + 1);
        for n in 0..fit {
            // One-byte keys.
            data.set("a", &char::from(b'!' + n as u8).to_string(), value.clone(), 0).unwrap();
        }
        assert!(is_beyond("~", value.clone()));
        // What is replaced does not count, and others' data does not either.
        data.set("a", "!", value.clone(), 0).unwrap();
        data.set("b", "!", value, 0).unwrap();
    }
}
