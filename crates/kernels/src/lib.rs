//! Kernels for testing: a corpus whose results are known, and random ones.
//!
//! Both run through the driver API, on the simulated GPU and, where there is one, on a real GPU.
//!
//! - [`corpus`]: kernels that nvcc, NVRTC, numba, clang and rustc compiled, each with its launch and the checksum of what
//!   it writes.
//! - [`random`]: programs in PTX that use most instructions, for comparing two drivers.
//!
//! # Layers
//!
//! ```text
//! corpus/, random/    what to run, and the results
//! device              a context of a driver: modules, memory, launches
//! driver              the functions of a driver
//! ```

pub mod corpus;
mod device;
mod driver;
pub mod random;

pub use device::{Device, Function, Grid, Loaded};
pub use driver::Driver;
