//! P's rules and the failures that P's machine designs out.

mod bounds;
mod deadlines;
mod drops;
mod ends;
mod order;
mod reuse;
mod slots;
mod weights;
