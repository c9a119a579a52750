//! The data plane over the fake adapter.

mod conformance;
mod doctor;
mod faults;
mod fences;
mod hostile;
mod library;
mod rails;
mod rig;
