//! How far a campaign is: a bar on a terminal, otherwise a line every ten seconds.

use super::origin::Origin;
use super::sweep::{Done, Sweep, Watch};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(10);
/// A run that takes longer than this is named.
const SLOW: Duration = Duration::from_secs(5);

/// Shows how far a campaign is, on standard error.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    said: Instant,
    moved: Instant,
}

impl Progress {
    /// For a campaign of `total` runs.
    #[must_use]
    pub fn new(total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} [{eta}]");
            let bar = ProgressBar::new(total);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let now = Instant::now();
        Self { bar, total, said: now, moved: now }
    }

    fn message(&self, sweep: &Sweep, next: Option<&Origin>) -> String {
        let (speed, times) = (sweep.speed(), sweep.acceleration());
        let failed = sweep.failures.len();
        let mut text = format!("{speed:.0} runs/s, {times:.0} virtual s/s, {failed} failed");
        if let Some(next) = next.filter(|_| self.moved.elapsed() > SLOW) {
            text += &format!(", waiting for {next} ({} s)", self.moved.elapsed().as_secs());
        }
        text
    }
}

impl Watch for Progress {
    fn done(&mut self, _: &Done, _: &Sweep) {
        self.moved = Instant::now();
    }

    fn tick(&mut self, sweep: &Sweep, next: Option<&Origin>) {
        if let Some(bar) = &self.bar {
            bar.set_position(sweep.runs);
            bar.set_message(self.message(sweep, next));
        } else if self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            eprintln!("{}/{}: {}", sweep.runs, self.total, self.message(sweep, next));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
