//! One build of core with every mutant in it.

use super::list::Mutant;
use super::switch::switch;
use crate::{run, workspace};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Module that says which mutant is on.
const SWITCH: &str = include_str!("switch/at_run_time.rs");

/// What the build made.
pub struct Built {
    /// Test programs.
    pub programs: Vec<Program>,
    /// Mutants that do not build, by number.
    pub unviable: BTreeSet<usize>,
    /// Mutants that no switch can express.
    pub ordinary: BTreeSet<usize>,
}

/// A test program.
pub struct Program {
    /// The test target's name.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its package's folder, which it runs in.
    pub folder: PathBuf,
}

/// Builds core's tests and those of `fuzz` in `tree`, with `mutants` switched in.
///
/// # Errors
/// When they do not build even without the mutants that the compiler names.
pub fn build(tree: &Path, mutants: &[Mutant]) -> Result<Built> {
    let (mut off, mut ordinary) = (BTreeSet::new(), BTreeSet::new());
    loop {
        write(tree, mutants, &mut off, &mut ordinary)?;
        let errors = errors(&messages(tree, &["check", "--package", "kvbaton-core", "--lib"])?)?;
        if errors.is_empty() {
            break;
        }
        let known = off.len();
        for error in &errors {
            off.extend(error.mutant(tree)?);
        }
        if off.len() == known {
            bail!(
                "core does not build with its mutants, and none can be blamed:\n{}",
                errors[0].text
            );
        }
    }
    let mut arguments = vec!["test", "--no-run", "--tests", "--lib", "--package", "kvbaton-core"];
    if tree.join("fuzz/Cargo.toml").exists() {
        arguments.extend(["--package", "kvbaton-fuzz"]);
    }
    let built = messages(tree, &arguments)?;
    if let Some(error) = errors(&built)?.first() {
        bail!("core's tests do not build with its mutants:\n{}", error.text);
    }
    let programs: Vec<Program> = built.iter().filter_map(program).collect();
    ensure!(!programs.is_empty(), "no test program was built");
    Ok(Built { programs, unviable: off, ordinary })
}

/// Writes the files of core with their mutants, but for those that are `off`.
fn write(
    tree: &Path,
    mutants: &[Mutant],
    off: &mut BTreeSet<usize>,
    ordinary: &mut BTreeSet<usize>,
) -> Result<()> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (id, mutant) in mutants.iter().enumerate() {
        by_file.entry(&mutant.file).or_default().push((id, mutant));
    }
    for (file, mutants) in by_file {
        let source = fs::read_to_string(workspace::root().join(file)).context(file.to_owned())?;
        let switched = switch(&source, &mutants, off)?;
        off.extend(switched.unviable);
        ordinary.extend(switched.ordinary);
        write_if_new(&tree.join(file), &switched.text)?;
    }
    let library = fs::read_to_string(workspace::root().join("core/src/lib.rs"))?;
    write_if_new(&tree.join("core/src/lib.rs"), &(library + "#[doc(hidden)]\npub mod switch;\n"))?;
    write_if_new(&tree.join("core/src/switch.rs"), SWITCH)
}

/// Leaves a file's time alone where nothing changes.
fn write_if_new(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// What cargo says, message by message.
fn messages(tree: &Path, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command: Command = run::cargo();
    command.current_dir(tree).args(arguments).args(["--locked", "--profile", "mutants"]);
    command.args(["--message-format", "json", "--quiet"]);
    command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
    let output = run::capture(command)?.output;
    Ok(output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// An error of the compiler: its text, and where it lies, first the main place.
struct BuildError {
    text: String,
    places: Vec<(String, Range<usize>)>,
}

fn errors(messages: &[Value]) -> Result<Vec<BuildError>> {
    let mut errors = Vec::new();
    for message in messages.iter().filter(|it| it["reason"] == "compiler-message") {
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        let mut spans: Vec<&Value> = message["spans"].as_array().into_iter().flatten().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        let place = |span: &&Value| {
            let at = |field: &str| span[field].as_u64().map(|it| it as usize);
            Some((span["file_name"].as_str()?.to_owned(), at("byte_start")?..at("byte_end")?))
        };
        let places: Vec<_> = spans.iter().filter_map(place).collect();
        // The compiler's own summary has no place.
        if !places.is_empty() {
            let text = message["rendered"].as_str().unwrap_or_default().to_owned();
            errors.push(BuildError { text, places });
        }
    }
    Ok(errors)
}

impl BuildError {
    /// The mutant with the smallest part of the text around the first place that lies in any.
    fn mutant(&self, tree: &Path) -> Result<Option<usize>> {
        for (file, place) in self.places.iter().filter(|(file, _)| file.starts_with("core/")) {
            let text = fs::read_to_string(tree.join(file)).context(file.clone())?;
            if let Some(id) = around(&text, place) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

/// The mutant whose mark lies closest around `place`.
fn around(text: &str, place: &Range<usize>) -> Option<usize> {
    let before = text.get(..place.start)?;
    let mut open: Vec<usize> = Vec::new();
    for (at, _) in before.match_indices("/*") {
        let mark = &before[at + 2..];
        let number = |rest: &str| rest.split("*/").next().and_then(|it| it.parse().ok());
        if let Some(id) = mark.strip_prefix('<').and_then(number) {
            open.push(id);
        } else if let Some(id) = mark.strip_prefix('>').and_then(number)
            && let Some(at) = open.iter().rposition(|it: &usize| *it == id)
        {
            open.truncate(at);
        }
    }
    let ends = |id: &usize| {
        let end = text[place.start..].find(&format!("/*>{id}*/"));
        end.is_some_and(|end| place.end <= place.start + end)
    };
    open.into_iter().rev().find(ends)
}

fn program(message: &Value) -> Option<Program> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let path = message["executable"].as_str().filter(|_| is_test)?;
    Some(Program {
        name: message["target"]["name"].as_str()?.to_owned(),
        path: PathBuf::from(path),
        folder: manifest.parent()?.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_belongs_to_the_mutant_closest_around_it() {
        let text = "a /*<1*/b /*<2*/c/*>2*/ d/*>1*/ e";
        let of = |word: &str| {
            let at = text.find(word).expect("a word");
            around(text, &(at..at + 1))
        };
        assert_eq!(
            [of("a"), of("b"), of("c"), of("d"), of("e")],
            [None, Some(1), Some(2), Some(1), None]
        );
        let wide = text.find('c').expect("a word")..text.find('d').expect("a word");
        assert_eq!(around(text, &wide), Some(1));
    }
}
