//! What a machine says about its GPUs beyond the CUDA driver, as plain data: memory that is
//! reserved, processes that hold memory, modes that keep programs out.
//!
//! The facts come from NVML, NVIDIA's management library. It is loaded when it is first asked, never
//! linked: a program with this crate in it starts everywhere, and where there is no NVML the answer
//! is an [`Unknown`] that says what is missing. Nothing is printed and nothing is guessed.
//!
//! ```
//! use cuguard_machine::Machine;
//!
//! match Machine::get() {
//!     Err(unknown) => println!("{unknown}"),
//!     Ok(machine) => {
//!         for gpu in machine.gpus()? {
//!             println!("{}: {}", gpu.index, gpu.name.as_deref().unwrap_or("a GPU"));
//!             for process in gpu.processes.iter().flatten() {
//!                 println!("    {}: {:?} bytes", process.pid, process.bytes);
//!             }
//!         }
//!     }
//! }
//! # Ok::<(), cuguard_machine::Unknown>(())
//! ```
//!
//! # What it cannot see
//!
//! - In a container NVML may list no processes at all, pids of the host, or pid 0. A pid that is not
//!   in this machine's `/proc` is marked as not [visible](Process::visible). A pid of another
//!   namespace may by chance be one of ours too; then name and command line are those of the wrong
//!   process.
//! - NVML knows nothing of a simulated GPU. [`Gpu`], [`Memory`] and [`Process`] are plain data that
//!   anybody can fill.
//! - It numbers GPUs in its own order, without regard to `CUDA_VISIBLE_DEVICES`. The id of the PCI
//!   bus is what names a GPU here and in CUDA: [`Machine::gpu_by_pci`].

#![forbid(unsafe_code)]

mod gpu;
mod machine;
mod pci;
mod process;
mod procfs;
mod unknown;

pub use gpu::{ComputeMode, Gpu, Memory};
pub use machine::Machine;
pub use pci::normal_pci_bus_id;
pub use process::{Process, ProcessKind};
pub use procfs::{COMMAND_LENGTH, sees_all_processes};
pub use unknown::Unknown;
