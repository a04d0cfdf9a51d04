//! Custody of everything that a CUDA program takes from the driver.
//!
//! `cuguard` is built on [`cust`]. What works today is the ground that the rest will stand on:
//!
//! - **The door** ([`driver`]): a program on `cust` builds without a CUDA installation, starts
//!   without a driver, and finds its driver when it makes its first CUDA call.
//! - **The simulated GPU** (feature `sim`): the same program runs on a machine without a GPU, on a
//!   driver in host memory that checks what a real one leaves undefined.
//!
//! # Set-up
//!
//! ```toml
//! [dependencies]
//! cuguard = "0.1"
//! cust = "0.3.2"
//! ```
//!
//! Mention `cuguard` somewhere, or the Rust compiler leaves it out (`use cuguard as _;` does).
//! Then write a plain `cust` program:
//!
//! ```
//! use cuguard::driver::{Choice, select};
//! use cust::memory::{CopyDestination, DeviceBuffer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if cfg!(feature = "sim") {
//! select(Choice::Sim)?; // without this line: what the environment says, and else the real GPU
//! let _context = cust::quick_init()?;
//! let buffer = DeviceBuffer::from_slice(&[1_u32, 2, 3])?;
//! let mut back = [0; 3];
//! buffer.copy_to(&mut back)?;
//! assert_eq!(back, [1, 2, 3]);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! Where no CUDA toolkit is installed, `cust_raw`'s build script stops with "Could not find a cuda
//! installation". It is content with a folder that holds an empty folder `lib64`; name the outer
//! one in `.cargo/config.toml`:
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = { value = ".cargo/no-cuda", relative = true }
//! ```
//!
//! # Choosing the driver
//!
//! `CUGUARD_DRIVER` is `real` (the default), `sim`, `auto` or the path of a library; see
//! [`driver`], also for what a program sees when there is no driver.

pub use cuguard_driver as driver;

#[cfg(feature = "sim")]
pub use cuguard_sim as sim;

mod bound;
mod claim;
mod context;
mod custody;
mod error;
mod event;
mod exit;
mod launch;
mod memory;
mod module;
mod raw;
mod registry;
mod report;
mod scope;
mod scope_end;
mod size;
mod stream;

pub use context::{Bound, Context, ContextBuilder, Memory};
pub use error::{DriverError, Error, Result};
pub use memory::{DeviceBox, DeviceBuffer, ManagedBuffer, MemoryPool, PinnedBuffer, Registered};
pub use registry::{
    About, Amount, Change, Diff, FailedFreeGroup, Group, Kind, LabelScope, LateDrops, Level,
    MAX_DEPTH, Occasion, Origin, Site, Snapshot, Totals, Trend, UnknownLevel, in_label,
};
pub use report::{Checkpoint, Colour, PatternError, Problem, ReportSettings};

pub use bound::{Bindable, DeviceMut, DeviceRef, HostMut, HostRef};
pub use event::Event;
pub use launch::KernelArgument;
pub use module::{Function, Global, Module};
pub use scope::Scope;
pub use stream::{Stream, StreamBuilder};
