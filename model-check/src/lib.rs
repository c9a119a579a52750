//! Every order of events of small worlds, whose transitions are core's own machines.
//!
//! One P engine of one or two ranks, one D. Each P rank is core's `Sender`, `LayoutTable`
//! and `Lifecycle`, D is core's `Receiver` and `Lifecycle`; what the actors of a node do
//! between them, the network, the two data planes and the two engines are small models
//! (`prefill`, `decode`, `network`, `data_plane`). [`check::explore`] visits every state, or one
//! that stands for it ([`explorer`]), and checks [`rules::Rule`] in each. `stateright` walks the
//! same model in the tests, where both must visit the same states, and looks for short ways to a
//! broken rule.
//!
//! # The world
//!
//! - **Engines.** P's ranks end each prefill when they like; D loads its requests one by one
//!   or several in one pull, in the order of their numbers (the numbers are names only). D's
//!   blocks go back to the pool, lowest first, so that a later load gets them again at once.
//! - **Network.** A bag: any message may arrive next. It may be lost, with D told that its
//!   connection broke or not, and may arrive twice, each within a budget. What a node's own
//!   data plane or operating system tells it is not lost.
//! - **Data planes.** A write's copies reach D one by one at any time; D's data plane takes
//!   them under a live grant of the current registration, in the grant's rows. P hears of the
//!   end later. A write that P gave up, or whose P restarted, may still reach D.
//! - **Time.** Each node has a clock of its own, that stands still until a deadline comes: then
//!   it is that deadline's time. Deadlines come in their order on a node, and independently
//!   between nodes. They come freely when nothing else can happen, and within a budget at any
//!   other time. So two deadlines that were set between the same two ticks come together.
//! - **Faults** ([`options::Faults`]) may happen at any time, each within its budget; a path
//!   on which they do not happen is explored as well. Of two P ranks, which are alike, it is
//!   the first that is evicted from or sleeps.
//!
//! Random ids are counters here: core only compares them.
//!
//! # Why it is finite, and what "ends" means
//!
//! Every step uses something up: a message (each step makes a bounded number, and a pull is
//! repeated at most twice), a copy of a write, a prefill, a load, a budget, a deadline (of
//! which core sets a bounded number per message). So no path comes back to a state; a test
//! walks small worlds to see it. Then "every request ends on every path" is the same as: where
//! nothing can happen any more, everything has ended and nothing is left
//! ([`rules::Rule::Rest`]). That holds with losses too, thanks to deadlines; a second rule
//! ([`rules::Rule::Progress`]) asks for more where no message was lost: everything ends without
//! any deadline.
//!
//! # What is left out, and why that is sound
//!
//! - A node's machines run at once to their next rest: an actor's turn is not interrupted, and
//!   nodes share no state.
//! - A message that comes too late (an answer to a pull that D has closed, a message for a
//!   process that is gone) arrives as soon as it is too late, and must change nothing
//!   ([`rules::Rule::Late`]). Such a message commutes with every other step, since ids do not
//!   come back. `--late-any-time` explores without this, on small worlds with the same result.
//! - Texts of answers are left out: they steer nothing.
//! - Nodes and messages are compared by 64-bit fingerprints: a million of them hold a pair that is
//!   taken for one another with a chance of 3 in 10⁸. Worlds made of them are compared by
//!   [`visited::Visited::width`] bits, 69 with six faults: of n states, n²/2⁷⁰ pairs are expected
//!   to be taken for one another; that is below 0.0001 for 300 million.
//! - States that others stand for: see [`explorer`].
//! - The order of use in core's bounded memories is left out of the fingerprint: their
//!   capacity is never reached here. P's layout table, which is evicted from, holds one peer.

pub mod check;
pub mod coverage;
pub mod explorer;
pub mod options;
pub mod prove;
pub mod rules;
pub mod step;
pub mod suite;
pub mod visited;
pub mod world;

mod data_plane;
mod decode;
mod memo;
mod memory;
mod moves;
mod names;
mod network;
mod outline;
mod prefill;
mod print;
