//! Copies of the workspace that mutants are built in.
//!
//! They stay, with their build folders, so that a run builds what core depends on once.

use crate::{run, workspace};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Copies what differs from the workspace into tree `number`, and removes what is gone.
///
/// # Errors
/// When files cannot be listed or copied.
pub fn sync(number: usize) -> Result<PathBuf> {
    let tree = workspace::root().join(format!("target/mutants/tree{number}"));
    let mut list = run::command("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = run::must(list)?;
    let files: BTreeSet<&str> = listed.lines().collect();
    for file in &files {
        copy(&workspace::root().join(file), &tree.join(file))?;
    }
    remove_others(&tree, &tree, &files)?;
    Ok(tree)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // Listed, but deleted in the working tree.
    let Ok(wanted) = fs::read(from) else {
        let _ = fs::remove_file(to);
        return Ok(());
    };
    if fs::read(to).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let folder = to.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    fs::write(to, wanted).with_context(|| format!("{}", to.display()))
}

fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<&str>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        let name = path.strip_prefix(tree).expect("below the tree").to_string_lossy().into_owned();
        if name == "target" {
            continue;
        }
        if path.is_dir() {
            remove_others(tree, &path, files)?;
        } else if !files.contains(name.as_str()) {
            fs::remove_file(&path).with_context(|| format!("{}", path.display()))?;
        }
    }
    Ok(())
}
