//! Kinds of values: each turns a KDL value into a typed [`Value`] or says what it must be. The
//! key table names a kind for every argument and property.

use std::time::Duration;

use kdl::KdlValue;

use crate::model::{
    Address, BucketKey, Coding, Destination, HashKey, HostHeader, PathMatch, Pattern, ValueMatch,
};
use crate::prefix::{Addresses, Prefix};
use crate::suggest;
use crate::url::{Origin, ProxyTarget};

/// A value that passed its kind's check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Switch(bool),
    Number(u64),
    Time(Duration),
    Text(String),
    /// One of a kind's fixed words.
    Word(&'static str),
    Address(Address),
    Origin(Origin),
    ProxyTarget(ProxyTarget),
    Pattern(Pattern),
    Prefix(Prefix),
    Destination(Destination),
    HashKey(HashKey),
    HostHeader(HostHeader),
    /// Status codes or ports, from the first to the last.
    Range((u16, u16)),
    Addresses(Addresses),
    Path(PathMatch),
    Match(ValueMatch),
    Bucket(BucketKey),
    /// A content coding, and its level if that is given.
    Format(Coding, Option<u32>),
}

/// Why a value was refused.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    /// The reason, if the description of the kind does not give it.
    pub(crate) reason: Option<String>,
    /// What was probably meant.
    pub(crate) suggestion: Option<String>,
}

impl Wrong {
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Wrong { reason: Some(reason.into()), suggestion: None }
    }

    pub(crate) fn suggesting(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
}

/// What an argument or a property may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `#true` or `#false`.
    Switch,
    /// An integer in a range, inclusive.
    Number { min: u64, max: u64 },
    /// An integer in a range, or one word.
    NumberOr { word: &'static str, min: u64, max: u64 },
    /// Bytes in a range, such as `"16KiB"`.
    Size { min: u64, max: u64 },
    /// A time in a range given in milliseconds, such as `"10s"`.
    Time { min: u64, max: u64 },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these numbers.
    Status(&'static [u64]),
    /// One of these numbers, or one word.
    StatusOr { word: &'static str, codes: &'static [u64] },
    /// A port such as `443`, or a range of them such as `"8000-8999"`.
    Ports,
    /// Text with rules of its own.
    Text(&'static TextKind),
}

/// Text with rules of its own.
#[derive(Debug)]
pub(crate) struct TextKind {
    /// What it is, with its article and an example, as errors and the reference say it.
    pub(crate) what: &'static str,
    /// Checks and converts it.
    pub(crate) parse: fn(&str) -> Result<Value, Wrong>,
}

impl Kind {
    /// Turns a KDL value into a typed one.
    pub(crate) fn parse(&self, value: &KdlValue) -> Result<Value, Wrong> {
        match (self, value) {
            (Kind::Switch, KdlValue::Bool(on)) => Ok(Value::Switch(*on)),
            (Kind::Switch, KdlValue::String(text)) => Err(switch_from_text(text)),
            (Kind::Number { min, max }, _) => number(value, *min, *max),
            (Kind::NumberOr { word, .. }, KdlValue::String(text)) if text == word => {
                Ok(Value::Word(word))
            }
            (Kind::NumberOr { min, max, .. }, _) => number(value, *min, *max),
            (Kind::Size { min, max }, KdlValue::Integer(_)) => number(value, *min, *max),
            (Kind::Size { min, max }, KdlValue::String(text)) => {
                in_range(size(text)?, *min, *max).map(Value::Number)
            }
            (Kind::Time { min, max }, KdlValue::String(text)) => {
                let millis = in_range(time(text)?, *min, *max)?;
                Ok(Value::Time(Duration::from_millis(millis)))
            }
            (Kind::Time { .. }, KdlValue::Integer(number)) => {
                Err(Wrong::because("its unit is missing").suggesting(format!("{number}s")))
            }
            (Kind::Choice(words), KdlValue::String(text)) => choice(text, words),
            (Kind::StatusOr { word, .. }, KdlValue::String(text))
                if text.parse::<u64>().is_err() =>
            {
                choice(text, &[word])
            }
            (Kind::Status(codes) | Kind::StatusOr { codes, .. }, _) => {
                match number(value, 0, u64::MAX)? {
                    Value::Number(code) if codes.contains(&code) => Ok(Value::Number(code)),
                    _ => Err(Wrong::default()),
                }
            }
            (Kind::Ports, KdlValue::String(text)) => ports(text),
            (Kind::Ports, _) => match number(value, 1, u16::MAX.into())? {
                Value::Number(port) => port_range(port, port),
                _ => Err(Wrong::default()),
            },
            (Kind::Text(kind), KdlValue::String(text)) => (kind.parse)(text),
            _ => Err(Wrong::default()),
        }
    }

    /// What the value may be, for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Kind::Switch => "`#true` or `#false`".to_owned(),
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::NumberOr { word, min, max } => {
                format!("\"{word}\" or a number from {min} to {max}")
            }
            Kind::Size { min, max } => {
                format!("a size from {} to {}", print_size(*min), print_size(*max))
            }
            Kind::Time { min, max } => {
                let time = |millis| print_time(Duration::from_millis(millis));
                format!("a time from {} to {}", time(*min), time(*max))
            }
            Kind::Choice(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
                words.join(" or ")
            }
            Kind::Status(codes) => {
                let codes: Vec<_> = codes.iter().map(u64::to_string).collect();
                codes.join(", ")
            }
            Kind::StatusOr { word, codes } => {
                let codes: Vec<_> = codes.iter().map(u64::to_string).collect();
                format!("{} or \"{word}\"", codes.join(", "))
            }
            Kind::Ports => {
                "a port from 1 to 65535, or a range of them such as \"8000-8999\"".to_owned()
            }
            Kind::Text(kind) => kind.what.to_owned(),
        }
    }
}

fn switch_from_text(text: &str) -> Wrong {
    let word = match text {
        "on" | "yes" | "true" => "#true",
        "off" | "no" | "false" => "#false",
        _ => return Wrong::default(),
    };
    Wrong::default().suggesting(word)
}

fn number(value: &KdlValue, min: u64, max: u64) -> Result<Value, Wrong> {
    let number = match value {
        KdlValue::Integer(number) => *number,
        KdlValue::String(text) if text.parse::<i128>().is_ok() => {
            return Err(Wrong::because("a number stands without quotes"));
        }
        _ => return Err(Wrong::default()),
    };
    let number = u64::try_from(number).map_err(|_| Wrong::default())?;
    in_range(number, min, max).map(Value::Number)
}

fn ports(text: &str) -> Result<Value, Wrong> {
    let Some((low, high)) = text.split_once('-') else {
        let is_port = text.parse::<u16>().is_ok();
        let wrong = Wrong::because("a number stands without quotes");
        return Err(if is_port { wrong } else { Wrong::default() });
    };
    let port = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|port| digits && (1..=65535).contains(port))
    };
    match (port(low), port(high)) {
        (Some(low), Some(high)) if low <= high => port_range(low, high),
        _ => Err(Wrong::because("ports go from 1 to 65535, the lower one first")),
    }
}

fn port_range(low: u64, high: u64) -> Result<Value, Wrong> {
    match (low.try_into(), high.try_into()) {
        (Ok(low), Ok(high)) => Ok(Value::Range((low, high))),
        _ => Err(Wrong::default()),
    }
}

fn in_range(number: u64, min: u64, max: u64) -> Result<u64, Wrong> {
    if (min..=max).contains(&number) { Ok(number) } else { Err(Wrong::default()) }
}

fn choice(text: &str, words: &[&'static str]) -> Result<Value, Wrong> {
    if let Some(word) = words.iter().find(|&&word| word == text) {
        return Ok(Value::Word(word));
    }
    let suggestion = suggest::nearest(text, words.iter().copied());
    Err(Wrong { reason: None, suggestion: suggestion.map(str::to_owned) })
}

/// Units of sizes; the first that divides a size is the one it is printed in.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Units of times, in milliseconds.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Bytes.
fn size(text: &str) -> Result<u64, Wrong> {
    quantity(text, &SIZE_UNITS, "KiB, MiB, GiB, TiB, KB, MB, GB, TB or B")
}

/// Milliseconds.
fn time(text: &str) -> Result<u64, Wrong> {
    quantity(text, &TIME_UNITS, "ms, s, m, h or d")
}

fn quantity(text: &str, units: &[(&str, u64)], known: &str) -> Result<u64, Wrong> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(Wrong::default());
    }
    let unit = unit.trim_start();
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let meant = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let reason = match unit {
            "" => "its unit is missing".to_owned(),
            _ => format!("the units are {known}"),
        };
        let wrong = Wrong::because(reason);
        return Err(match meant {
            Some((unit, _)) => wrong.suggesting(format!("{number}{unit}")),
            None => wrong,
        });
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*factor))
        .ok_or_else(|| Wrong::because("it is too large to count"))
}

/// A size as it is written in a configuration.
pub(crate) fn print_size(bytes: u64) -> String {
    print_quantity(bytes, &SIZE_UNITS, "0B")
}

/// A time as it is written in a configuration; less than a millisecond is dropped.
pub(crate) fn print_time(time: Duration) -> String {
    print_quantity(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &TIME_UNITS, "0s")
}

fn print_quantity(amount: u64, units: &[(&str, u64)], zero: &str) -> String {
    match units.iter().find(|&&(_, factor)| amount >= factor && amount.is_multiple_of(factor)) {
        Some((unit, factor)) => format!("{}{unit}", amount / factor),
        None => zero.to_owned(),
    }
}

/// A typed value taken out of a [`Value`].
pub(crate) trait FromValue: Sized {
    /// `None` if the key table and the code disagree about the kind.
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $variant:ident),* $(,)?) => {
        $(impl FromValue for $type {
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    bool: Switch, u64: Number, Duration: Time, String: Text, &'static str: Word, Address: Address,
    Origin: Origin, ProxyTarget: ProxyTarget, Pattern: Pattern, HashKey: HashKey,
    HostHeader: HostHeader, Prefix: Prefix, Destination: Destination, (u16, u16): Range,
    Addresses: Addresses, PathMatch: Path, ValueMatch: Match, BucketKey: Bucket,
}

macro_rules! from_number {
    ($($type:ty),*) => {
        $(impl FromValue for $type {
            fn from_value(value: Value) -> Option<Self> {
                u64::from_value(value).and_then(|number| number.try_into().ok())
            }
        })*
    };
}

from_number!(u8, u16, u32, usize);

impl FromValue for Value {
    fn from_value(value: Value) -> Option<Self> {
        Some(value)
    }
}
