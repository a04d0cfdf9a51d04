//! What is known about a driver function besides its signature.

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
