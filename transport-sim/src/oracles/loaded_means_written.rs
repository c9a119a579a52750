//! A load that ends well has got every byte, in pages that are mapped.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use super::ranges::{RangeSet, words};
use crate::history::{Event, LoadFact, What};

#[derive(Debug, Default)]
struct Load {
    missing: RangeSet,
    /// Some of it went into pages that nobody sees.
    unseen: bool,
}

/// Adds up landings.
#[derive(Debug, Default)]
pub struct LoadedMeansWritten {
    loads: Lives<Open<Load>>,
}

impl Oracle for LoadedMeansWritten {
    fn name(&self) -> &'static str {
        "loaded-means-written"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P08", "S04", "A07"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, loads)) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, rows, .. } => {
                let load = Load { missing: RangeSet::of(rows), unseen: false };
                loads.ask(request, transfer, load);
            }
            What::LoadRefused { request, transfer, .. } => {
                loads.refuse(request, transfer);
            }
            What::PullSent { pull, .. } => loads.pull(pull),
            What::Landed { grant: Some(grant), ranges, seen, .. } => {
                let Some(load) = loads.of_grant(*grant) else { return Ok(()) };
                if *seen {
                    ranges.iter().for_each(|it| load.missing.remove(*it));
                } else {
                    load.unseen = true;
                }
            }
            What::Landed { grant: None, ranges, seen: true, .. } => {
                for (_, load) in loads.iter_mut() {
                    ranges.iter().for_each(|it| load.missing.remove(*it));
                }
            }
            What::LoadEnded { request, transfer, end } => {
                loads.grants(request, transfer);
                let Some(load) = loads.end(request, transfer) else { return Ok(()) };
                if *end != LoadFact::Loaded {
                    return Ok(());
                }
                if load.unseen {
                    return Err(format!(
                        "{node}: {request} counts as loaded, but a write went into pages that \
                         are gone"
                    ));
                }
                if let Some(range) = load.missing.first() {
                    return Err(format!(
                        "{node}: {request} counts as loaded, but nothing landed at {}",
                        words(range)
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        Story, caught, landed, legal, load, load_failed, load_refused, loaded, pull, pull_sent,
    };

    fn asked() -> Story {
        let story = Story::new().d(load("a", &[(0, 64), (128, 64)]));
        story.d(pull_sent(1, pull(3, true, &[("a", 7)])))
    }

    fn unseen(grant: Option<u64>) -> What {
        match landed(1, grant, &[(128, 64)]) {
            What::Landed { write, grant, generation, ranges, .. } => {
                What::Landed { write, grant, generation, ranges, seen: false }
            }
            other => other,
        }
    }

    #[test]
    fn p08_every_byte_in_any_pieces() {
        let story = asked().d(landed(1, Some(7), &[(0, 32)])).d(landed(2, None, &[(32, 32)]));
        let story = story.d(landed(1, Some(7), &[(120, 80)])).d(loaded("a"));
        legal(LoadedMeansWritten::default(), story);
        legal(LoadedMeansWritten::default(), Story::new().d(load("a", &[])).d(loaded("a")));
        let failed = asked().d(load_failed("a", "TimedOut", "request a: no answer"));
        legal(LoadedMeansWritten::default(), failed);
    }

    #[test]
    fn p08_a_missing_byte_is_not_loaded() {
        let story = asked().d(landed(1, Some(7), &[(0, 64), (128, 63)])).d(loaded("a"));
        caught(LoadedMeansWritten::default(), story, "nothing landed at bf+1");
        caught(LoadedMeansWritten::default(), asked().d(loaded("a")), "nothing landed at 0+64");
    }

    #[test]
    fn p08_what_landed_before_or_for_another_load_does_not_count() {
        let story = Story::new().d(landed(1, None, &[(0, 192)])).d(load("a", &[(0, 64)]));
        caught(LoadedMeansWritten::default(), story.d(loaded("a")), "nothing landed");
        let story = asked().d(landed(1, Some(8), &[(0, 192)])).d(loaded("a"));
        caught(LoadedMeansWritten::default(), story, "nothing landed");
    }

    #[test]
    fn s04_bytes_in_old_pages_are_no_bytes() {
        let story = asked().d(landed(1, Some(7), &[(0, 64)]));
        caught(
            LoadedMeansWritten::default(),
            story.clone().d(unseen(None)).d(loaded("a")),
            "80+64",
        );
        let both = story.d(landed(1, Some(7), &[(128, 64)])).d(unseen(Some(7)));
        caught(LoadedMeansWritten::default(), both.d(loaded("a")), "pages that are gone");
    }

    #[test]
    fn a_load_that_was_refused_misses_nothing() {
        let story = Story::new().d(load("a", &[(0, 64)])).d(load_refused("a"));
        legal(LoadedMeansWritten::default(), story.d(load("a", &[])).d(loaded("a")));
    }
}
