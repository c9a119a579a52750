//! The rows of the table, and the cells that cannot be reached.

use super::states::State;

/// A control message vanished; no happening, but a fault all the same.
pub const MESSAGE_LOST: &str = "message lost";

/// Every fault, as [`crate::plan::Happening::name`] names it, and what happens by chance.
pub const FAULTS: [&str; 25] = [
    "kill for good",
    "restart elsewhere",
    "restart",
    "move",
    "stop",
    "cut",
    "slow",
    "reset",
    "forget directory",
    "pause abort",
    "pause wait",
    "pause keep",
    "sleep 0",
    "sleep",
    "sleep 2",
    "release kv",
    "reregister",
    "update weights",
    "resume",
    "abort transfers",
    "abort requests",
    "reset cache",
    "failed order",
    "release all",
    MESSAGE_LOST,
];

/// Faults that touch P engines alone.
const PREFILL_ONLY: [&str; 2] = ["forget directory", "release all"];

/// Why a fault cannot find an engine in a state; `None` when it can.
#[must_use]
pub fn impossible(fault: &str, state: State) -> Option<&'static str> {
    if PREFILL_ONLY.contains(&fault) && State::DECODE.contains(&state) {
        return Some("only P engines have it, and they load nothing");
    }
    if fault == MESSAGE_LOST && state == State::Idle {
        return Some("D has a load or a drop of one under way when a message is lost");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Happening, PauseMode, WakeOrder};

    #[test]
    fn every_happening_has_a_row() {
        let (engine, from, to, for_ms) = (0, 0, 1, 1);
        let pause = |mode| Happening::Pause { engine, mode, clear: false, for_ms };
        let sleep = |level| {
            let (mode, wake) = (PauseMode::Keep, WakeOrder::All);
            Happening::Sleep { engine, for_ms, level, mode, wake }
        };
        let all = [
            Happening::Kill { engine, down_ms: None, moves: false },
            Happening::Kill { engine, down_ms: Some(1), moves: true },
            Happening::Kill { engine, down_ms: Some(1), moves: false },
            Happening::Move { engine, down_ms: 1 },
            Happening::Stop { engine, for_ms },
            Happening::Cut { from, to, for_ms },
            Happening::Slow { from, to, times: 2, for_ms },
            Happening::Reset { from, to },
            Happening::ForgetDirectory { engine },
            pause(PauseMode::Abort),
            pause(PauseMode::Wait),
            pause(PauseMode::Keep),
            sleep(0),
            sleep(1),
            sleep(2),
            Happening::ReleaseKv { engine, mode: PauseMode::Keep, for_ms },
            Happening::Reregister { engine, for_ms },
            Happening::UpdateWeights { for_ms, sleep: false },
            Happening::Resume { engine },
            Happening::AbortTransfers { engine },
            Happening::AbortRequests { engine },
            Happening::ResetCache { engine, running: true },
            Happening::FailOrder { engine, order: 0, within_ms: 1 },
            Happening::ReleaseAll { engine },
        ];
        let names: Vec<_> = all.iter().map(Happening::name).chain([MESSAGE_LOST]).collect();
        assert_eq!(names, FAULTS);
    }
}
