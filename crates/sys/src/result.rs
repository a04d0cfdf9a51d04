//! The driver's result codes.

use std::ffi::CStr;
use std::fmt;

/// The result code of a driver function: a number, not a Rust enumeration, because a driver newer than this crate
/// may return a number that this crate has no name for.
///
/// ```
/// use cuguard_sys::CUresult;
///
/// assert_eq!(CUresult(2), CUresult::OUT_OF_MEMORY);
/// assert_eq!(CUresult(2).name(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
/// assert_eq!(CUresult(2).to_string(), "CUDA_ERROR_OUT_OF_MEMORY (2)");
/// assert_eq!(CUresult(54321).to_string(), "CUDA error 54321");
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "a failed driver call is visible only in its code"]
pub struct CUresult(pub u32);

/// Called in constants alone: a text with a NUL inside does not compile.
pub(crate) const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a text has a NUL inside"),
    }
}

macro_rules! codes {
    ($($constant:ident = $code:literal, $name:literal, $text:literal;)*) => {
        impl $crate::CUresult {
            $(
                #[doc = concat!("`", $name, "`: ", $text, ".")]
                pub const $constant: $crate::CUresult = $crate::CUresult($code);
            )*

            /// All codes that have a name, in numerical order.
            ///
            /// ```
            /// use cuguard_sys::CUresult;
            ///
            /// assert!(CUresult::ALL.contains(&CUresult::INVALID_VALUE));
            /// assert!(CUresult::ALL.is_sorted());
            /// ```
            pub const ALL: &[$crate::CUresult] = &[$($crate::CUresult($code)),*];

            /// The code's name and description.
            pub(crate) const fn texts(self) -> Option<(&'static std::ffi::CStr, &'static std::ffi::CStr)> {
                match self.0 {
                    $($code => Some(const { ($crate::result::c_str(concat!($name, "\0")), $crate::result::c_str(concat!($text, "\0"))) }),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use codes;

impl CUresult {
    /// Whether this is `CUDA_SUCCESS`.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert!(CUresult::SUCCESS.is_success());
    /// assert!(!CUresult::NOT_READY.is_success());
    /// ```
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// `Ok` for `CUDA_SUCCESS`, the code itself as the error for everything else.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert_eq!(CUresult::SUCCESS.ok(), Ok(()));
    /// assert_eq!(CUresult::NOT_READY.ok(), Err(CUresult::NOT_READY));
    /// ```
    ///
    /// # Errors
    ///
    /// Every code but `CUDA_SUCCESS`.
    pub const fn ok(self) -> Result<(), CUresult> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// Whether the code means that the device stopped with an error, as after an access to an invalid address. The
    /// context is unusable then: every later call fails with the same code, and only a new process recovers.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert!(CUresult::ILLEGAL_ADDRESS.breaks_context());
    /// assert!(!CUresult::OUT_OF_MEMORY.breaks_context());
    /// ```
    #[must_use]
    pub const fn breaks_context(self) -> bool {
        matches!(
            self,
            Self::ECC_UNCORRECTABLE
                | Self::NVLINK_UNCORRECTABLE
                | Self::ILLEGAL_ADDRESS
                | Self::LAUNCH_TIMEOUT
                | Self::ASSERT
                | Self::HARDWARE_STACK_ERROR
                | Self::ILLEGAL_INSTRUCTION
                | Self::MISALIGNED_ADDRESS
                | Self::INVALID_ADDRESS_SPACE
                | Self::INVALID_PC
                | Self::LAUNCH_FAILED
        )
    }

    /// Whether the code means that no work of the context is in flight, and none will be: the context broke, other code
    /// destroyed it or reset the device, the driver has shut down, or this is a forked child.
    ///
    /// `CUDA_ERROR_UNKNOWN` does not mean that.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert!(CUresult::CONTEXT_IS_DESTROYED.ends_all_work());
    /// assert!(!CUresult::UNKNOWN.ends_all_work());
    /// ```
    #[must_use]
    pub const fn ends_all_work(self) -> bool {
        self.breaks_context()
            || matches!(
                self,
                Self::CONTEXT_IS_DESTROYED
                    | Self::INVALID_CONTEXT
                    | Self::INVALID_HANDLE
                    | Self::DEINITIALIZED
                    | Self::NOT_INITIALIZED
            )
    }

    /// The name in the driver's header; `None` for a number that this crate does not know.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert_eq!(CUresult(700).name(), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
    /// assert_eq!(CUresult(54321).name(), None);
    /// ```
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.name_c()?.to_str().ok()
    }

    /// The driver's description of the code; `None` for a number that this crate does not know.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert_eq!(CUresult::OUT_OF_MEMORY.text(), Some("out of memory"));
    /// ```
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        self.text_c()?.to_str().ok()
    }

    /// [`name`](Self::name) for C.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert_eq!(CUresult::SUCCESS.name_c(), Some(c"CUDA_SUCCESS"));
    /// ```
    #[must_use]
    pub fn name_c(self) -> Option<&'static CStr> {
        self.texts().map(|(name, _)| name)
    }

    /// [`text`](Self::text) for C.
    ///
    /// ```
    /// # use cuguard_sys::CUresult;
    /// assert_eq!(CUresult::SUCCESS.text_c(), Some(c"no error"));
    /// ```
    #[must_use]
    pub fn text_c(self) -> Option<&'static CStr> {
        self.texts().map(|(_, text)| text)
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "CUDA error {}", self.0),
        }
    }
}

impl fmt::Debug for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CUresult {}
