//! A simulated CUDA driver in host memory, for machines without a GPU and for faults that a GPU does
//! not produce on demand.
//!
//! It is a driver, not a mock: [`lookup`] returns a C function for each function of the driver API of CUDA 13.0, except
//! `cuEventCreateFromEGLSync`, which only drivers of integrated GPUs have. Those that are simulated behave as measured on a
//! real driver; each other one fails with `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! - **The same result codes.** One conformance suite runs on the simulation and on a real GPU.
//! - **Physical pages of 2 MiB.** Small blocks share a page, a page is released when it is empty, a
//!   context uses memory, a memory pool reserves chunks of 32 MiB: memory fragments as on a GPU.
//! - **Asynchronous streams.** Each stream executes its work in order on threads of the driver; a
//!   copy is in flight until the program synchronizes with it.
//! - **Graphs and stream capture.** A launch of a graph executes its nodes, those that do not depend on each
//!   other at the same time; a capture permits what it permits on a real driver.
//! - **Misuse is detected.** What a real driver leaves undefined, such as the use of a destroyed
//!   stream or of stream-ordered memory before its allocation, aborts the process with a message that
//!   names the call; see [`Misuse`]. What a real driver notices, such as the use of freed device memory and copies
//!   out of bounds, fails with its result code.
//! - **Faults on demand**: see [`Fault`]; a sticky error: see [`set_sticky_error`].
//! - **Other processes** that use memory of a device: see [`set_other_processes`].
//! - **Counters** of live resources: see [`counters`].
//! - **Kernels run**: modules and libraries load from PTX and fatbins, and the processor executes the PTX. A kernel's error is
//!   the sticky one of a real device, and a line on stderr names kernel, block, thread and line. [`Config::skip_kernels`]
//!   checks and skips launches instead.
//!
//! Limits: it does not execute compiled code; a launch of a kernel from a cubin fails with `CUDA_ERROR_NOT_SUPPORTED`. Loading
//! a module fails for instructions that are not supported, such as those of tensor memory. It has no textures, no graphics,
//! no sharing between processes, and none of the conditional nodes, batch memory operations and external semaphores of graphs.
//! It does not simulate bandwidth, and at most 1024 streams execute work at the same time.
//!
//! # Setup
//!
//! ```
//! use cuguard_sim::{Config, configure, counters};
//!
//! // Before the first call of cuInit; the default is one device of 4 GiB.
//! configure(Config::new().memory(1 << 30).devices(2))?;
//!
//! // `cuguard-driver` does this if the simulated GPU is selected:
//! let init = cuguard_sim::lookup("cuInit").unwrap();
//! // SAFETY: this is the signature of cuInit.
//! let init: unsafe extern "C" fn(u32) -> cuguard_sys::CUresult =
//!     unsafe { std::mem::transmute(init) };
//! // SAFETY: cuInit has no further conditions.
//! assert!(unsafe { init(0) }.is_success());
//! assert_eq!(counters().contexts, 0);
//! # Ok::<(), cuguard_sim::ConfigError>(())
//! ```
//!
//! Programs in other languages set the environment variable `CUGUARD_SIM` instead:
//! `CUGUARD_SIM=memory=1GiB,devices=2`. With `trace` in it, each function that fails because it is not simulated
//! names itself once on stderr:
//!
//! ```text
//! cuguard-sim: cuGraphicsMapResources is not simulated: CUDA_ERROR_NOT_SUPPORTED
//! ```
//!
//! # Layers
//!
//! Each module uses only those below it:
//!
//! ```text
//! entry_points    C functions, what all calls have in common
//! api/            what each driver function does
//! state/          the driver's state behind one lock, and the operations on it
//! memory/         addresses, pages, pools, bytes        streams/   work, vector clocks, events
//! graph/          nodes, edges, captures                code/      PTX, cubins
//! config, fault, misuse, copy_engine, printed
//! trace
//! functions, handle, process, result, simulated, stderr, thread_state
//! ```

mod api;
mod code;
mod config;
mod copy_engine;
pub mod entry_points;
mod fault;
mod functions;
mod graph;
mod handle;
mod memory;
mod misuse;
mod printed;
mod proc_address;
mod process;
mod result;
mod simulated;
mod state;
mod stderr;
mod streams;
mod thread_state;
mod trace;
mod visible_devices;

#[doc(hidden)]
pub use code::count_in_image;
pub use config::{Config, ConfigError, Order, PAGE, configure};
pub use copy_engine::set_sticky_error;
#[doc(inline)]
pub use entry_points::lookup;
pub use fault::{Fault, FaultError, InjectedFault, clear_faults, inject};
pub use memory::OtherProcess;
pub use misuse::{Misuse, misuses};
pub use proc_address::proc_address;
pub use state::{
    Counters, OtherProcessError, Usage, counters, live_counters, other_processes,
    set_other_processes,
};
