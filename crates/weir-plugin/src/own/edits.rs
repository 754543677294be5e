//! Edit lists, decoded: bytes in, typed records or the first mistake out. Knows nothing of
//! requests; whether an edit is in its place is decided in [`super::changes`].

use super::ops::{Op, Shape, Spec};
use crate::memory;

/// Bytes of a list, without what it refers to elsewhere.
pub(crate) const LIST_BYTES_MAX: usize = 1 << 20;

/// Records of a list.
pub(crate) const RECORDS_MAX: usize = 4096;

/// Bytes before a record's name.
const RECORD_HEAD: usize = 8;

/// The value is an address and a length.
const FLAG_ELSEWHERE: u8 = 1;

/// A list that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("edit list, record {record} ({op}): {mistake}")]
pub(crate) struct EditError {
    /// Counted from 1.
    pub(crate) record: usize,
    /// The record's name in the specification, or its number.
    pub(crate) op: String,
    /// What is wrong and what was expected.
    pub(crate) mistake: String,
}

/// A record.
#[derive(Clone, Copy)]
pub(crate) struct Edit<'a> {
    /// Counted from 1.
    pub(crate) record: usize,
    pub(crate) spec: &'static Spec,
    pub(crate) name: &'a [u8],
    pub(crate) value: Value<'a>,
}

/// A record's value, in the shape that its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Nothing,
    Bytes(&'a [u8]),
    Number(u64),
    Span(u32, u32),
}

impl<'a> Edit<'a> {
    pub(crate) fn op(&self) -> Op {
        self.spec.op
    }

    pub(crate) fn error(&self, mistake: impl Into<String>) -> EditError {
        let (record, op) = (self.record, self.spec.name.to_owned());
        EditError { record, op, mistake: mistake.into() }
    }

    /// The value of a record whose row says bytes; empty for others.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match self.value {
            Value::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    /// The value of a record whose row says a number; 0 for others.
    pub(crate) fn number(&self) -> u64 {
        match self.value {
            Value::Number(number) => number,
            _ => 0,
        }
    }

    /// The value of a record that takes a 32-bit number.
    pub(crate) fn number_u32(&self) -> u32 {
        // The shape U32 was decoded from 4 bytes.
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }
}

/// The records of a list.
pub(crate) struct Edits<'a> {
    memory: &'a [u8],
    rest: &'a [u8],
    record: usize,
}

/// The list at an address.
///
/// # Errors
/// If it is not in the memory, or longer than a list may be.
pub(crate) fn decode(memory: &[u8], ptr: u32, len: u32) -> Result<Edits<'_>, EditError> {
    let whole = |mistake: String| EditError { record: 0, op: "the list itself".into(), mistake };
    if len as usize > LIST_BYTES_MAX {
        return Err(whole(format!("{len} bytes, and at most {LIST_BYTES_MAX} are taken")));
    }
    let rest = memory::slice(memory, ptr, len).map_err(|cause| whole(cause.to_string()))?;
    Ok(Edits { memory, rest, record: 0 })
}

impl<'a> Edits<'a> {
    fn record(&mut self) -> Result<Edit<'a>, EditError> {
        let record = self.record;
        let unnamed = |op: String, mistake: String| EditError { record, op, mistake };
        let Some((head, rest)) = self.rest.split_first_chunk::<RECORD_HEAD>() else {
            let mistake =
                format!("{} bytes left, and a record has {RECORD_HEAD} at least", self.rest.len());
            return Err(unnamed("cut off".into(), mistake));
        };
        let [number, flags, n0, n1, v0, v1, v2, v3] = *head;
        let Some(spec) = Op::spec(number) else {
            return Err(unnamed(
                number.to_string(),
                format!("expected an operation from 1 to {}", super::ops::OPS.len()),
            ));
        };
        let name_len = usize::from(u16::from_le_bytes([n0, n1]));
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
        let mut edit = Edit { record, spec, name: &[], value: Value::Nothing };
        if flags & !FLAG_ELSEWHERE != 0 {
            return Err(edit.error(format!("flags {flags:#04x}, expected 0 or 1")));
        }
        if record > RECORDS_MAX {
            return Err(edit.error(format!("at most {RECORDS_MAX} records are taken")));
        }
        let Some((content, rest)) = rest.split_at_checked(name_len + value_len) else {
            let (needs, left) = (name_len + value_len, rest.len());
            return Err(edit.error(format!(
                "name and value have {needs} bytes, but only {left} are left of the list"
            )));
        };
        self.rest = rest;
        let (name, value) = content.split_at(name_len);
        if name.is_empty() == spec.named {
            return Err(edit.error(match spec.named {
                true => "expected a name".to_owned(),
                false => format!("expected no name, found one of {name_len} bytes"),
            }));
        }
        edit.name = name;
        let value = match flags & FLAG_ELSEWHERE {
            0 => value,
            _ => self.elsewhere(&edit, value)?,
        };
        edit.value = shaped(&edit, value)?;
        Ok(edit)
    }

    fn elsewhere(&self, edit: &Edit<'_>, value: &[u8]) -> Result<&'a [u8], EditError> {
        let Value::Span(ptr, len) = span(value).ok_or_else(|| {
            edit.error(format!("a value elsewhere is given by 8 bytes, found {}", value.len()))
        })?
        else {
            return Ok(&[]);
        };
        memory::slice(self.memory, ptr, len).map_err(|cause| edit.error(cause.to_string()))
    }
}

impl<'a> Iterator for Edits<'a> {
    type Item = Result<Edit<'a>, EditError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        self.record += 1;
        let record = self.record();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

fn span(value: &[u8]) -> Option<Value<'static>> {
    let (ptr, rest) = value.split_first_chunk::<4>()?;
    let len: [u8; 4] = rest.try_into().ok()?;
    Some(Value::Span(u32::from_le_bytes(*ptr), u32::from_le_bytes(len)))
}

fn shaped<'a>(edit: &Edit<'a>, value: &'a [u8]) -> Result<Value<'a>, EditError> {
    let expected = |what: &str| edit.error(format!("expected {what}, found {} bytes", value.len()));
    let shaped = match edit.spec.value {
        Shape::Nothing if value.is_empty() => Value::Nothing,
        Shape::Nothing => return Err(expected("no value")),
        Shape::Bytes => Value::Bytes(value),
        Shape::U32 => {
            let bytes: [u8; 4] = value.try_into().map_err(|_| expected("a number of 4 bytes"))?;
            Value::Number(u32::from_le_bytes(bytes).into())
        }
        Shape::U64 => {
            let bytes: [u8; 8] = value.try_into().map_err(|_| expected("a number of 8 bytes"))?;
            Value::Number(u64::from_le_bytes(bytes))
        }
        Shape::Span => span(value).ok_or_else(|| expected("offset and length, 4 bytes each"))?,
    };
    match shaped {
        Value::Number(number) if number > edit.spec.max => {
            Err(edit.error(format!("{number}, and at most {} is allowed", edit.spec.max)))
        }
        _ => Ok(shaped),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ops::OPS;
    use super::*;

    /// A record as bytes, with a value in the shape that its row says, or elsewhere at the start of
    /// the memory.
    fn record(spec: &Spec, name: &[u8], value: &[u8], elsewhere: bool) -> Vec<u8> {
        let name = if spec.named { name } else { &[] };
        let value = match spec.value {
            Shape::Nothing => Vec::new(),
            Shape::Bytes => value.to_vec(),
            Shape::U32 => vec![1, 0, 0, 0],
            Shape::U64 | Shape::Span => vec![1, 0, 0, 0, 0, 0, 0, 0],
        };
        let inline = match elsewhere {
            true => [0_u32.to_le_bytes(), (value.len() as u32).to_le_bytes()].concat(),
            false => value,
        };
        let mut bytes = vec![spec.op as u8, u8::from(elsewhere)];
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend((inline.len() as u32).to_le_bytes());
        bytes.extend(name);
        bytes.extend(inline);
        bytes
    }

    proptest! {
        #[test]
        fn whatever_bytes_there_are_they_end_in_records_or_one_error(
            memory in prop::collection::vec(any::<u8>(), 0..300),
            ptr in 0_u32..400,
            len in 0_u32..400,
        ) {
            if let Ok(edits) = decode(&memory, ptr, len) {
                let all: Vec<_> = edits.collect();
                prop_assert!(all.len() <= len as usize / RECORD_HEAD + 1);
                let errors = all.iter().filter(|edit| edit.is_err()).count();
                prop_assert!(errors == 0 || errors == 1 && all.last().is_some_and(Result::is_err));
            } else {
                prop_assert!(ptr as usize + len as usize > memory.len());
            }
        }

        #[test]
        fn what_is_written_is_read(
            records in prop::collection::vec(
                (
                    0_usize..OPS.len(),
                    prop::collection::vec(any::<u8>(), 1..20),
                    prop::collection::vec(any::<u8>(), 0..40),
                    any::<bool>(),
                ),
                0..20,
            ),
            cut in 0_usize..2000,
        ) {
            // What is elsewhere is a number with the value 1, whatever its size; or those bytes.
            let mut memory = vec![0; 64];
            memory[0] = 1;
            let start = memory.len();
            let mut written = 0;
            for (row, name, value, elsewhere) in &records {
                memory.extend(record(&OPS[*row], name, value, *elsewhere));
                written += 1;
            }
            let len = memory.len() - start;
            let edits: Vec<_> = decode(&memory, start as u32, len as u32)
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            prop_assert_eq!(edits.len(), written);
            for (edit, (row, name, value, elsewhere)) in edits.iter().zip(&records) {
                let spec = &OPS[*row];
                prop_assert_eq!(edit.op(), spec.op);
                prop_assert_eq!(edit.name, if spec.named { &name[..] } else { &[] });
                match spec.value {
                    Shape::Bytes if *elsewhere => {
                        prop_assert_eq!(edit.bytes(), &memory[..value.len()]);
                    }
                    Shape::Bytes => prop_assert_eq!(edit.bytes(), &value[..]),
                    Shape::U32 | Shape::U64 => prop_assert_eq!(edit.number(), 1),
                    Shape::Span => prop_assert_eq!(edit.value, Value::Span(1, 0)),
                    Shape::Nothing => prop_assert_eq!(edit.value, Value::Nothing),
                }
            }
            // A list that is cut anywhere but between records ends in an error.
            let cut = cut.min(len);
            let ends: Vec<usize> = records
                .iter()
                .scan(0, |at, (row, name, value, elsewhere)| {
                    *at += record(&OPS[*row], name, value, *elsewhere).len();
                    Some(*at)
                })
                .collect();
            let whole = cut == 0 || ends.contains(&cut);
            let mut edits = decode(&memory, start as u32, cut as u32).unwrap();
            prop_assert_eq!(edits.all(|edit| edit.is_ok()), whole);
        }
    }
}
