//! What the tests of the page need: runs, a browser, and what must be shown.

pub mod browser;
pub mod builder;
pub mod expected;
pub mod runs;
