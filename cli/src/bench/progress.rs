//! How far a bench is; nothing is drawn unless standard error is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar of `steps`; say what runs with `set_message`.
pub(super) fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos}/{len} {msg} ({elapsed})")
        .expect("the template is one");
    let bar = ProgressBar::new(steps as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
