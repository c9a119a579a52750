//! `tests/RULES.md` and `tests/FAILURES.md` are made from the tests' names; this keeps them
//! true. After adding a test: `KVBATON_UPDATE=1 cargo test -p kvbaton-tests --test tables`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const RULES: &str = include_str!("tables/rules.txt");
const FAILURES: &str = include_str!("tables/failures.txt");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Test functions by the numbers in their names (`l05`, `f27`), as (name, file).
fn tests() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let mut found: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                // Oracles are tested on made-up histories: that pins what they say, not what
                // the code does.
                let judges = path.ends_with("transport-sim/src");
                if name != "target" && !name.starts_with('.') && !judges {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                let file = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                collect(&std::fs::read_to_string(&path).unwrap(), &file, &mut found);
            }
        }
    }
    found
}

/// Tests that are ignored pin nothing.
fn collect(source: &str, file: &str, found: &mut BTreeMap<String, BTreeSet<(String, String)>>) {
    let mut ignored = false;
    for line in source.lines() {
        let line = line.trim_start();
        ignored |= line.starts_with("#[ignore");
        let line = line.strip_prefix("async ").unwrap_or(line);
        let Some(rest) = line.strip_prefix("fn ") else { continue };
        if std::mem::take(&mut ignored) {
            continue;
        }
        let name: String =
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        for part in name.split('_') {
            if !is_number(part) {
                break;
            }
            found.entry(part.to_owned()).or_default().insert((name.clone(), file.to_owned()));
        }
    }
}

/// A letter and two digits.
fn is_number(part: &str) -> bool {
    let bytes = part.as_bytes();
    bytes.len() == 3 && bytes[0].is_ascii_lowercase() && bytes[1..].iter().all(u8::is_ascii_digit)
}

fn listed(tests: Option<&BTreeSet<(String, String)>>) -> Vec<String> {
    tests.into_iter().flatten().map(|(name, file)| format!("`{name}` ({file})")).collect()
}

/// Compares a table with the file, or writes it when asked to.
fn keep(file: &str, table: &str) {
    let path = root().join("tests").join(file);
    if std::env::var_os("KVBATON_UPDATE").is_some() {
        std::fs::write(&path, table).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stands == table,
        "tests/{file} is not what the tests' names say; \
         run `KVBATON_UPDATE=1 cargo test -p kvbaton-tests --test tables`"
    );
}

#[test]
fn every_rule_is_pinned_by_a_test_named_after_it() {
    let tests = tests();
    let mut table = String::from(
        "# Rules and the tests that pin them\n\n\
         Made from the tests' names (`tests/tests/tables.rs`). A test fails when its rule is broken.\n\n\
         | rule | what | tests |\n|---|---|---|\n",
    );
    let mut bare = Vec::new();
    for line in RULES.lines() {
        let (rule, what) = line.split_once(' ').expect("a rule and what it says");
        let tests = listed(tests.get(&rule.to_lowercase()));
        let later = what.strip_suffix(" [later]");
        if tests.is_empty() && later.is_none() {
            bare.push(rule);
        }
        let named = match (&tests[..], later) {
            ([], _) => "not built yet".to_owned(),
            (some, Some(_)) => format!("in part: {}", some.join("<br>")),
            (some, None) => some.join("<br>"),
        };
        writeln!(table, "| {rule} | {} | {named} |", later.unwrap_or(what)).unwrap();
    }
    assert!(bare.is_empty(), "rules without a test: {bare:?}");
    keep("RULES.md", &table);
}

#[test]
fn every_failure_is_closed_by_a_test_or_says_why_it_cannot_arise() {
    let tests = tests();
    let mut table = String::from(
        "# Failures seen in other systems, and what closes them here\n\n\
         Made from the tests' names (`tests/tests/tables.rs`) and `tests/tests/tables/failures.txt`.\n\n\
         | failure | what went wrong there | closed here by |\n|---|---|---|\n",
    );
    let mut open = Vec::new();
    for line in FAILURES.lines() {
        let mut parts = line.splitn(3, " | ");
        let (Some(number), Some(what)) = (parts.next(), parts.next()) else {
            panic!("a failure needs a number and a sentence: {line}");
        };
        let mut closed = listed(tests.get(&number.to_lowercase()));
        closed.extend(parts.next().map(str::to_owned));
        if closed.is_empty() {
            open.push(number);
        }
        writeln!(table, "| {number} | {what} | {} |", closed.join("<br>")).unwrap();
    }
    assert!(open.is_empty(), "failures that nothing closes: {open:?}");
    keep("FAILURES.md", &table);
}

#[test]
fn numbers_are_read_from_the_front_of_a_name() {
    let mut found = BTreeMap::new();
    collect("    async fn p09_f01_x_l04() {}\nfn add1() {}\nfn f2_x() {}", "a.rs", &mut found);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["f01", "p09"]);
    collect("#[test]\n#[ignore = \"S03\"]\nfn s03_x() {}\nfn s04_x() {}", "a.rs", &mut found);
    assert!(!found.contains_key("s03") && found.contains_key("s04"));
}
