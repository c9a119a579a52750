//! Every order of events of a small world: one P, one D, two loads, one of them dropped,
//! one restart, one expiry.

use crate::names::{request, transfer};
use crate::world::{Packet, World};
use kvbaton_core::receiver::{LoadKind, ReceiverConfig};
use kvbaton_core::sender::SenderConfig;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What the engines and fate may do, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Once {
    Hold(&'static str),
    Load(&'static str),
    Drop(&'static str),
    Release(&'static str),
    Abort(&'static str),
    RestartP,
    RestartD,
    /// Long enough for every hold and load to run out.
    Expire,
    LoseFirst,
    FailWrite,
}

/// A state of the search: the world, and what may still happen to it.
#[derive(Debug, Clone)]
struct Node {
    world: World,
    left: Vec<Once>,
}

impl Node {
    fn happen(&mut self, once: Once) -> bool {
        let world = &mut self.world;
        match once {
            Once::Hold(name) => world.hold(0, request(&format!("p {name}")), &transfer(name)),
            Once::Load(name) => {
                world.load(0, request(&format!("d {name}")), &transfer(name), LoadKind::Load);
                world.flush(0);
            }
            Once::Drop(name) => world.drop_load(0, &request(&format!("d {name}"))),
            Once::Release(name) => world.release(0, &transfer(name)),
            Once::Abort(name) => world.abort(0, &transfer(name)),
            Once::RestartP => world.restart_p(),
            Once::RestartD => world.restart_d(0),
            Once::Expire => world.advance(Duration::from_secs(1_000)),
            Once::LoseFirst => {
                let lost = world.net.iter().position(|it| !matches!(it, Packet::Revoked { .. }));
                let Some(at) = lost else { return false };
                world.lose(at, true);
            }
            Once::FailWrite if world.writes.is_empty() => return false,
            Once::FailWrite => world.fail_write(0, false),
        }
        true
    }

    /// Every state that one event leads to.
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for at in 0..self.left.len() {
            let mut node = self.clone();
            let once = node.left.remove(at);
            if node.happen(once) {
                next.push(node);
            }
        }
        for at in 0..self.world.net.len() {
            let mut node = self.clone();
            node.world.deliver(at);
            next.push(node);
        }
        for at in 0..self.world.writes.len() {
            let mut node = self.clone();
            node.world.step_write(at);
            next.push(node);
        }
        next
    }
}

/// Visits every state that `events` can lead to; each is checked at every step, and each
/// must come to rest with nothing left. Returns how many states and loads there were.
fn explore(events: &[Once]) -> (usize, u32) {
    let sender = SenderConfig { senders: 1, ..SenderConfig::default() };
    let world = World::new(1, 1, sender, ReceiverConfig::default());
    let mut open = vec![Node { world, left: events.to_vec() }];
    let mut seen = BTreeSet::new();
    let mut loaded = 0;
    while let Some(node) = open.pop() {
        for next in node.next() {
            let mut print = DefaultHasher::new();
            format!("{next:?}").hash(&mut print);
            if seen.insert(print.finish()) {
                let mut world = next.world.clone();
                world.heal();
                loaded += world.loaded;
                open.push(next);
            }
        }
    }
    (seen.len(), loaded)
}

use Once::{Abort, Drop, Expire, FailWrite, Hold, Load, LoseFirst, Release, RestartD, RestartP};

fn explores(events: &[Once], states: usize) {
    let (seen, loaded) = explore(events);
    assert!(seen >= states, "{events:?}: {seen} states only");
    assert!(loaded > 0, "{events:?}: nothing was ever loaded");
}

#[test]
fn p09_p12_every_order_of_two_loads_a_drop_and_a_restart_of_p() {
    explores(&[Hold("a"), Load("a"), Drop("a"), Load("b"), RestartP], 3_000);
}

#[test]
fn p12_every_order_of_a_load_and_a_restart_of_d() {
    explores(&[Hold("a"), Load("a"), RestartD, Load("a")], 200);
}

#[test]
fn p06_every_order_of_a_load_its_drop_a_restart_and_an_expiry() {
    explores(&[Hold("a"), Load("a"), Drop("a"), RestartP, Expire], 1_000);
}

#[test]
fn p07_every_order_of_a_load_a_loss_a_failed_write_and_a_release() {
    explores(&[Hold("a"), Load("a"), LoseFirst, FailWrite, Release("a")], 100);
}

#[test]
fn p11_every_order_of_a_load_an_abort_and_the_same_transfer_again() {
    explores(&[Hold("a"), Load("a"), Abort("a"), Hold("a"), Load("a")], 300);
}
