//! A machine's state as a tree, read from its `Debug` text: the machines' fields are their own.

use std::fmt::Debug;

/// A part of a state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outline {
    /// A number, a text, a variant without fields.
    Leaf(String),
    /// A struct, tuple, list, set or map.
    Group {
        /// The type, if it has a name.
        name: String,
        /// Its parts, and their names or keys.
        parts: Vec<(Option<Self>, Self)>,
    },
}

impl Outline {
    /// The parts of a machine.
    ///
    /// # Panics
    /// When its `Debug` text has another form than derived ones have.
    #[must_use]
    pub fn of(machine: &impl Debug) -> Self {
        Self::read(&format!("{machine:?}")).expect("a derived `Debug` text")
    }

    /// Reads a `Debug` text; `None` when it has another form.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = Reader { text: text.as_bytes(), at: 0 };
        let read = reader.value()?;
        (reader.at == text.len()).then_some(read)
    }

    /// A leaf's text, or a group's name.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Leaf(text) | Self::Group { name: text, .. } => text,
        }
    }

    /// The parts of a group.
    #[must_use]
    pub fn parts(&self) -> &[(Option<Self>, Self)] {
        match self {
            Self::Leaf(_) => &[],
            Self::Group { parts, .. } => parts,
        }
    }

    /// The parts of a group, to be changed.
    pub fn parts_mut(&mut self) -> Option<&mut Vec<(Option<Self>, Self)>> {
        match self {
            Self::Leaf(_) => None,
            Self::Group { parts, .. } => Some(parts),
        }
    }

    /// A field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.parts().iter().find(|(key, _)| is(key, name)).map(|(_, value)| value)
    }

    /// A field, to be changed.
    pub fn field_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.parts_mut()?.iter_mut().find(|(key, _)| is(key, name)).map(|(_, value)| value)
    }

    /// Blanks a field, where there is one.
    pub fn blank(&mut self, name: &str) {
        if let Some(field) = self.field_mut(name) {
            *field = Self::Leaf("_".into());
        }
    }

    /// Replaces each number of `name(number)` by its place among those that are the keys of the
    /// map `field`, and these keys as well: nothing but their order is kept.
    pub fn order(&mut self, name: &str, field: &str) {
        let number = |key: &Self| match key {
            Self::Group { name: is, parts } if is == name => {
                Some(parts.first()?.1.text().to_owned())
            }
            Self::Leaf(number) => Some(number.clone()),
            Self::Group { .. } => None,
        };
        let Some(map) = self.field_mut(field).and_then(Self::parts_mut) else { return };
        let mut all = Vec::new();
        for (place, (key, _)) in map.iter_mut().enumerate() {
            all.extend(key.as_ref().and_then(number));
            *key = Some(Self::Leaf(place.to_string()));
        }
        self.walk(&mut |part| {
            let place = all.iter().position(|it| Some(it) == number(part).as_ref());
            if let (Self::Group { name: is, parts }, Some(place)) = (part, place)
                && is == name
            {
                *parts = vec![(None, Self::Leaf(place.to_string()))];
            }
        });
    }

    /// Calls `each` for every part, outermost first.
    pub fn walk(&mut self, each: &mut impl FnMut(&mut Self)) {
        each(self);
        for (key, value) in self.parts_mut().into_iter().flatten() {
            key.iter_mut().for_each(|key| key.walk(each));
            value.walk(each);
        }
    }
}

fn is(key: &Option<Outline>, name: &str) -> bool {
    key.as_ref().is_some_and(|key| key.text() == name)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn skip(&mut self, wanted: u8) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self) -> Option<Outline> {
        let name = self.word()?;
        let close = match self.peek() {
            Some(b'{') => b'}',
            Some(b'(') => b')',
            Some(b'[') => b']',
            _ => return (!name.is_empty()).then_some(Outline::Leaf(name)),
        };
        self.at += 1;
        let mut parts = Vec::new();
        while !self.skip(close) {
            let first = self.value()?;
            parts.push(if self.skip(b':') { (Some(first), self.value()?) } else { (None, first) });
            if !self.skip(b',') && self.peek() != Some(close) {
                return None;
            }
        }
        Some(Outline::Group { name, parts })
    }

    /// A quoted text without its quotes, or what comes before the next mark.
    fn word(&mut self) -> Option<String> {
        let quoted = self.skip(b'"');
        let begin = self.at;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'\\' if quoted => self.at += 1,
                b'"' if quoted => break,
                b'{' | b'}' | b'(' | b')' | b'[' | b']' | b',' | b':' | b' ' if !quoted => break,
                _ => {}
            }
            self.at += 1;
        }
        let word = String::from_utf8_lossy(self.text.get(begin..self.at)?).into_owned();
        self.at += usize::from(quoted);
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Debug)]
    #[expect(dead_code, reason = "only its text is used")]
    enum Sample {
        Unit,
        Pair(u8, &'static str),
        Named { list: Vec<Sample>, map: BTreeMap<(u8, u8), Option<i8>> },
    }

    #[test]
    fn every_form_of_debug_text_is_read() {
        let map = BTreeMap::from([((1, 2), Some(-3)), ((4, 5), None)]);
        let list = vec![Sample::Unit, Sample::Pair(7, "a \"{b\": c")];
        let text = format!("{:?}", Sample::Named { list, map });
        let mut outline = Outline::read(&text).expect("a text that can be read");
        assert_eq!(outline.text(), "Named");
        let list = outline.field("list").expect("a field").parts();
        assert_eq!((list.len(), list[0].1.text()), (2, "Unit"));
        assert_eq!(list[1].1.parts()[1].1.text(), "a \\\"{b\\\": c");
        let map = outline.field("map").expect("a field").parts();
        assert_eq!(map[0].0.as_ref().map(|key| key.parts().len()), Some(2));
        assert_eq!(map[0].1.parts()[0].1.text(), "-3");
        let mut leaves = 0;
        outline.walk(&mut |part| leaves += usize::from(matches!(part, Outline::Leaf(_))));
        // Fields' names are leaves too.
        assert_eq!(leaves, 2 + 1 + 2 + 4 + 2);
        outline.blank("map");
        assert_eq!(outline.field("map"), Some(&Outline::Leaf("_".into())));
        assert_eq!(Outline::read("A { b: "), None);
    }
}
