//! Modules: device code with its kernels and global variables.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cuguard_driver::result::{self, module};
use cuguard_driver::sys::{CUmodule, CUresult};

#[cfg(doc)]
use super::ModuleBuilder;
use super::function_info::FunctionTable;
use super::jit::{JitCall, JitOptions};
use crate::core::{self, ContextState, OwnedResource, Request};
use crate::error::{Error, Result};
use crate::guards::Context;
use crate::recovery;
use cuguard_registry::ResourceKind;

/// A module of device code, unloaded on drop.
///
/// ```no_run,standalone_crate
/// use cuguard::{Context, Module};
///
/// let context = Context::new(0)?;
/// let module = Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
/// let saxpy = module.function("saxpy")?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The simulated GPU executes PTX. A launch of a kernel from compiled code fails there with
/// [`Error::NoKernels`](crate::Error::NoKernels); with `CUGUARD_SIM=kernels=skip`, all launches are checked and skipped.
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, Module};
/// # let context = Context::new(0)?;
/// let module = Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
/// assert!(module.function("saxpy").is_ok() && module.function("saxpi").is_err());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
#[doc(alias("CudaModule", "cuModuleLoad"))]
pub struct Module {
    pub(in crate::guards) owned: OwnedResource,
    pub(super) functions: FunctionTable,
    info_log: Option<String>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owned.fmt_guard("Module", f)
    }
}

/// What a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolKind {
    Kernel,
    Variable,
}

impl SymbolKind {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Variable => "variable",
        }
    }
}

/// Reads a file of PTX.
pub(super) fn read_ptx(operation: &'static str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| file_error(operation, path, &error))
}

/// Converts the error of reading a file.
pub(super) fn file_error(operation: &'static str, path: &Path, error: &std::io::Error) -> Error {
    Error::File {
        operation,
        path: path.display().to_string(),
        reason: error.to_string(),
    }
}

/// PTX as the driver reads it; one NUL at its end is accepted, as compilers and C code leave it there. The driver would
/// parse text that starts with the ELF magic as a binary, and trust the sizes in it.
pub(super) fn ptx_to_c(operation: &'static str, text: &str) -> Result<CString> {
    let text = text.strip_suffix('\0').unwrap_or(text);
    let image = to_c(operation, text)?;
    match text.starts_with('\x7f') {
        true => to_c(operation, &format!("\n{text}")),
        false => Ok(image),
    }
}

/// Converts to a C string.
pub(super) fn to_c(operation: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        // The error shows only the line with the NUL: the text may be long.
        let position = error.nul_position();
        let (before, after) = text.split_at(position);
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = after.find('\n').unwrap_or(after.len());
        Error::InteriorNul {
            operation,
            text: format!("{}{}", &before[begin..], &after[..end]),
            position,
        }
    })
}

impl Module {
    /// # Safety
    ///
    /// The bytes are a complete and valid image.
    #[track_caller]
    pub(super) unsafe fn load(
        operation: &'static str,
        context: &Context,
        image: &[u8],
        options: &JitOptions,
    ) -> Result<Self> {
        let state = context.state();
        let request = Request::of_unknown_size(operation, Some(ResourceKind::Module));
        let (owned, info_log) = recovery::with_recovery(state, &request, || {
            let entered = state.enter(operation)?;
            let mut jit = JitCall::new(options);
            let (options, values) = jit.options();
            let owner = context.open().into();
            // SAFETY: the caller passes a valid image; the buffers of the logs live as long as `jit`.
            let loaded = unsafe { module::load_data_ex(image.as_ptr().cast(), options, values) };
            let loaded = jit.check(&entered, loaded)?;
            let owned = core::allocate(
                state,
                &request,
                ResourceKind::Module,
                "",
                || owner,
                || Ok(loaded.0 as u64),
            )?;
            Ok((owned, jit.info_log()))
        })?;
        Ok(Self {
            info_log,
            ..Self::from_owned(owned)
        })
    }

    pub(in crate::guards) fn from_owned(owned: OwnedResource) -> Self {
        Self {
            owned,
            functions: FunctionTable::default(),
            info_log: None,
        }
    }

    pub(super) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The driver's handle, for code that calls the driver directly. Valid until this guard is dropped or its
    /// context is closed.
    #[must_use]
    pub fn as_raw(&self) -> CUmodule {
        CUmodule(self.owned.address() as usize)
    }

    /// Names the module in reports.
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// What the driver's compiler reported, such as registers and spills of each kernel; `None` unless the module was loaded
    /// with [`keep_info_log`](ModuleBuilder::keep_info_log). Empty where the driver compiled nothing, or found the code in its
    /// cache of compiled code.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, Module};
    /// # let context = Context::new(0)?;
    /// let text = include_str!("../../../kernels/saxpy.ptx");
    /// assert!(Module::from_ptx(&context, text)?.info_log().is_none());
    /// assert!(Module::builder(&context).keep_info_log().from_ptx(text)?.info_log().is_some());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn info_log(&self) -> Option<&str> {
        self.info_log.as_deref()
    }

    /// Looks up a symbol of this kind.
    pub(super) fn look_up<R>(
        &self,
        operation: &'static str,
        kind: SymbolKind,
        name: &str,
        call: impl FnOnce(CUmodule, &CStr) -> result::Result<R>,
    ) -> Result<R> {
        let text = to_c(operation, name)?;
        let entered = self.state().enter(operation)?;
        let handle = self.as_raw();
        let found = call(handle, &text);
        let Err(error) = found else {
            return entered.check(found);
        };
        let (other, is_other) = match kind {
            // SAFETY: the module is alive.
            SymbolKind::Kernel => (SymbolKind::Variable, unsafe {
                module::global(handle, &text).is_ok()
            }),
            // SAFETY: the module is alive.
            SymbolKind::Variable => (SymbolKind::Kernel, unsafe {
                module::function(handle, &text).is_ok()
            }),
        };
        // A driver returns CUDA_ERROR_INVALID_VALUE for the name of a kernel as that of a variable, and for no name.
        let is_lookup = matches!(error.code, CUresult::NOT_FOUND | CUresult::INVALID_VALUE);
        match is_lookup {
            true if is_other => Err(Error::WrongSymbolKind {
                operation,
                name: name.to_owned(),
                expected: kind.name(),
                found: other.name(),
            }),
            true if error.code == CUresult::NOT_FOUND || name.is_empty() => {
                Err(Error::NoSuchSymbol {
                    operation,
                    name: name.to_owned(),
                })
            }
            _ => entered.check(found),
        }
    }

    /// Unloads the module and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("Module::close")
    }
}
