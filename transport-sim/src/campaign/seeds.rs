//! Ranges of seeds as the command line names them.

use std::fmt;
use std::str::FromStr;

/// Seeds from `first` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seeds {
    first: u64,
    end: u64,
}

impl Seeds {
    /// Seeds from `first` to before `end`.
    #[must_use]
    pub fn new(first: u64, end: u64) -> Self {
        Self { first, end: end.max(first) }
    }

    /// How many.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.first
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The seed at an index.
    #[must_use]
    pub fn get(self, index: u64) -> Option<u64> {
        self.first.checked_add(index).filter(|it| *it < self.end)
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.end)
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let digits = text.trim().replace('_', "");
            digits.parse::<u64>().map_err(|_| format!("`{text}` is no number"))
        };
        let (first, end) = if let Some((first, last)) = text.split_once("..=") {
            let last = number(last)?;
            (number(first)?, last.checked_add(1).ok_or("too large")?)
        } else if let Some((first, end)) = text.split_once("..") {
            (number(first)?, number(end)?)
        } else {
            let seed = number(text)?;
            (seed, seed.checked_add(1).ok_or("too large")?)
        };
        if first >= end {
            return Err(format!("`{text}` holds no seed; write `1..1000`, `1..=999` or `17`"));
        }
        Ok(Self { first, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_excludes_its_end_and_a_number_is_itself() {
        let parse = |text: &str| text.parse::<Seeds>();
        assert_eq!(parse("1..1_000"), Ok(Seeds::new(1, 1000)));
        assert_eq!(parse("1..=3"), Ok(Seeds::new(1, 4)));
        assert_eq!(parse("17"), Ok(Seeds::new(17, 18)));
        assert!(parse("5..5").is_err());
        assert!(parse("x").is_err());
        assert!(parse(&u64::MAX.to_string()).is_err());
        assert_eq!((Seeds::new(4, 6).get(1), Seeds::new(4, 6).get(2)), (Some(5), None));
    }
}
