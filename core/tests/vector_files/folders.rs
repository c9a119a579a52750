//! Where vectors are: the repository's folder, and the one that `KVBATON_VECTORS` names.

use std::path::PathBuf;

const FILES: [&str; 3] = ["wire.json", "plans.json", "layouts.json"];

/// The repository's file, and that of the other folder. The latter needs to hold only
/// some of the files, but one at least.
pub fn contents(file: &str) -> Vec<String> {
    assert!(FILES.contains(&file), "{file} is no vector file");
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut paths = vec![own.join(file)];
    if let Some(folder) = std::env::var_os("KVBATON_VECTORS").map(PathBuf::from) {
        let there = |file: &&str| folder.join(file).is_file();
        assert!(
            FILES.iter().any(there),
            "KVBATON_VECTORS names {}, which holds none of {FILES:?}",
            folder.display()
        );
        paths.extend(there(&file).then(|| folder.join(file)));
    }
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    paths.into_iter().map(read).collect()
}
