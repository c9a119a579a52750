//! A load is pulled at most three times from one address: once more with the layout, once
//! more in stock form.

use super::Oracle;
use super::lives::Lives;
use super::open::Open;
use crate::history::{Event, What};
use std::collections::BTreeMap;
use std::sync::Arc;

const MOST: u32 = 3;

/// Counts pulls of each load.
#[derive(Debug, Default)]
pub struct FewPulls {
    loads: Lives<Open<BTreeMap<Arc<str>, u32>>>,
}

impl Oracle for FewPulls {
    fn name(&self) -> &'static str {
        "few-pulls"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L05", "P08"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let Some((node, loads)) = self.loads.of(event) else { return Ok(()) };
        match &event.what {
            What::LoadAsked { request, transfer, .. } => {
                loads.ask(request, transfer, BTreeMap::new());
            }
            What::LoadRefused { request, transfer, .. } => {
                loads.refuse(request, transfer);
            }
            What::LoadEnded { request, transfer, .. } => {
                loads.end(request, transfer);
            }
            What::PullSent { to, pull, .. } => {
                // Without blocks it tells P to release [P10].
                for (request, transfer, blocks, _) in &pull.requests {
                    let Some(pulls) = loads.get_mut(request, transfer).filter(|_| *blocks > 0)
                    else {
                        continue;
                    };
                    let count = pulls.entry(to.clone()).or_default();
                    *count += 1;
                    if *count > MOST {
                        return Err(format!("{node}: {request} is pulled {count} times from {to}"));
                    }
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
        Story, caught, legal, load, load_refused, loaded, pull, pull_sent,
    };

    fn pulled(mut story: Story, times: u64) -> Story {
        for connection in 0..times {
            story = story.d(pull_sent(connection, pull(3, true, &[("a", 7)])));
        }
        story
    }

    #[test]
    fn l05_a_miss_is_not_answered_for_ever() {
        let asked = || Story::new().d(load("a", &[]));
        legal(FewPulls::default(), pulled(asked(), 3));
        caught(FewPulls::default(), pulled(asked(), 4), "a is pulled 4 times from tcp://p:1");
        legal(FewPulls::default(), pulled(pulled(asked(), 3).d(loaded("a")).d(load("a", &[])), 3));
    }

    #[test]
    fn a_load_that_was_refused_is_not_counted() {
        let story = Story::new().d(load("a", &[])).d(load_refused("a"));
        legal(FewPulls::default(), pulled(story, 4));
    }
}
