//! Orders of engines' lifecycles, counted, and what plans do to them.

use futures_channel::oneshot;
use std::collections::BTreeMap;

/// What becomes of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// It cannot be carried out.
    Fails,
    /// It takes a while, in which something happens.
    Lasts,
}

/// What becomes of an order, and who is told that it is given.
type Trap = (Strike, oneshot::Sender<()>);

/// Counts orders by engine.
#[derive(Debug, Default)]
pub struct Orders {
    given: BTreeMap<u16, u32>,
    traps: BTreeMap<(u16, u32), Vec<Trap>>,
}

impl Orders {
    /// Lays a trap for an order; told once it is given.
    pub fn trap(&mut self, engine: u16, order: u32, strike: Strike) -> oneshot::Receiver<()> {
        let (told, given) = oneshot::channel();
        self.traps.entry((engine, order)).or_default().push((strike, told));
        given
    }

    /// Whether an engine has been given none so far.
    #[must_use]
    pub fn none_given(&self, engine: u16) -> bool {
        !self.given.contains_key(&engine)
    }

    /// The number of an order that is given now, and what becomes of it.
    pub fn given(&mut self, engine: u16) -> (u32, Option<Strike>) {
        let count = self.given.entry(engine).or_default();
        let number = *count;
        *count += 1;
        let traps = self.traps.remove(&(engine, number)).unwrap_or_default();
        // Where nobody waits any more it is an order like any other.
        let sprung = traps.into_iter().filter_map(|(it, told)| told.send(()).ok().map(|()| it));
        let strike = sprung.min_by_key(|it| *it != Strike::Fails);
        (number, strike)
    }
}
