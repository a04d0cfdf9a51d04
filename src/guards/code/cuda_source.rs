//! Modules from CUDA C++.

use cuguard_driver::result::device;
use cuguard_driver::sys::{CUresult, device_attribute};
use cuguard_driver::{DriverKind, loaded};
use cuguard_nvrtc::{Code, Options, Ptx, compile, compile_for_device};

use super::Module;
use super::jit::JitOptions;
use super::module::ptx_to_c;
use crate::error::{Error, Result};
use crate::guards::Context;

impl Module {
    /// Compiles CUDA C++ for the device of the context with [NVRTC](crate::nvrtc), and loads it. Needs the feature `nvrtc`.
    ///
    /// Kernels have mangled names unless they are declared `extern "C"`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, Error, Module, nvrtc};
    ///
    /// let context = Context::new(0)?;
    /// let source = r#"
    ///     extern "C" __global__ void scale(float *x, unsigned n, float factor) {
    ///         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ///         if (i < n) x[i] *= factor;
    ///     }
    /// "#;
    /// match Module::from_cuda(&context, source) {
    ///     Ok(module) => assert!(module.function("scale").is_ok()),
    ///     Err(Error::Nvrtc(error @ nvrtc::Error::LibraryMissing { .. })) => println!("{error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Nvrtc`] with the compiler's log, or where there is no NVRTC; else as [`from_ptx`](Self::from_ptx).
    #[track_caller]
    pub fn from_cuda(context: &Context, source: &str) -> Result<Self> {
        Self::from_cuda_with(context, source, &Options::new())
    }

    /// The same with options of the compiler. An architecture among them is compiled for instead of the device's own; code for
    /// it must run on the device.
    ///
    /// NVRTC compiles to code for the device, or to PTX where it is older than the device
    /// ([`compile_for_device`](crate::nvrtc::compile_for_device)), and for the simulated GPU.
    ///
    /// # Errors
    ///
    /// As [`from_cuda`](Self::from_cuda); [`Error::Nvrtc`] if NVRTC does not compile for the architecture among the options, or
    /// its code does not run on the device.
    #[track_caller]
    pub fn from_cuda_with(context: &Context, source: &str, options: &Options) -> Result<Self> {
        const OPERATION: &str = "Module::from_cuda";
        let device = capability(OPERATION, context)?;
        let jit = JitOptions::default();
        let load_ptx = |ptx: &Ptx| {
            let image = ptx_to_c(OPERATION, ptx.as_str())?;
            // SAFETY: NUL-terminated text that does not start like a binary.
            unsafe { Self::load(OPERATION, context, image.as_bytes_with_nul(), &jit) }
        };
        match compile_for_device(source, options, device)? {
            Code::Cubin(cubin) => {
                // The simulated GPU executes PTX alone.
                if loaded().is_some_and(|driver| driver.kind() == DriverKind::Simulated) {
                    let (major, minor) = options.target().unwrap_or(device);
                    let ptx = compile(source, &options.clone().arch(major, minor))?;
                    let loaded = load_ptx(&ptx);
                    let code = loaded.as_ref().err().and_then(Error::code);
                    // A compiler that is newer than the driver: the code is loaded, and does not run.
                    if code != Some(CUresult::UNSUPPORTED_PTX_VERSION) {
                        return loaded;
                    }
                }
                // SAFETY: a complete image, as NVRTC made it.
                unsafe { Self::load(OPERATION, context, cubin.as_bytes(), &jit) }
            }
            Code::Ptx(ptx) => load_ptx(&ptx),
        }
    }
}

/// The compute capability of the context's device.
fn capability(operation: &'static str, context: &Context) -> Result<(u32, u32)> {
    let state = context.state();
    let entered = state.enter(operation)?;
    let get = |attribute| {
        let value = device::attribute(attribute, state.device as i32);
        entered.check(value).map(|value| value.max(0) as u32)
    };
    Ok((
        get(device_attribute::COMPUTE_CAPABILITY_MAJOR)?,
        get(device_attribute::COMPUTE_CAPABILITY_MINOR)?,
    ))
}
