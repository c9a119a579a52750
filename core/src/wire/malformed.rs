//! What is wrong with a message, and where.

use std::fmt;
use thiserror::Error;

/// A message that breaks the wire form. The peer is at fault: drop the message, answer
/// ERROR if it was a pull, and look at the peer's version or for a stray client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("malformed message: {problem}, in `{field}` at byte {offset}")]
pub struct Malformed {
    /// The field being read, as named on the wire; `message` outside any field.
    pub field: &'static str,
    /// Offset from the start of the message, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The message ends inside a value.
    Truncated,
    /// Bytes follow the message.
    TrailingBytes(usize),
    /// Another type than the field has.
    WrongType {
        /// What the field holds.
        expected: &'static str,
        /// What the message holds.
        found: &'static str,
    },
    /// An integer that the field cannot hold.
    OutOfRange {
        /// The range of the field.
        expected: &'static str,
    },
    /// A string that is not UTF-8.
    NotUtf8,
    /// A required field is not there.
    Missing,
    /// The field, or the request of that name, is there twice.
    Twice,
    /// An array of fixed form with too few elements.
    TooShort {
        /// Elements that the form has.
        expected: usize,
        /// Elements found.
        found: usize,
    },
    /// A number with no meaning here: a status, a kind of message, a form of layout.
    Unknown(u64),
    /// A run of no blocks, or one that passes the last block id.
    BadRun,
    /// A reference to an entry that the message does not have.
    NoSuchEntry(u64),
    /// More than [`Limits`](super::Limits) allows.
    OverLimit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated => f.write_str("it ends inside a value"),
            Self::TrailingBytes(count) => write!(f, "{count} bytes follow its end"),
            Self::WrongType { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            Self::OutOfRange { expected } => {
                write!(f, "the integer is out of range, expected {expected}")
            }
            Self::NotUtf8 => f.write_str("the string is not UTF-8"),
            Self::Missing => f.write_str("a required field is missing"),
            Self::Twice => f.write_str("the name appears twice"),
            Self::TooShort { expected, found } => {
                write!(f, "expected at least {expected} elements, found {found}")
            }
            Self::Unknown(value) => write!(f, "the value {value} is not known"),
            Self::BadRun => f.write_str("a run of blocks is empty or passes the last block id"),
            Self::NoSuchEntry(index) => write!(f, "entry {index} does not exist"),
            Self::OverLimit { what, limit } => {
                write!(f, "more than {limit} {what}, the limit of this node")
            }
        }
    }
}
