//! The door to the CUDA driver: late binding for programs that are built on `cust`.
//!
//! `cust_raw`, which `cust` is built on, declares 353 functions of the CUDA driver and asks the
//! linker for `libcuda`. A program made that way needs a CUDA installation to be built, and a
//! driver to be started at all. This crate defines those 353 symbols itself. Each is one jump
//! through a slot of a table, and the slots are filled when the program runs: from the driver's
//! library, or from a simulated GPU. So one binary is built anywhere, runs on a machine with a
//! driver, and gives a readable error on one without.
//!
//! # Using it
//!
//! Depend on this crate (or on `cuguard`, which does) next to `cust`, and mention it somewhere:
//! what no line of the program mentions is left out by the Rust compiler, and then the linker
//! stops with "undefined symbol: cuInit".
//!
//! ```
//! use cuguard_driver as _;
//! ```
//!
//! That is all: `cust::init` and everything after it work as before. `cust_raw`'s build script
//! still wants to see a CUDA installation; a folder with an empty folder `lib64` in it, named in
//! the environment variable `CUDA_LIBRARY_PATH`, is enough for it.
//!
//! # Which driver
//!
//! The environment variable `CUGUARD_DRIVER` selects it, or the program does with [`select`] before
//! its first CUDA call; the program wins.
//!
//! | `CUGUARD_DRIVER` | driver |
//! |---|---|
//! | `real`, empty or unset | the installed one: `libcuda.so.1` as the system's loader finds it, or else in the places where drivers are known to lie |
//! | `sim` | the simulated GPU; needs the feature `sim` |
//! | `auto` | the installed one if it starts and has a device, else the simulated GPU |
//! | a path, with a `/` in it | that library; from the program with [`select_library`], which is `unsafe` |
//!
//! The simulated GPU is compiled in only with the feature `sim`, runs only when asked for, and
//! then says so in one line on stderr.
//!
//! # When it is loaded
//!
//! By the first call of [`load`], `cuInit`, `cuDriverGetVersion` or `cuGetProcAddress`. Before
//! that every other function answers `CUDA_ERROR_NOT_INITIALIZED`, as a driver does before
//! `cuInit`; `cuGetErrorName` and `cuGetErrorString` answer from a table of their own. A loaded
//! driver stays for the life of the process.
//!
//! # When there is none
//!
//! [`load`] answers a [`LoadError`] that lists what was tried and what to do. The three functions
//! that load write it to stderr, once for each different reason, and answer
//! `CUDA_ERROR_NO_DEVICE`; `cuGetErrorString` gives that code the error's one line. So a plain
//! `cust` program tells the reason, whether it prints its error, unwraps it or returns it from
//! `main`. A function that the loaded driver lacks answers `CUDA_ERROR_NOT_SUPPORTED`;
//! [`Driver::missing`] lists them.
//!
//! # Limits
//!
//! - x86_64 and aarch64 Linux with glibc (`x86_64-unknown-linux-gnu`,
//!   `aarch64-unknown-linux-gnu`). Any other target does not compile. aarch64 is checked under
//!   emulation, with the simulated GPU and with libraries that pretend to be drivers; it has not
//!   yet run on aarch64 hardware, nor with a GPU there.
//! - The symbols are hidden: they serve the program or shared library that this crate is linked
//!   into and nobody else. `cust` and this crate must therefore be linked into the same one, which
//!   is what happens unless `-C prefer-dynamic` is in use.
//! - A program that is linked statically with glibc (`-C target-feature=+crt-static`) is not
//!   supported. It may work where the glibc that it was built with is also installed: a library
//!   that such a program loads brings that in, as a second copy.
//! - Other crates of the program may ask the linker for `-lcuda` too. What they call of the 353
//!   functions comes through the door. For any other function there is no symbol here: the linker
//!   stops with "undefined symbol" or, where it finds a real `libcuda.so`, takes the function from
//!   there, and then the program needs that library to start.
//! - There is one version of this crate in a program: two would define the same symbols and fill
//!   two tables. Cargo refuses to build such a program (`links = "cuguard-driver"`).
//! - `CUGUARD_DRIVER` names code that the process will run, like `LD_LIBRARY_PATH` does. A program
//!   that runs with more rights than its user must call [`select`].

// The C library is part of it: the driver's library is made for glibc, and a program that is linked
// statically, as with musl, can load none.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    // The byte order of the driver's library; aarch64 exists in the other one too.
    target_endian = "little",
    target_pointer_width = "64",
    target_env = "gnu"
)))]
compile_error!(
    "cuguard-driver works on x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu and on no \
     other target"
);

pub mod api;
mod choice;
mod driver;
mod error;
mod fallback;
mod library;
mod load;
pub mod result;
mod table;

pub use choice::{Choice, UnknownChoice};
pub use driver::{Driver, DriverKind};
pub use error::{Attempt, LoadError, SelectError};
pub use load::{load, loaded, select, select_library};

/// The driver's types, constants and result codes.
pub use cuguard_sys as sys;
