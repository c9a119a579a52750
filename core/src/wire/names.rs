//! Layer names as a template and a number: `model.layers.` 7 `.self_attn.attn`.

/// A layer name in parts. Joined again they give the name, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameParts<'a> {
    pub(super) prefix: &'a str,
    /// The layer's number; `None` when the name has none, and then it is all prefix.
    pub(super) number: Option<u64>,
    pub(super) suffix: &'a str,
}

/// Splits a name at its layer number: the first number that stands alone between dots,
/// else the first one at all. A number with leading zeros, or beyond 64 bits, would not
/// print as it was written; it counts as text.
pub(super) fn split(name: &str) -> NameParts<'_> {
    let alone = digit_runs(name).find(|&(start, end)| {
        let before = start == 0 || name.as_bytes()[start - 1] == b'.';
        let after = end == name.len() || name.as_bytes()[end] == b'.';
        before && after && number(&name[start..end]).is_some()
    });
    let first = || digit_runs(name).find(|&(start, end)| number(&name[start..end]).is_some());
    match alone.or_else(first) {
        Some((start, end)) => NameParts {
            prefix: &name[..start],
            number: number(&name[start..end]),
            suffix: &name[end..],
        },
        None => NameParts { prefix: name, number: None, suffix: "" },
    }
}

/// The digits' value, if it prints as the same digits.
fn number(digits: &str) -> Option<u64> {
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    digits.parse().ok()
}

/// Start and end of each longest run of ASCII digits.
fn digit_runs(name: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let bytes = name.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
        let len = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at = start + len;
        Some((start, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layer_number_is_the_one_between_dots() {
        let parts = |prefix, number, suffix| NameParts { prefix, number, suffix };
        let layer = split("gpt2.layers.17.attn3");
        assert_eq!(layer, parts("gpt2.layers.", Some(17), ".attn3"));
        assert_eq!(split("block3"), parts("block", Some(3), ""));
        assert_eq!(split("a.007.b"), parts("a.007.b", None, ""));
        assert_eq!(split(""), parts("", None, ""));
    }

    proptest! {
        #[test]
        fn parts_join_to_the_name(name in "([a-z.é]{0,3}[0-9]{0,21}){0,4}") {
            let parts = split(&name);
            let number = parts.number.map(|number| number.to_string()).unwrap_or_default();
            prop_assert_eq!(format!("{}{number}{}", parts.prefix, parts.suffix), name);
        }
    }
}
