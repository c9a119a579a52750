//! Everything that happens later by itself: messages in flight, pieces of writes, steps.

use kvbaton_actors::runtime;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;

type Deed = Box<dyn FnOnce() + Send>;

/// By time and place.
type Deeds = BTreeMap<(u64, u64), Deed>;

/// Deeds by time; of equal times, the one that was posted first.
#[derive(Default)]
pub struct Clockwork {
    deeds: Mutex<(Deeds, u64)>,
    sooner: Notify,
}

impl Clockwork {
    /// Posts a deed for a time in virtual nanoseconds.
    pub fn post(&self, at: u64, deed: impl FnOnce() + Send + 'static) {
        let mut deeds = self.deeds.lock().expect("no panic under the lock");
        let first = deeds.0.first_key_value().is_none_or(|((first, _), _)| at < *first);
        let place = deeds.1;
        deeds.1 += 1;
        deeds.0.insert((at, place), Box::new(deed));
        drop(deeds);
        if first {
            self.sooner.notify_one();
        }
    }

    fn due(&self, now: u64) -> Result<Deed, Option<u64>> {
        let mut deeds = self.deeds.lock().expect("no panic under the lock");
        match deeds.0.first_entry() {
            None => Err(None),
            Some(first) if first.key().0 <= now => Ok(first.remove()),
            Some(first) => Err(Some(first.key().0)),
        }
    }

    /// Does the deeds, for ever. Runs on a node that nothing stops.
    pub async fn run(&self, now: impl Fn() -> u64) {
        loop {
            match self.due(now()) {
                Ok(deed) => deed(),
                Err(None) => self.sooner.notified().await,
                Err(Some(at)) => {
                    let wait = Duration::from_nanos(at.saturating_sub(now()));
                    // Whichever comes first: the time, or a deed before it.
                    let _ = runtime::timeout(wait, self.sooner.notified()).await;
                }
            }
        }
    }
}
