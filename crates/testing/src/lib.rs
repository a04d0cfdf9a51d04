//! What the tests of all crates share: modules that run in processes of their own ([`apart`]), and the one list of
//! what a machine may lack ([`requirement`]), and the seeds of property tests that failed ([`seeds`]). Knows nothing of CUDA or of the other crates.

pub mod apart;
pub mod requirement;
pub mod seeds;

pub use apart::{has_gpu, test_command, test_path};
pub use requirement::{Requirement, not_run};
