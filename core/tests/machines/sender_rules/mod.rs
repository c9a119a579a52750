//! P's rules and the failures that P's machine designs out.

mod bounds;
mod counts;
mod deadlines;
mod drops;
mod ends;
mod order;
mod reuse;
mod slots;
mod weights;
