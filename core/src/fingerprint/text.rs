//! The fingerprint as one line of text, for the bootstrap server's JSON.
//!
//! `model=…;dtype=…;block_size=16,16;total_kv_heads=8;groups=attention,state`. In values,
//! `%`, `;`, `=` and control characters are written `%` and two hex digits a byte.

use super::{Fingerprint, kind_name};
use crate::region::GroupKind;
use thiserror::Error;

/// A text that is no fingerprint. It comes from another node's registration: look at that
/// node's version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FingerprintTextError {
    /// A part between semicolons has no `=`.
    #[error("fingerprint: `{0}` is not of the form key=value")]
    NotAPair(String),
    /// A field appears twice.
    #[error("fingerprint: `{0}` appears twice")]
    Twice(&'static str),
    /// A field is not there.
    #[error("fingerprint: `{0}` is missing")]
    Missing(&'static str),
    /// A field's value cannot be read.
    #[error("fingerprint: `{value}` is no value for `{field}`")]
    BadValue {
        /// The field.
        field: &'static str,
        /// Its value, as written.
        value: String,
    },
}

type Result<T> = std::result::Result<T, FingerprintTextError>;

impl Fingerprint {
    /// The fingerprint as one line of printable text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let pairs = self.fields().map(|(field, value)| format!("{field}={}", escape(&value)));
        pairs.join(";")
    }

    /// Reads what [`Self::to_text`] wrote. Fields that this revision does not know are
    /// skipped.
    ///
    /// # Errors
    /// When a field is missing, twice there, or has a value that it cannot have.
    pub fn from_text(text: &str) -> Result<Self> {
        let (mut model, mut dtype, mut block_size) = (None, None, None);
        let (mut total_kv_heads, mut groups) = (None, None);
        for pair in text.split(';') {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| FingerprintTextError::NotAPair(pair.to_owned()))?;
            match key {
                "model" => once("model", &mut model, value, |v| Some(v.to_owned()))?,
                "dtype" => once("dtype", &mut dtype, value, |v| Some(v.to_owned()))?,
                "block_size" => {
                    once("block_size", &mut block_size, value, |v| list(v, |v| v.parse().ok()))?;
                }
                "total_kv_heads" => {
                    once("total_kv_heads", &mut total_kv_heads, value, |v| v.parse().ok())?;
                }
                "groups" => once("groups", &mut groups, value, |v| list(v, kind_of_name))?,
                _ => {}
            }
        }
        Ok(Self {
            model: model.ok_or(FingerprintTextError::Missing("model"))?,
            dtype: dtype.ok_or(FingerprintTextError::Missing("dtype"))?,
            block_size: block_size.ok_or(FingerprintTextError::Missing("block_size"))?,
            total_kv_heads: total_kv_heads
                .ok_or(FingerprintTextError::Missing("total_kv_heads"))?,
            groups: groups.ok_or(FingerprintTextError::Missing("groups"))?,
        })
    }
}

fn once<T>(
    field: &'static str,
    slot: &mut Option<T>,
    value: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<()> {
    if slot.is_some() {
        return Err(FingerprintTextError::Twice(field));
    }
    *slot = unescape(value).and_then(|value| read(&value));
    match slot {
        Some(_) => Ok(()),
        None => Err(FingerprintTextError::BadValue { field, value: value.to_owned() }),
    }
}

fn list<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(read).collect()
}

fn kind_of_name(name: &str) -> Option<GroupKind> {
    [GroupKind::Attention, GroupKind::State].into_iter().find(|kind| kind_name(*kind) == name)
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for char in value.chars() {
        if matches!(char, '%' | ';' | '=') || char.is_control() {
            let mut utf8 = [0; 4];
            for byte in char.encode_utf8(&mut utf8).bytes() {
                escaped.push_str(&format!("%{byte:02x}"));
            }
        } else {
            escaped.push(char);
        }
    }
    escaped
}

fn unescape(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fingerprints() -> impl Strategy<Value = Fingerprint> {
        let kind = prop::sample::select(vec![GroupKind::Attention, GroupKind::State]);
        (
            "[a-c%;=,\n日 ]{0,12}",
            any::<String>(),
            prop::collection::vec(any::<u32>(), 0..4),
            any::<u32>(),
            prop::collection::vec(kind, 0..4),
        )
            .prop_map(|(model, dtype, block_size, total_kv_heads, groups)| Fingerprint {
                model,
                dtype,
                block_size,
                total_kv_heads,
                groups,
            })
    }

    proptest! {
        #[test]
        fn text_reads_back_as_written_on_one_line(fingerprint in fingerprints()) {
            let text = fingerprint.to_text();
            prop_assert!(!text.contains(char::is_control), "{text:?}");
            prop_assert_eq!(Fingerprint::from_text(&text), Ok(fingerprint.clone()));
            let newer = format!("hue=blue;{text};size=7");
            prop_assert_eq!(Fingerprint::from_text(&newer), Ok(fingerprint));
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in any::<String>(), cut in 0usize..80) {
            let _ = Fingerprint::from_text(&text);
            let valid = Fingerprint::default().to_text();
            let cut = cut.min(valid.len());
            prop_assert_eq!(Fingerprint::from_text(&valid[..cut]).is_ok(), cut == valid.len()
                || valid[..cut] == *"model=;dtype=;block_size=;total_kv_heads=0;groups=");
        }

        #[test]
        fn every_field_that_differs_is_named_with_both_values(
            ours in fingerprints(), theirs in fingerprints()
        ) {
            let differences = ours.differences(&theirs);
            let named: Vec<_> = differences.iter().map(|d| d.field).collect();
            let expected: Vec<_> = [
                ("model", ours.model != theirs.model),
                ("dtype", ours.dtype != theirs.dtype),
                ("block_size", ours.block_size != theirs.block_size),
                ("total_kv_heads", ours.total_kv_heads != theirs.total_kv_heads),
                ("groups", ours.groups != theirs.groups),
            ]
            .into_iter()
            .filter_map(|(field, differs)| differs.then_some(field))
            .collect();
            prop_assert_eq!(named, expected);
            for difference in differences {
                let text = difference.to_string();
                prop_assert!(text.contains(&difference.ours) && text.contains(&difference.theirs));
            }
        }
    }

    #[test]
    fn errors_name_the_field() {
        let with = |text: &str| Fingerprint::from_text(text).unwrap_err().to_string();
        assert_eq!(with("model=a"), "fingerprint: `dtype` is missing");
        assert_eq!(with("model=a;model=b"), "fingerprint: `model` appears twice");
        assert_eq!(with("model"), "fingerprint: `model` is not of the form key=value");
        assert_eq!(with("groups=ring"), "fingerprint: `ring` is no value for `groups`");
        assert_eq!(with("dtype=%f"), "fingerprint: `%f` is no value for `dtype`");
    }
}
