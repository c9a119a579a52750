//! Which of core's tests look at which of its files.
//!
//! A mutant is first tested by its area's tests alone, since building all of them takes
//! most of the time; only one that survives meets the rest.

/// Files of core, and the tests that pin them.
pub struct Area {
    /// Its name in what is printed.
    pub name: &'static str,
    /// Globs of its files; none means every file that no other area names.
    files: &'static [&'static str],
    /// Whether unit tests run.
    units: bool,
    /// Integration tests.
    tests: &'static [&'static str],
    /// Tests that take long, by a part of their names.
    skip: &'static [&'static str],
}

/// Every file of core is in one of these.
pub const AREAS: [Area; 6] = [
    UNITS,
    Area {
        name: "machines",
        files: &["core/src/sender/**", "core/src/receiver/**"],
        units: false,
        tests: &["machines", "machine_hashes"],
        skip: &["joint::", "explorer::"],
    },
    Area {
        name: "connector",
        files: &["core/src/connector/**"],
        units: true,
        tests: &["connector_rules"],
        skip: &[],
    },
    Area {
        name: "wire",
        files: &["core/src/wire/**"],
        units: false,
        tests: &["wire_round_trip", "wire_hostile", "wire_vectors"],
        skip: &[],
    },
    Area {
        name: "peer layouts",
        files: &["core/src/peer_layouts/**"],
        units: false,
        tests: &["peer_layouts_rules", "machine_hashes"],
        skip: &[],
    },
    Area {
        name: "planning",
        files: &[],
        units: false,
        tests: &["plan_rules", "plan_properties", "plan_vectors", "align_rules", "layout_vectors"],
        skip: &[],
    },
];

/// Files with unit tests of their own; no other area has them.
const UNITS: Area = Area {
    name: "units",
    files: &[
        "core/src/blocks.rs",
        "core/src/deadlines.rs",
        "core/src/fingerprint/**",
        "core/src/ids.rs",
        "core/src/lifecycle.rs",
        "core/src/receiver/quarantine.rs",
        "core/src/wire/names.rs",
    ],
    units: true,
    tests: &[],
    skip: &[],
};

impl Area {
    /// Options of cargo-mutants that select its mutants.
    pub fn selection(&self) -> Vec<String> {
        let pick = |option: &str, globs: &[&str]| -> Vec<String> {
            globs.iter().flat_map(|glob| [option.to_owned(), (*glob).to_owned()]).collect()
        };
        let mut selection = pick("--file", self.files);
        if self.files.is_empty() {
            selection = pick("--file", &["core/src/**"]);
            selection.extend(AREAS.iter().flat_map(|area| pick("--exclude", area.files)));
        } else if !self.units {
            selection.extend(pick("--exclude", UNITS.files));
        }
        selection
    }

    /// Options of cargo-mutants that run its tests alone.
    pub fn tests(&self) -> Vec<String> {
        let mut arguments: Vec<&str> = Vec::new();
        if self.units {
            arguments.push("--lib");
        }
        arguments.extend(self.tests.iter().flat_map(|test| ["--test", test]));
        if !self.skip.is_empty() {
            arguments.push("--");
            arguments.extend(self.skip.iter().flat_map(|part| ["--skip", part]));
        }
        arguments.iter().map(|argument| format!("--cargo-test-arg={argument}")).collect()
    }
}
