//! Why something could not be compiled.

use std::fmt;

/// Why something could not be compiled.
///
/// ```
/// use cuguard_nvrtc::{Error, Options, compile};
///
/// match compile("__global__ void broken( {}", &Options::new()) {
///     Err(Error::Compile { log, .. }) => println!("{log}"),
///     Err(Error::LibraryMissing { .. }) => println!("no NVRTC here"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// NVRTC cannot be loaded.
    #[error(
        "NVRTC, libnvrtc.so, cannot be loaded; it comes with the CUDA toolkit and with the Python package \
         nvidia-cuda-nvrtc; LD_LIBRARY_PATH, CUDA_HOME and CUDA_PATH may name its folder; tried: {}", Tried(.tried)
    )]
    LibraryMissing {
        /// What was tried, each with the dynamic linker's message.
        tried: Vec<String>,
    },

    /// The library lacks a function, so that it is not NVRTC or a very old one.
    #[error("NVRTC: {library} has no function {function}")]
    FunctionMissing {
        /// The library.
        library: String,
        /// The function.
        function: &'static str,
    },

    /// The source does not compile.
    #[error("NVRTC: {name} does not compile: {reason}\n{log}")]
    Compile {
        /// The name of the source, see [`Options::name`](crate::Options::name).
        name: String,
        /// NVRTC's message.
        reason: String,
        /// The compiler's log.
        log: String,
    },

    /// Another call of NVRTC failed.
    #[error("NVRTC: {function} failed: {reason}")]
    CallFailed {
        /// NVRTC's function.
        function: &'static str,
        /// NVRTC's message.
        reason: String,
    },

    /// NVRTC does not compile for this architecture.
    #[error(
        "NVRTC: it does not compile for compute capability {major}.{minor}; it does for {}", Archs(.supported)
    )]
    UnsupportedArch {
        /// The major number that was asked for.
        major: u32,
        /// The minor number.
        minor: u32,
        /// Those that NVRTC compiles for, in rising order.
        supported: Vec<(u32, u32)>,
    },

    /// Code for the architecture that was asked for does not run on the device.
    #[error(
        "NVRTC: code for compute capability {}.{} does not run on a device of {}.{}: only on devices of {}.{} and later minor versions; leave Options::arch out, or compile to PTX", .arch.0, .arch.1, .device.0, .device.1, .arch.0, .arch.1
    )]
    OtherDevice {
        /// The architecture that was asked for: major and minor number.
        arch: (u32, u32),
        /// The compute capability of the device.
        device: (u32, u32),
    },

    /// The device is older than all that NVRTC compiles for.
    #[error(
        "NVRTC: it compiles for no device as old as compute capability {}.{}, only for {}; use the NVRTC of an older CUDA toolkit", .device.0, .device.1, Archs(.supported)
    )]
    DeviceTooOld {
        /// The compute capability of the device.
        device: (u32, u32),
        /// Those that NVRTC compiles for, in rising order.
        supported: Vec<(u32, u32)>,
    },

    /// A text for the compiler contains a NUL character.
    #[error("NVRTC: {what} has a NUL character in it")]
    InteriorNul {
        /// Which text, such as "the source".
        what: &'static str,
    },
}

/// Compute capabilities in one line.
struct Archs<'a>(&'a [(u32, u32)]);

impl fmt::Display for Archs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self
            .0
            .iter()
            .map(|(major, minor)| format!("{major}.{minor}"));
        f.write_str(&texts.collect::<Vec<_>>().join(", "))
    }
}

/// A list in one line.
struct Tried<'a>(&'a [String]);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}
