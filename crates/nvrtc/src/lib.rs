//! CUDA C++, compiled while the program runs with NVRTC, NVIDIA's run-time compiler.
//!
//! NVRTC, `libnvrtc.so`, comes with the CUDA toolkit and with the Python package `nvidia-cuda-nvrtc`. It is loaded on
//! first use, never linked: a program with this crate starts everywhere, and where there is no NVRTC the result is an
//! [`Error`] that lists what was tried. It needs no GPU and no driver.
//!
//! ```
//! use cuguard_nvrtc::{Error, Options, compile};
//!
//! let source = r#"
//!     extern "C" __global__ void scale(float *x, unsigned n) {
//!         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!         if (i < n) x[i] *= FACTOR;
//!     }
//! "#;
//! let options = Options::new().arch(9, 0).define_value("FACTOR", "2.0f");
//! match compile(source, &options) {
//!     Ok(ptx) => assert!(ptx.as_str().contains(".entry scale")),
//!     Err(error @ Error::LibraryMissing { .. }) => println!("{error}"),
//!     Err(error) => panic!("{error}"),
//! }
//! ```
//!
//! # Where it is searched
//!
//! `libnvrtc.so` of the versions 13, 12 and 11 as the dynamic linker finds it (`LD_LIBRARY_PATH`, its cache, its default
//! folders); then in `lib64` and `lib` of the folders that `CUDA_HOME` and `CUDA_PATH` name; then in `/usr/local/cuda` and
//! `/opt/cuda`. The first that opens is used until the process ends.
//!
//! # PTX and drivers
//!
//! A driver compiles PTX of the CUDA version that it was made for and of older ones. Where NVRTC is newer than the driver, it
//! fails with `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`; [`compile_to_cubin`] for the device's own architecture avoids that.

mod compile;
mod error;
mod library;
mod options;

pub use compile::{Code, Cubin, Ptx, compile, compile_for_device, compile_to_cubin};
pub use error::Error;
pub use library::{supported_archs, version};
pub use options::Options;
