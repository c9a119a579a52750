//! Which of core's tests look at which of its files.
//!
//! A mutant is first tested by its area's tests alone, since building all of them takes
//! most of the time; only one that survives meets the rest.

/// Files of core, and the tests that pin them.
pub struct Area {
    /// Its name in what is printed.
    pub name: &'static str,
    /// Globs of its files; none means every file that no other area names.
    pub files: &'static [&'static str],
    /// Integration tests; unit tests run always.
    pub tests: &'static [&'static str],
}

/// Every file of core is in one of these.
pub const AREAS: [Area; 4] = [
    Area {
        name: "machines",
        files: &["core/src/sender/**", "core/src/receiver/**", "core/src/lifecycle.rs"],
        tests: &["machines", "machine_hashes"],
    },
    Area {
        name: "wire",
        files: &["core/src/wire/**"],
        tests: &["wire_round_trip", "wire_hostile", "wire_vectors"],
    },
    Area {
        name: "peer layouts",
        files: &["core/src/peer_layouts/**"],
        tests: &["peer_layouts_rules", "machine_hashes"],
    },
    Area {
        name: "planning",
        files: &[],
        tests: &["plan_rules", "plan_properties", "align_rules", "layout_vectors"],
    },
];

impl Area {
    /// Options of cargo-mutants that select its mutants.
    pub fn selection(&self) -> Vec<String> {
        let pick = |option: &str, globs: &[&str]| -> Vec<String> {
            globs.iter().flat_map(|glob| [option.to_owned(), (*glob).to_owned()]).collect()
        };
        if self.files.is_empty() {
            let mut all = vec!["--file".to_owned(), "core/src/**".to_owned()];
            all.extend(AREAS.iter().flat_map(|area| pick("--exclude", area.files)));
            return all;
        }
        pick("--file", self.files)
    }

    /// Options of cargo-mutants that run its tests alone.
    pub fn tests(&self) -> Vec<String> {
        let tests = self.tests.iter().flat_map(|test| ["--test", test]);
        std::iter::once("--lib").chain(tests).map(|it| format!("--cargo-test-arg={it}")).collect()
    }
}
