//! What the tests of the page need: runs, and a browser.

pub mod browser;
pub mod builder;
pub mod runs;
