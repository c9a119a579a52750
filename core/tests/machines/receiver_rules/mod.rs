//! D's rules and the failures that D's machine designs out.

mod counts;
mod discovery;
mod drops;
mod ends;
mod layout;
mod reset;
mod reuse;
mod stock;
