//! Being a peer of Mooncake's transfer engine over TCP: its control frames, its data
//! protocol, and its segment descriptor, each way.

pub(super) mod control;
pub(super) mod data;
pub(super) mod descriptor;
pub(super) mod request;
