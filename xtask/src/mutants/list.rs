//! The mutants that cargo-mutants would make.

use crate::run;
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::Command;

/// One small change of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// As cargo-mutants names it, file and place first.
    pub name: String,
    /// Its file, from the workspace's root.
    pub file: String,
    /// What kind of change it is.
    pub genre: Genre,
    /// What stands there instead.
    pub replacement: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What the function around it returns; `None` outside of functions.
    pub returns: Option<String>,
}

/// Kinds of mutants that can be switched on in a finished build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Genre {
    /// A function returns something else at once.
    Value,
    /// Another operator between two operands.
    Binary,
    /// An operator before an operand is left out.
    Unary,
    /// An arm of a match is left out.
    Arm,
    /// An arm's guard is always or never true.
    Guard,
    /// Any other.
    Other,
}

/// Reads what `list` prints.
///
/// # Errors
/// When it fails, or prints another form than the version that we want.
pub fn read(list: Command) -> Result<Vec<Mutant>> {
    let text = run::must(list)?;
    let list: Value = serde_json::from_str(&text).context("cargo-mutants lists no JSON")?;
    let list = list.as_array().context("cargo-mutants lists no array")?;
    list.iter().map(|it| mutant(it).with_context(|| format!("what mutant is this? {it}"))).collect()
}

fn mutant(value: &Value) -> Option<Mutant> {
    let text = |field: &str| value[field].as_str().map(str::to_owned);
    let place = |field: &str| value["span"]["start"][field].as_u64().map(|it| it as usize);
    Some(Mutant {
        name: text("name")?,
        file: text("file")?,
        genre: match value["genre"].as_str()? {
            "FnValue" => Genre::Value,
            "BinaryOperator" => Genre::Binary,
            "UnaryOperator" => Genre::Unary,
            "MatchArm" => Genre::Arm,
            "MatchArmGuard" => Genre::Guard,
            _ => Genre::Other,
        },
        replacement: text("replacement")?,
        line: place("line")?,
        column: place("column")?,
        returns: value["function"]["return_type"].as_str().map(str::to_owned),
    })
}
