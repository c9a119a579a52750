//! Builds all mutants of a file into it, each behind a switch.
//!
//! Building takes far longer than testing; so every mutant is built once, with all others,
//! and a test run turns one of them on. `a < b` becomes, for instance,
//!
//!     match (&(a), &(b)) { (l, r) => if on(7) { *l <= *r } else { *l < *r } }
//!
//! Comments `/*<7*/ … /*>7*/` mark what belongs to a mutant: an error of the compiler in
//! there means that the mutant does not build.

mod places;
mod text;

use super::list::{Genre, Mutant};
use anyhow::{Context, Result};
use places::Finder;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use syn::visit::Visit;
use text::Tree;

/// A file with its mutants.
pub struct Switched {
    /// The file's new text.
    pub text: String,
    /// Mutants that a switch cannot express: another return type, a constant.
    pub ordinary: Vec<usize>,
    /// Mutants that cannot build, whatever the types.
    pub unviable: Vec<usize>,
}

/// Switches `mutants` (number and mutant) of the file `source` into it, but for those in `off`.
///
/// # Errors
/// When it is no Rust.
pub fn switch(
    source: &str,
    mutants: &[(usize, &Mutant)],
    off: &BTreeSet<usize>,
) -> Result<Switched> {
    let file = syn::parse_file(source).context("a file of core does not parse")?;
    let lines: Vec<usize> =
        std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut by_place: BTreeMap<(usize, Genre), Vec<(usize, String)>> = BTreeMap::new();
    let mut ordinary: BTreeSet<usize> = BTreeSet::new();
    for (id, mutant) in mutants {
        ordinary.insert(*id);
        let returns_any = mutant.returns.as_deref().is_none_or(|it| it.contains("impl "));
        if mutant.returns.is_none() || (mutant.genre == Genre::Value && returns_any) {
            continue;
        }
        let rest = &source[lines[mutant.line - 1]..];
        let column = rest.char_indices().nth(mutant.column - 1).map_or(rest.len(), |it| it.0);
        let place = (lines[mutant.line - 1] + column, mutant.genre);
        by_place.entry(place).or_default().push((*id, mutant.replacement.clone()));
    }
    let mut finder = Finder { by_place, source, nodes: Vec::new(), unviable: BTreeSet::new() };
    finder.visit_file(&file);
    let Finder { nodes, unviable, .. } = finder;
    for id in nodes.iter().flat_map(|node| node.ids()).chain(unviable.iter().copied()) {
        ordinary.remove(&id);
    }
    let text = Tree { source, nodes: &nodes, off }.text(0..source.len(), None);
    let (ordinary, unviable) = (ordinary.into_iter().collect(), unviable.into_iter().collect());
    Ok(Switched { text, ordinary, unviable })
}

type Choices = Vec<(usize, String)>;

/// A place where text changes.
struct Node {
    at: Range<usize>,
    change: Change,
}

enum Change {
    /// A call of a switch is not constant.
    NoConst,
    Value(Choices),
    Binary {
        left: Range<usize>,
        right: Range<usize>,
        operator: String,
        choices: Choices,
    },
    Unary {
        operand: Range<usize>,
        operator: String,
        id: usize,
    },
    /// A guard, with a choice of no text for the whole arm.
    Guard(Choices),
    /// A new guard behind a pattern that had none.
    NewGuard(usize),
}

impl Node {
    fn ids(&self) -> Vec<usize> {
        match &self.change {
            Change::NoConst => Vec::new(),
            Change::Value(choices) | Change::Guard(choices) | Change::Binary { choices, .. } => {
                choices.iter().map(|(id, _)| *id).collect()
            }
            Change::Unary { id, .. } | Change::NewGuard(id) => vec![*id],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(genre: Genre, replacement: &str, line: usize, column: usize) -> Mutant {
        Mutant {
            name: String::new(),
            file: String::new(),
            genre,
            replacement: replacement.to_owned(),
            line,
            column,
            returns: Some("-> bool".to_owned()),
        }
    }

    #[test]
    fn each_mutant_stands_behind_its_switch_once() {
        let source = "const fn f(a: u8) -> bool {\n    a + 1 < 9 && !g(a)\n}\n";
        let mutants = [
            mutant(Genre::Value, "true", 2, 5),
            mutant(Genre::Binary, "-", 2, 7),
            mutant(Genre::Binary, "<=", 2, 11),
            mutant(Genre::Binary, "||", 2, 15),
            mutant(Genre::Unary, "", 2, 18),
        ];
        let numbered: Vec<(usize, &Mutant)> = mutants.iter().enumerate().collect();
        let all = switch(source, &numbered, &BTreeSet::new()).expect("Rust");
        assert!(all.ordinary.is_empty() && all.unviable.is_empty());
        syn::parse_file(&all.text).expect("still Rust");
        for id in 0..5 {
            assert!(all.text.contains(&format!("/*<{id}*/")), "{id}: {}", all.text);
        }
        assert!(!all.text.contains("const fn"));
        let off = switch(source, &numbered, &(0..5).collect()).expect("Rust");
        assert_eq!(off.text, source.replace("const fn", " fn"));
    }

    #[test]
    fn what_cannot_build_or_be_switched_is_told_apart() {
        let source = "fn f(a: Option<u8>) -> bool {\n    match a { Some(b) if b > 1 => true, _ if g() \
                      => false, _ => a.is_some() && let Some(1) = a }\n}\n";
        let column = source.lines().nth(1).expect("a line").find("&&").expect("an operator") + 1;
        let chain = mutant(Genre::Binary, "||", 2, column);
        let field = mutant(Genre::Other, "", 2, 5);
        let constant = Mutant { returns: None, ..mutant(Genre::Binary, "-", 2, 5) };
        let all = switch(source, &[(1, &chain), (2, &field), (3, &constant)], &BTreeSet::new());
        let all = all.expect("Rust");
        assert_eq!((all.unviable, all.ordinary), (vec![1], vec![2, 3]));
    }
}
