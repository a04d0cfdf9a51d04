//! What NVML and `/proc` know about a machine's GPUs, as plain data: reserved memory, processes that hold
//! memory, compute modes, MIG.
//!
//! NVML, NVIDIA's management library, is loaded on first use, never linked: a program with this crate starts
//! everywhere, and where there is no NVML the result is an [`NvmlError`] that says what is missing. Nothing
//! is printed and nothing is guessed. The crate knows nothing of the CUDA driver.
//!
//! ```
//! use cuguard_nvml::Nvml;
//!
//! match Nvml::get() {
//!     Err(error) => println!("{error}"),
//!     Ok(nvml) => {
//!         for gpu in nvml.gpus()? {
//!             println!("{}: {}", gpu.index, gpu.name.as_deref().unwrap_or("a GPU"));
//!             for process in gpu.processes.iter().flatten() {
//!                 println!("    {}: {:?} bytes", process.pid, process.bytes);
//!             }
//!         }
//!     }
//! }
//! # Ok::<(), cuguard_nvml::NvmlError>(())
//! ```
//!
//! # What it cannot see
//!
//! - In a container NVML may list no processes at all, pids of the host, or pid 0. A pid that is not in
//!   `/proc` is marked as not [visible](Process::visible). A pid of another namespace may by chance exist here
//!   too; then name and command line are those of the wrong process.
//! - NVML does not know simulated GPUs. [`Gpu`], [`Memory`] and [`Process`] are plain data that any code can
//!   fill.
//! - NVML numbers GPUs in its own order, without regard to `CUDA_VISIBLE_DEVICES`. The PCI bus id identifies a
//!   GPU here and in CUDA: [`Nvml::gpu_by_pci`].

#![forbid(unsafe_code)]

mod error;
mod gpu;
mod nvml;
mod pci;
mod process;
mod procfs;

pub use error::NvmlError;
pub use gpu::{ComputeMode, Gpu, Memory};
pub use nvml::Nvml;
pub use pci::normalize_pci_bus_id;
pub use process::{Process, ProcessKind};
pub use procfs::{COMMAND_LENGTH, sees_all_processes};
