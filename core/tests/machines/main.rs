//! The protocol machines: one test per rule and failure, then both sides together.

mod explorer;
mod joint;
mod names;
mod planner;
mod receiver_driver;
mod receiver_rules;
mod sender_driver;
mod sender_rules;
mod world;
