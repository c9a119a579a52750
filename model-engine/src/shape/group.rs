//! How a group lists a request's blocks.

use kvbaton_core::region::GroupKind;
use std::ops::Range;

/// What a group keeps of a request whose KV has reached some token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keeps {
    /// Every block.
    All,
    /// The blocks with a position in the last so many tokens (sliding window).
    Window(u32),
    /// The running state, and the one at the last full block boundary.
    States,
}

/// One KV cache group: layers that share block ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Tokens in a logical block.
    pub block_size: u32,
    /// What it keeps.
    pub keeps: Keeps,
}

impl Group {
    /// Attention or state, as the planner tells them apart.
    #[must_use]
    pub const fn kind(&self) -> GroupKind {
        match self.keeps {
            Keeps::All | Keeps::Window(_) => GroupKind::Attention,
            Keeps::States => GroupKind::State,
        }
    }

    /// Length of the block list of `tokens` tokens.
    #[must_use]
    pub const fn blocks(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_size as usize)
    }

    /// First position that the group still reads once KV has reached `tokens`.
    #[must_use]
    pub const fn first_position(&self, tokens: usize) -> usize {
        match self.keeps {
            Keeps::All => 0,
            Keeps::Window(window) => tokens.saturating_sub(window as usize),
            Keeps::States => {
                (tokens / self.block_size as usize).saturating_sub(1) * self.block_size as usize
            }
        }
    }

    /// Which entries of the block list hold a block at `tokens`; those before are null.
    #[must_use]
    pub const fn kept(&self, tokens: usize) -> Range<usize> {
        self.first_position(tokens) / self.block_size as usize..self.blocks(tokens)
    }

    /// First entry that goes into a transfer's list: a window's list starts at its first
    /// block, a state's list is whole with null entries in front `[F48]`.
    #[must_use]
    pub const fn first_listed(&self, tokens: usize) -> usize {
        match self.keeps {
            Keeps::All | Keeps::States => 0,
            Keeps::Window(_) => self.kept(tokens).start,
        }
    }

    /// How many tokens entry `index` of a list of `tokens` tokens covers the end of.
    #[must_use]
    pub(crate) fn covered(&self, index: usize, tokens: usize) -> usize {
        tokens.min((index + 1) * self.block_size as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn f48_a_state_group_keeps_the_last_boundary_and_the_running_state() {
        let group = Group { block_size: 16, keeps: Keeps::States };
        let kept: Vec<_> = [1, 16, 17, 32, 33, 96, 100].iter().map(|&n| group.kept(n)).collect();
        assert_eq!(kept, [0..1, 0..1, 0..2, 1..2, 1..3, 5..6, 5..7]);
        assert_eq!(group.first_listed(100), 0);
    }

    #[test]
    fn a_window_keeps_the_blocks_it_touches() {
        let group = Group { block_size: 16, keeps: Keeps::Window(20) };
        let kept: Vec<_> = [1, 20, 36, 37, 64].iter().map(|&n| group.kept(n)).collect();
        assert_eq!(kept, [0..1, 0..2, 1..3, 1..3, 2..4]);
        assert_eq!(group.first_listed(64), 2);
    }

    proptest! {
        #[test]
        fn what_is_kept_only_moves_forward(block_size in 1u32..40, window in 1u32..90, n in 1usize..300) {
            for keeps in [Keeps::All, Keeps::Window(window), Keeps::States] {
                let group = Group { block_size, keeps };
                let (now, then) = (group.kept(n), group.kept(n + 1));
                prop_assert!(now.start <= then.start && now.end <= then.end && now.start < now.end);
            }
        }
    }
}
