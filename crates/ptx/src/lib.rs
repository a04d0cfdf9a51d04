//! Parses PTX and executes it on the CPU, a warp at a time: the kernels of the simulated GPU of cuguard.
//!
//! It knows nothing of the driver: device memory is a trait ([`Memory`]), and so is what kernels ask of the device's runtime
//! ([`Host`]).
//!
//! # How a driver uses it
//!
//! 1. [`Module::new`] loads a text. It fails with each error and each unsupported instruction, by line: the text of the
//!    JIT log.
//! 2. [`Module::variables`] lists the variables in global and constant memory. The driver allocates them and copies
//!    [`Module::initial_value`] to each, which needs the addresses of all. The same module can be loaded into several
//!    contexts.
//! 3. [`Module::kernels`] lists the kernels, with the places of their parameters and the limits that they declare.
//! 4. [`Module::launch`] executes a grid, and returns when all threads have ended or one has failed: [`LaunchError`] names
//!    block, thread, line, and source line. The driver calls it from a thread of its own where the launch is asynchronous.
//!
//! ```
//! # use std::ptr::NonNull;
//! use cuguard_ptx::{Host, Launch, Memory, Module, Order, Region};
//!
//! /// One allocation, at the device address 0x1000.
//! struct Device(NonNull<u32>);
//! # // SAFETY: the memory is valid while the device is.
//! # unsafe impl Sync for Device {}
//!
//! // SAFETY: the region is valid as long as the device is borrowed, and only kernels access it meanwhile.
//! unsafe impl Memory for Device {
//!     fn find(&self, address: u64) -> Option<Region<'_>> {
//!         // SAFETY: as above; regions other than the one that contains the address need not be considered.
//!         (0x1000..0x1010).contains(&address).then(|| unsafe { Region::new(0x1000, 16, self.0.cast()) })
//!     }
//! }
//!
//! impl Host for Device {
//!     fn print(&self, text: &str) {
//!         print!("{text}");
//!     }
//!     fn allocate(&self, _bytes: u64) -> u64 {
//!         0
//!     }
//!     fn free(&self, _address: u64) -> bool {
//!         false
//!     }
//!     fn nanoseconds(&self) -> u64 {
//!         0
//!     }
//! }
//!
//! let text = "
//!     .version 8.0
//!     .target sm_90
//!     .address_size 64
//!     .visible .entry double(.param .u64 words) {
//!         .reg .b32 %r<2>;
//!         .reg .b64 %rd<3>;
//!         mov.u32 %r0, %tid.x;
//!         ld.param.u64 %rd0, [words];
//!         mul.wide.u32 %rd1, %r0, 4;
//!         add.s64 %rd2, %rd0, %rd1;
//!         ld.global.u32 %r1, [%rd2];
//!         shl.b32 %r1, %r1, 1;
//!         st.global.u32 [%rd2], %r1;
//!         ret;
//!     }";
//! let module = Module::new(text)?;
//! # #[repr(align(16))]
//! # struct Words([u32; 4]);
//! let mut words = Words([1, 2, 3, 4]);
//! let device = Device(NonNull::from(&mut words.0).cast());
//! let launch = Launch {
//!     kernel: "double",
//!     grid: [1; 3],
//!     block: [4, 1, 1],
//!     cluster: [1; 3],
//!     dynamic_shared: 0,
//!     arguments: &0x1000u64.to_le_bytes(),
//!     variables: &[],
//!     workspace: 0,
//!     order: Order::Sequential,
//!     workers: 1,
//!     max_steps: u64::MAX,
//!     cancel: None,
//! };
//! module.launch(&launch, &device, &device)?;
//! assert_eq!(words.0, [2, 4, 6, 8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it executes
//!
//! Text becomes a syntax tree, the tree a program whose names are resolved, and each instruction of that a closure which
//! knows its operands and executes for the 32 lanes of a warp. Lanes that diverge form groups; where paths meet again, so
//! do groups. A group that may be waiting for another gives way, so that lanes, warps and blocks can wait for each other,
//! as on GPUs since Volta. Blocks execute on several threads of the host if [`Launch::workers`] says so.
//!
//! Results equal those of a GPU bit by bit where the PTX manual defines them; approximations such as `ex2.approx` are the
//! exact result rounded, which is within the manual's bounds.
//!
//! # What it does not do
//!
//! Textures and surfaces, tensor memory (`tcgen05`), `wgmma`, bulk and tensor copies, video instructions, `alloca` and
//! kernels that launch kernels: a module with these does not load. Bounds of shared memory are checked in units of 8
//! bytes. Clocks count instructions.
//!
//! # Layers
//!
//! Each module uses only those below it:
//!
//! ```text
//! module         Module, Kernel, Launch
//! execute/       groups of lanes, warps, blocks, clusters, the grid
//! instructions/  one file per family: from instruction to closure
//! machine/       registers, memory, operands: what closures work on
//! program/       names resolved
//! text/          tokens, syntax tree
//! number/        floating-point arithmetic of all formats and rounding modes
//! types, error
//! ```

// Unsafe code is where memory of the device is accessed, and where instructions of the host's processor are chosen.
#![deny(unsafe_code)]

mod error;
mod execute;
mod instructions;
#[allow(
    unsafe_code,
    reason = "memory of the device, features of the processor"
)]
mod machine;
mod module;
#[forbid(unsafe_code)]
mod number;
#[forbid(unsafe_code)]
mod program;
#[forbid(unsafe_code)]
mod text;
mod types;

pub use error::{LoadError, LoadErrors};
pub use execute::{LaunchError, Order, Statistics};
pub use machine::{FaultKind, Host, Memory, Region};
pub use module::{Kernel, Launch, Module, Variable};
