//! Settings by key, each taken once; what is left over is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Longest duration that is taken, in seconds: a year.
const LONGEST: f64 = 365.0 * 24.0 * 3600.0;

/// One setting's value, as Python gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Flag(bool),
    Int(i64),
    Real(f64),
    Text(String),
    Texts(Vec<String>),
    Other(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(it) => write!(f, "{}", if *it { "True" } else { "False" }),
            Self::Int(it) => write!(f, "{it}"),
            Self::Real(it) => write!(f, "{it}"),
            Self::Text(it) => write!(f, "{it:?}"),
            Self::Texts(it) => write!(f, "{it:?}"),
            Self::Other(it) => f.write_str(it),
        }
    }
}

/// Settings that have not been taken, and the keys that were asked for.
#[derive(Debug, Default)]
pub struct Table {
    values: BTreeMap<String, Value>,
    known: Vec<&'static str>,
}

impl Table {
    pub fn new(values: BTreeMap<String, Value>) -> Self {
        Self { values, known: Vec::new() }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// Whether the key is there and not taken yet.
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a non-empty string", &other)),
        }
    }

    pub fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Texts(texts)) => Ok(Some(texts)),
            Some(Value::Text(text)) => {
                Ok(Some(text.split(',').map(|it| it.trim().into()).collect()))
            }
            Some(other) => Err(wrong(key, "a list of strings", &other)),
        }
    }

    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(flag)),
            Some(other) => Err(wrong(key, "True or False", &other)),
        }
    }

    /// A whole number within `range`.
    pub fn count<T: TryFrom<i64>>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<T>, String> {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        match self.take(key) {
            None => Ok(None),
            Some(Value::Int(number)) if range.contains(&number) => T::try_from(number)
                .map(Some)
                .map_err(|_| wrong(key, &expected(), &Value::Int(number))),
            Some(other) => Err(wrong(key, &expected(), &other)),
        }
    }

    /// Seconds above 0.
    pub fn seconds(&mut self, key: &'static str) -> Result<Option<Duration>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = match value {
            Value::Int(number) => number as f64,
            Value::Real(number) => number,
            ref other => return Err(wrong(key, "a number of seconds above 0", other)),
        };
        let duration = Duration::try_from_secs_f64(number).ok();
        match duration.filter(|it| !it.is_zero() && number <= LONGEST) {
            Some(duration) => Ok(Some(duration)),
            None => Err(wrong(key, "a number of seconds above 0 and within a year", &value)),
        }
    }

    /// Nothing must be left.
    pub fn finish(self) -> Result<(), String> {
        let Some((key, _)) = self.values.first_key_value() else { return Ok(()) };
        let mut known = self.known;
        known.sort_unstable();
        known.dedup();
        let near = known.iter().find(|it| it.contains(key.as_str()) || key.contains(**it));
        let hint = near.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
        Err(format!("setting `{key}` is not known{hint} Known are: {}", known.join(", ")))
    }
}

fn wrong(key: &str, expected: &str, value: &Value) -> String {
    format!("setting `{key}`: expected {expected}, got {value}")
}
