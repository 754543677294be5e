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

/// What a key must hold for its value to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Anything, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// The value with this number.
    Cas(u32),
}

impl Expect {
    /// As proxy-wasm says it: 0 is anything.
    pub(crate) fn from_cas(cas: u32) -> Expect {
        if cas == 0 { Expect::Any } else { Expect::Cas(cas) }
    }
}

/// The numbers of values end before this one, which Weir's own interface has a meaning for.
pub(crate) const CAS_ABSENT: u32 = u32::MAX;

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
        expect: Expect,
    ) -> Result<u32, DataError> {
        at_most("bytes of a key", key.len(), DATA_KEY_BYTES_MAX)?;
        at_most("bytes of a value", value.len(), DATA_VALUE_BYTES_MAX)?;
        self.space(space)?.0.lock().set(key, value, expect)
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
    fn set(&mut self, key: &str, value: Bytes, expect: Expect) -> Result<u32, DataError> {
        let held = self.values.get_mut(key);
        let is_as_expected = match expect {
            Expect::Any => true,
            Expect::Absent => held.is_none(),
            Expect::Cas(cas) => held.as_ref().is_some_and(|(_, held)| *held == cas),
        };
        if !is_as_expected {
            return Err(DataError::Mismatch);
        }
        let held_bytes = held.as_ref().map_or(0, |(held, _)| key.len() + held.len());
        let bytes = self.bytes - held_bytes + key.len() + value.len();
        at_most("bytes of shared data", bytes, DATA_BYTES_MAX)?;
        // Neither 0, which means any, nor the number that means none.
        let next = if self.last_cas + 1 == CAS_ABSENT { 1 } else { self.last_cas + 1 };
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

    fn number(text: &[u8]) -> u32 {
        std::str::from_utf8(text).unwrap().parse().unwrap()
    }

    #[test]
    fn a_value_is_only_replaced_by_whoever_knows_it() {
        let data = Data::default();
        let first = data.set("a", "key", bytes("1"), Expect::Any).unwrap();
        assert_ne!(first, 0);
        assert_eq!(data.value("a", "key"), Some((bytes("1"), first)));
        let second = data.set("a", "key", bytes("2"), Expect::Cas(first)).unwrap();
        assert_ne!(second, first);
        assert_eq!(data.set("a", "key", bytes("3"), Expect::Cas(first)), Err(DataError::Mismatch));
        assert_eq!(data.set("a", "other", bytes("3"), Expect::Cas(7)), Err(DataError::Mismatch));
        assert_eq!(data.value("a", "key").unwrap().0, "2");
        assert_eq!(data.value("b", "key"), None);
        data.forget("a");
        assert_eq!(data.value("a", "key"), None);
    }

    #[test]
    fn only_one_is_first() {
        let data = Data::default();
        assert!(data.set("a", "key", bytes("1"), Expect::Absent).is_ok());
        assert_eq!(data.set("a", "key", bytes("2"), Expect::Absent), Err(DataError::Mismatch));
        assert_eq!(data.value("a", "key").unwrap().0, "1");
    }

    #[test]
    fn numbers_come_around_without_those_that_mean_something() {
        let mut entries = Entries { last_cas: CAS_ABSENT - 2, ..Entries::default() };
        assert_eq!(entries.set("key", bytes(""), Expect::Any), Ok(CAS_ABSENT - 1));
        assert_eq!(entries.set("key", bytes(""), Expect::Any), Ok(1));
    }

    #[test]
    fn compare_and_swap_loses_no_update_of_two_threads() {
        let data = Data::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        loop {
                            let held = data.value("a", "n");
                            let n: u32 = held.as_ref().map_or(0, |(value, _)| number(value));
                            let expect = held.map_or(Expect::Absent, |(_, cas)| Expect::Cas(cas));
                            if data.set("a", "n", bytes(&(n + 1).to_string()), expect).is_ok() {
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
            matches!(data.set("a", key, value, Expect::Any), Err(DataError::Beyond { .. }))
        };
        assert!(is_beyond(&"k".repeat(DATA_KEY_BYTES_MAX + 1), bytes("")));
        assert!(is_beyond("k", Bytes::from(vec![0; DATA_VALUE_BYTES_MAX + 1])));
        let fit = DATA_BYTES_MAX / (DATA_VALUE_BYTES_MAX + 1);
        for n in 0..fit {
            // One-byte keys.
            data.set("a", &char::from(b'!' + n as u8).to_string(), value.clone(), Expect::Any)
                .unwrap();
        }
        assert!(is_beyond("~", value.clone()));
        // What is replaced does not count, and others' data does not either.
        data.set("a", "!", value.clone(), Expect::Any).unwrap();
        data.set("b", "!", value, Expect::Any).unwrap();
    }
}
