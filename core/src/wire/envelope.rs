//! Which form a message to P has, and the envelope of the compact one.

use super::reader::{Reader, Result};
use super::writer::Writer;
use super::{DropTransfers, Limits, Malformed, Problem, Pull, ToPrefill, pull};

/// The field that carries what is ours: the first and only one of a compact message, and
/// one more in an answer.
pub(super) const FIELD: &str = "kvb";

/// Kind of a compact message: its first array element.
pub(super) const PULL: u64 = 1;
/// As [`PULL`].
pub(super) const DROP: u64 = 2;

/// The form of a message to P.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// As vLLM's own connectors write it.
    Stock,
    /// As our nodes write it to each other.
    Compact,
}

impl Form {
    /// The form of these bytes; says nothing about whether they are well-formed.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let limits = Limits { frame_bytes: usize::MAX, ..Limits::default() };
        let form = Reader::new(bytes, &limits).and_then(|mut reader| {
            let pairs = reader.map()?;
            Self::of_map(&reader, pairs)
        });
        form.unwrap_or(Self::Stock)
    }

    /// The form of a map whose pairs are next.
    fn of_map(reader: &Reader<'_>, pairs: usize) -> Result<Self> {
        let mut ahead = reader.clone();
        let compact = pairs > 0 && ahead.key()? == Some(FIELD.as_bytes());
        Ok(if compact { Self::Compact } else { Self::Stock })
    }
}

impl ToPrefill {
    /// Reads a message of either form.
    ///
    /// The message is compact when `kvb` is its first field. Later in a stock pull it is
    /// a field like any unknown one.
    ///
    /// # Errors
    /// [`Malformed`] when it breaks the wire form or passes a limit.
    pub fn decode(bytes: &[u8], limits: &Limits) -> std::result::Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, limits)?;
        let pairs = reader.map()?;
        let message = match Form::of_map(&reader, pairs)? {
            Form::Stock => Self::Pull(pull::decode(&mut reader, pairs)?),
            Form::Compact => {
                reader.key()?;
                let message = read_compact(&mut reader)?;
                reader.field = "message";
                // Two values each for the fields that a newer revision may add.
                reader.skip_values(2 * (pairs - 1))?;
                message
            }
        };
        reader.finish()?;
        Ok(message)
    }
}

/// Starts a compact message of that kind with `elements` elements after the kind.
pub(super) fn begin<'a>(out: &'a mut Vec<u8>, kind: u64, elements: usize) -> Writer<'a> {
    let mut writer = Writer::new(out);
    writer.map(1);
    writer.str(FIELD);
    writer.array(1 + elements);
    writer.uint(kind);
    writer
}

fn read_compact(reader: &mut Reader<'_>) -> Result<ToPrefill> {
    reader.field = FIELD;
    let elements = reader.array_of_at_least(1)?;
    match reader.u64()? {
        PULL => Pull::read_compact(reader, elements).map(ToPrefill::Pull),
        DROP => DropTransfers::read(reader, elements).map(ToPrefill::Drop),
        other => Err(reader.error(Problem::Unknown(other))),
    }
}

/// Of `elements` elements of an array, the first `known` have a meaning; gives how many
/// follow them.
pub(super) fn beyond(reader: &Reader<'_>, elements: usize, known: usize) -> Result<usize> {
    elements
        .checked_sub(known)
        .ok_or_else(|| reader.error(Problem::TooShort { expected: known, found: elements }))
}
