//! Looking up functions by name. Apart from `function`, which the generated list uses.

use crate::function::{DefaultStream, FunctionInfo};
use crate::generated::functions::FUNCTIONS;

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
