//! Makes a failing input small: first fewer choices, then lower ones.

use crate::campaign::{Campaign, Trace};
use std::time::{Duration, Instant};

/// Inputs tried at most.
const MOST_TRIES: u32 = 20_000;
/// Time taken at most: a failing run may be slow.
const MOST_TIME: Duration = Duration::from_secs(20);

/// A smaller input that breaks the same rule.
#[must_use]
pub fn shrink(campaign: &Campaign, input: &[u8]) -> Vec<u8> {
    let Err(violation) = campaign.attempt(input, &mut Trace::default()) else {
        return input.to_vec();
    };
    let end = Instant::now() + MOST_TIME;
    let mut tries = 0;
    let fails = |candidate: &[u8]| {
        tries += 1;
        let go_on = tries < MOST_TRIES && Instant::now() < end;
        let result = campaign.attempt(candidate, &mut Trace::default());
        (go_on, result.is_err_and(|found| found.rule == violation.rule))
    };
    minimize(input, campaign.step_bytes, fails)
}

/// `fails` tells whether to go on, and whether the candidate still fails.
fn minimize(
    input: &[u8],
    step_bytes: usize,
    mut fails: impl FnMut(&[u8]) -> (bool, bool),
) -> Vec<u8> {
    let mut best = input.to_vec();
    loop {
        let before = best.clone();
        let mut chunk = best.len().next_power_of_two().max(step_bytes);
        while chunk > 0 {
            if !drop_chunks(&mut best, chunk, &mut fails) {
                return best;
            }
            chunk = if chunk == 1 { 0 } else { chunk / 2 };
        }
        if !lower(&mut best, &mut fails) || best == before {
            return best;
        }
    }
}

/// Drops `chunk` bytes at a time, from the end. False when time is up.
fn drop_chunks(
    best: &mut Vec<u8>,
    chunk: usize,
    fails: &mut impl FnMut(&[u8]) -> (bool, bool),
) -> bool {
    let mut from = best.len().saturating_sub(1) / chunk * chunk;
    loop {
        if from < best.len() {
            let mut candidate = best.clone();
            candidate.drain(from..best.len().min(from + chunk));
            let (go_on, still) = fails(&candidate);
            if still {
                *best = candidate;
            }
            if !go_on {
                return false;
            }
        }
        match from.checked_sub(chunk) {
            Some(before) => from = before,
            None => return true,
        }
    }
}

/// Lowers each byte: to 0, to half, by one. False when time is up.
fn lower(best: &mut [u8], fails: &mut impl FnMut(&[u8]) -> (bool, bool)) -> bool {
    for at in 0..best.len() {
        for next in [|_| 0, |byte| byte / 2, |byte: u8| byte.saturating_sub(1)] {
            loop {
                let byte = best[at];
                let lower: u8 = next(byte);
                if lower == byte {
                    break;
                }
                best[at] = lower;
                let (go_on, still) = fails(best);
                if !still {
                    best[at] = byte;
                }
                if !go_on {
                    return false;
                }
                if !still {
                    break;
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fails_is_left_and_it_is_low() {
        let input: Vec<u8> = (0..=255).collect();
        let smallest = minimize(&input, 4, |candidate| {
            let first = candidate.iter().position(|byte| *byte >= 40);
            let still = first.is_some_and(|at| candidate[at..].iter().any(|byte| *byte >= 90));
            (true, still && candidate.len() >= 2)
        });
        assert_eq!(smallest, [0, 90]);
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let mut tries = 0;
        let input = vec![9; 64];
        let smallest = minimize(&input, 4, |_| {
            tries += 1;
            (false, false)
        });
        assert_eq!((smallest, tries), (input, 1));
    }
}
