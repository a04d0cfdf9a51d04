//! What is known about a driver function besides its signature.

use crate::FUNCTIONS;

/// What null means where a function takes a stream, or which stream a synchronous function uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefaultStream {
    /// The legacy default stream of the current context.
    Legacy,
    /// The calling thread's default stream: the functions that end in `_ptds` or `_ptsz`.
    PerThread,
}

/// An exported function of the driver.
///
/// A function whose signature or behaviour changed has several versions, each exported under a name of its own:
/// `cuCtxCreate`, `cuCtxCreate_v2`, `_v3`, `_v4`. The header defines the plain name as the newest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionInfo {
    /// The exported name, as in `cuMemcpyHtoDAsync_v2_ptsz`.
    pub name: &'static str,
    /// The name in the documentation, without version: `cuMemcpyHtoDAsync`.
    pub base: &'static str,
    /// The number of the version, from 1.
    pub version: u32,
    /// The CUDA version that introduced it, as `cuDriverGetVersion` counts: 12050 is CUDA 12.5.
    pub since: i32,
    /// Which default stream it uses.
    pub default_stream: DefaultStream,
}

pub(crate) const fn function(
    name: &'static str,
    base: &'static str,
    version: u32,
    since: i32,
    default_stream: DefaultStream,
) -> FunctionInfo {
    FunctionInfo {
        name,
        base,
        version,
        since,
        default_stream,
    }
}

impl FunctionInfo {
    /// The function with this exported name.
    ///
    /// ```
    /// use cuguard_sys::FunctionInfo;
    ///
    /// assert_eq!(FunctionInfo::named("cuCtxCreate_v4").unwrap().since, 12050);
    /// assert!(FunctionInfo::named("cuNoSuchThing").is_none());
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<&'static FunctionInfo> {
        FUNCTIONS.iter().find(|function| function.name == name)
    }

    /// All versions of the function with this name, oldest first.
    ///
    /// ```
    /// use cuguard_sys::{DefaultStream, FunctionInfo};
    ///
    /// let names: Vec<_> = FunctionInfo::versions("cuCtxCreate", DefaultStream::Legacy).map(|f| f.name).collect();
    /// assert_eq!(names, ["cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"]);
    /// ```
    pub fn versions(
        base: &str,
        default_stream: DefaultStream,
    ) -> impl Iterator<Item = &'static FunctionInfo> {
        FUNCTIONS.iter().filter(move |function| {
            function.base == base && function.default_stream == default_stream
        })
    }
}
