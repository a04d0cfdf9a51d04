//! The CUDA driver, bound at run time, for programs that use `cust`.
//!
//! `cust_raw`, which `cust` is built on, declares 353 functions of the CUDA driver and links with
//! `-lcuda`. Such a program needs a CUDA installation to build, and a driver to start. This crate defines
//! those symbols itself, and all others of the driver API: 720 functions, up to CUDA 13.4, so that C and C++
//! code in the program links too. Each is one jump through a slot of a table, which is filled at run time:
//! from the driver's library, or from a simulated GPU. One binary then builds anywhere, runs where there is a
//! driver, and fails with a readable error where there is none.
//!
//! # Layers
//!
//! [`sys`] (types, constants, codes) → [`api`] (the raw functions) → [`result`] (the same functions with
//! [`Result`](result::Result)). Calls by `result` bypass what `cuguard run` records. Beside them: [`select`] and [`load()`],
//! which choose and load the driver. Nothing here knows about owners, leaks or reports; those are `cuguard`'s.
//!
//! # Use
//!
//! Depend on this crate (or on `cuguard`, which does) next to `cust`, and mention it in the program: the
//! compiler drops a crate that no line mentions, and then linking fails with "undefined symbol: cuInit".
//!
//! ```
//! use cuguard_driver as _;
//! ```
//!
//! `cust::init` and everything after it then work as before. `cust_raw`'s build script still requires a CUDA
//! installation; a folder that contains an empty folder `lib64`, named in the environment variable
//! `CUDA_LIBRARY_PATH`, satisfies it.
//!
//! # Which driver
//!
//! The environment variable `CUGUARD_DRIVER` selects the driver, or the program does with [`select`] before
//! its first CUDA call; the program wins.
//!
//! | `CUGUARD_DRIVER` | driver |
//! |---|---|
//! | `real`, empty or unset | the installed one: `libcuda.so.1` as the dynamic linker finds it, or else in the usual folders |
//! | `sim` | the simulated GPU; needs the feature `sim` |
//! | `auto` | the installed one if it starts and has a device, else the simulated GPU |
//! | a path, with a `/` in it | that library; from the program with [`select_library`], which is `unsafe` |
//!
//! The simulated GPU is compiled in only with the feature `sim`, runs only when it is selected, and announces
//! itself with one line on stderr.
//!
//! # When it is loaded
//!
//! By the first call of [`load()`], `cuInit`, `cuDriverGetVersion` or `cuGetProcAddress`. Before that every
//! other function returns `CUDA_ERROR_NOT_INITIALIZED`, as a driver does before `cuInit`; `cuGetErrorName` and
//! `cuGetErrorString` use a table of this crate. A loaded driver stays for the life of the process.
//!
//! # When there is none
//!
//! [`load()`] fails with a [`LoadError`] that lists what was tried and what to do. The functions that load
//! write it to stderr, once for each different reason, and return `CUDA_ERROR_NO_DEVICE`; `cuGetErrorString`
//! returns the error's one line for that code. So a plain `cust` program shows the reason, whether it prints
//! its error, unwraps it or returns it from `main`. A function that the loaded driver lacks returns
//! `CUDA_ERROR_NOT_FOUND`, and the first call of it is logged (crate `log`, level warn) with its name and the
//! version of CUDA that has it; [`Driver::missing`] lists them.
//!
//! # Limits
//!
//! - x86_64 and aarch64 Linux with glibc (`x86_64-unknown-linux-gnu`, `aarch64-unknown-linux-gnu`). No other
//!   target compiles. aarch64 is tested under emulation, with the simulated GPU and with libraries that
//!   imitate drivers; not yet on aarch64 hardware, nor with a GPU there.
//! - The symbols are hidden: they serve the program or shared library that this crate is linked into and no
//!   other. `cust` and this crate must therefore be linked into the same one, which is the case unless
//!   `-C prefer-dynamic` is in use.
//! - A program that is linked statically with glibc (`-C target-feature=+crt-static`) is not supported. It may
//!   work where the glibc that it was built with is also installed: a library that such a program loads brings
//!   in a second copy.
//! - Other crates of the program, and C or C++ code in them, may link with `-lcuda` too. Their calls of the driver
//!   API go through this table. For a function that is in no header of CUDA 13.4 there is no symbol here: linking
//!   fails with "undefined symbol" or, where the linker finds a real `libcuda.so`, takes the function from there,
//!   and then the program needs that library to start.
//! - A program contains one version of this crate: two would define the same symbols and fill two tables. Cargo
//!   refuses to build such a program (`links = "cuguard-driver"`).
//! - `CUGUARD_DRIVER` names code that the process runs, like `LD_LIBRARY_PATH` does. A program that runs with
//!   more rights than its user must call [`select`].

// glibc is required: the driver's library is built for it, and a statically linked program, as with musl,
// cannot load one.
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
mod audit;
mod choice;
mod driver;
mod error;
mod fallback;
mod guard_calls;
mod kind;
mod library;
mod load;
pub mod result;
mod slot;
mod table;
mod version;

pub use choice::{Choice, ParseChoiceError};
pub use driver::Driver;
pub use error::{Attempt, LoadError};
pub use kind::DriverKind;
pub use load::{SelectError, loaded, select, select_library};
pub use table::load;

/// The driver's types, constants and result codes.
pub use cuguard_sys as sys;
