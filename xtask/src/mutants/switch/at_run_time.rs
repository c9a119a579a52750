//! Which mutant is on. Stands in a tree of `cargo xtask mutants` only.
#![allow(missing_docs)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Not read yet; none is on.
const UNKNOWN: usize = usize::MAX;
const NONE: usize = usize::MAX - 1;
const MOST: usize = 1 << 16;

static ACTIVE: AtomicUsize = AtomicUsize::new(UNKNOWN);
static SEEN: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];
static SEEN_FILE: OnceLock<Option<File>> = OnceLock::new();

#[inline]
pub fn on(id: usize) -> bool {
    let active = ACTIVE.load(Relaxed);
    if active < NONE { active == id } else { first_time(id) }
}

#[cold]
fn first_time(id: usize) -> bool {
    if ACTIVE.load(Relaxed) == UNKNOWN {
        let active = std::env::var("KVBATON_MUTANT").ok().and_then(|it| it.parse().ok());
        ACTIVE.store(active.unwrap_or(NONE), Relaxed);
        return on(id);
    }
    if !SEEN[id].swap(true, Relaxed) {
        let file = SEEN_FILE.get_or_init(|| {
            let path = std::env::var_os("KVBATON_MUTANTS_SEEN")?;
            OpenOptions::new().create(true).append(true).open(path).ok()
        });
        if let Some(mut file) = file.as_ref() {
            let _ = file.write_all(format!("{id}\n").as_bytes());
        }
    }
    false
}
