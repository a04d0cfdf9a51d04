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

    /// The library lacks a function, so that it is no NVRTC or a very old one.
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

    /// A text for the compiler contains a NUL character.
    #[error("NVRTC: {what} has a NUL character in it")]
    InteriorNul {
        /// Which text, such as "the source".
        what: &'static str,
    },
}

/// A list in one line.
struct Tried<'a>(&'a [String]);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}
