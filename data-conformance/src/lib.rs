//! The contract of `DataPlane` as tests that take any data plane: TCP, RDMA, a fake.
//!
//! A transport's test file implements [`Planes`] and calls [`conformance!`]; each rule is
//! then a test of its own there. Programs that are no tests go through [`RULES`].

mod ends;
mod landing;
mod node;
mod refusals;

pub use node::{Node, PATIENCE, block_on, copy, wait_until};

use kvbaton_actors::transport::DataPlane;
use std::sync::Arc;

/// How a data plane is to be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Port of its session; 0 takes any.
    pub port: u16,
    /// Key that both ends must prove.
    pub key: Option<[u8; 32]>,
    /// Whether no address may be connected to.
    pub deny_all: bool,
}

/// Opens data planes of one kind, on this machine.
pub trait Planes: Sync {
    /// Opens one.
    fn open(&self, options: Options) -> Arc<dyn DataPlane>;

    /// Bytes of a write that takes a while, a multiple of 64 KiB; less on slow machines.
    fn large(&self) -> u64 {
        64 << 20
    }
}

/// One rule: its name and its test.
pub type Rule = (&'static str, fn(&dyn Planes));

macro_rules! rules {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        /// Every rule, cheapest first.
        pub const RULES: &[Rule] = &[$($((stringify!($name), $module::$name),)*)*];

        /// Makes a test of every rule: `conformance!(EXPRESSION)`, where the expression is a
        /// `&dyn Planes`.
        #[macro_export]
        macro_rules! conformance {
            ($planes:expr) => {
                $crate::each_rule!($planes; $($($name)*)*);
            };
        }
    };
}

/// Used by [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! each_rule {
    ($planes:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::run(stringify!($name), $planes);
            }
        )*
    };
}

/// Runs one rule by name.
///
/// # Panics
/// When it is broken, or there is none of that name.
pub fn run(name: &str, planes: &dyn Planes) {
    let (_, rule) = RULES.iter().find(|(it, _)| *it == name).expect("a rule of that name");
    rule(planes);
}

rules! {
    landing:
        g01_a_write_lands_exactly_in_its_rows,
        f74_twenty_thousand_scattered_blocks_pass_in_one_batch,
        a_large_contiguous_write_lands_whole,
        many_writes_at_a_time_end_each_on_its_own,
        both_directions_at_once,
        pieces_of_every_size_and_alignment_land;
    refusals:
        z02_each_reason_to_refuse_is_told_and_nothing_lands,
        sources_outside_registered_memory_fail_before_anything_is_sent,
        registrations_and_grants_are_checked,
        z04_only_the_same_key_is_let_in,
        z05_a_session_outside_the_allowed_networks_is_not_connected_to,
        p12_nobody_there_is_told_at_once_and_settled;
    ends:
        g02_after_a_revoke_nothing_lands_and_others_do,
        s04_after_registering_again_only_the_new_generation_is_taken,
        s04_unregistering_the_target_in_mid_write_lets_nothing_land_after,
        s01_unregistering_the_source_in_mid_write_ends_it,
        cancelling_ends_a_write_and_hurts_no_other,
        a_dropped_future_is_a_cancelled_write,
        f70_a_restarted_receiver_on_the_same_port_is_found,
        closing_a_data_plane_ends_its_writes;
}
