//! The end of a context: it waits for all work, frees what is left, and reports.

pub(crate) mod peer_streams;
pub(crate) mod report_state;
pub(crate) mod tear_down;
