//! A simulated CUDA driver in host memory, for machines without a GPU and for faults that no GPU
//! gives on demand.
//!
//! It is a driver, not a mock: [`lookup`] gives a C function for each of the 353 functions of the
//! driver interface that `cust_raw` declares, and they do what a real driver was measured to do.
//!
//! - **The same result codes**, held to a real GPU by one conformance suite that runs on both.
//! - **Physical pages of 2 MiB.** Small blocks share a page, a page goes back only when it is
//!   empty, a context costs memory, a memory pool takes chunks of 32 MiB: memory fragments here
//!   as it does there.
//! - **Streams that run.** Each stream does its work in order, on threads of the driver's; a copy
//!   is in flight until somebody waits for it.
//! - **Misuse is noticed.** What a real driver leaves undefined, such as the use of a destroyed
//!   stream, or of memory before it is allocated and while it is freed, ends the process with a
//!   line that says what happened; see [`Misuse`].
//! - **Faults on demand**: see [`Fault`]; a whole driver that turns unusable: see [`corrupt`].
//! - **Other processes** that hold memory of a device: see [`set_other_processes`].
//! - **Counters** of what is alive: see [`counters`].
//!
//! What it does not do: it runs no kernels (`cuModuleLoadData` and all that belongs to kernels,
//! graphs, textures, graphics and inter-process sharing answers `CUDA_ERROR_NOT_SUPPORTED`), it has
//! no notion of bandwidth, and at most 1024 pieces of work run at the same time, host functions that
//! wait for something among them.
//!
//! # Setting it up
//!
//! ```
//! use cuguard_sim::{Config, configure, counters};
//!
//! // Before the first call of cuInit; the default is one device of 4 GiB.
//! configure(Config::new().memory(1 << 30).devices(2))?;
//!
//! // What `cuguard-driver` does when the simulated GPU is chosen:
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
//! `CUGUARD_SIM=memory=1GiB,devices=2`.

mod address_map;
mod address_space;
mod api;
mod area;
mod clock;
mod config;
mod context;
mod counters;
mod crew;
mod current;
mod engine;
pub mod entry;
mod event_table;
mod fault;
mod freed;
mod gaps;
mod handle;
mod lock;
mod machine;
mod memory_block;
mod misuse;
mod os;
mod others;
mod per_thread;
mod physical;
mod pool;
mod quarantine;
mod queue;
mod ranges;
mod wait;

pub use config::{Config, ConfigError, PAGE, configure};
pub use counters::{Counters, Tally, alive, counters};
#[doc(inline)]
pub use entry::lookup;
pub use fault::{Fault, FaultError, Injected, clear_faults, inject};
pub use machine::corrupt;
pub use misuse::{Misuse, misuses};
pub use others::{OtherProcess, OtherProcessError, other_processes, set_other_processes};
