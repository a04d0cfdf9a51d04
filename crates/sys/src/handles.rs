//! Handles of the driver's objects.

macro_rules! handles {
    ($($name:ident;)*) => {$(
        #[doc = concat!("The driver's `", stringify!($name), "`.")]
        ///
        /// An opaque handle: a pointer for the driver, a number for all other code, so that it can be sent to
        /// any thread and compared.
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl $name {
            /// The null handle.
            pub const NULL: $name = $name(0);

            /// Whether this is the null handle.
            #[must_use]
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }
        }

        /// Handles are pointers to incomplete types in other bindings, such as `cust_raw`.
        impl<T> From<*mut T> for $name {
            fn from(handle: *mut T) -> Self {
                Self(handle.expose_provenance())
            }
        }
    )*};
}
pub(crate) use handles;

use crate::CUstream;

impl CUstream {
    /// `CU_STREAM_LEGACY`: the legacy default stream by its explicit name.
    pub const LEGACY: CUstream = CUstream(1);
    /// `CU_STREAM_PER_THREAD`: the calling thread's default stream.
    pub const PER_THREAD: CUstream = CUstream(2);
}
