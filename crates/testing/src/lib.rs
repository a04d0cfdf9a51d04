//! What the tests of all crates share: modules that run in processes of their own ([`apart`]), the one list of
//! what a machine may lack ([`requirement`]), the seeds of property tests that failed ([`seeds`]), and C programs that tests
//! compile ([`compile`]). Knows nothing of CUDA or of the other crates.

pub mod apart;
mod compiler;
mod folder;
pub mod requirement;
pub mod seeds;

pub use apart::{has_gpu, test_command, test_path};
pub use compiler::{compile, cxx};
pub use folder::Folder;
pub use requirement::{Requirement, not_run};
