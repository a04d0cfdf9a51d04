//! Typed kernels.

use std::fmt;
use std::marker::PhantomData;

use super::Scope;
use super::argument::list;
use super::signature::{Signature, SignatureArguments};
use crate::error::{Error, Result};
use crate::guards::{Function, LaunchConfig, Module};

/// A kernel with its parameters, whose launches are safe; see [`Module::kernel`].
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, LaunchConfig, Module, Stream};
/// use cuguard::scope::{Kernel, Len};
///
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
/// // SAFETY: saxpy(float a, const float *x, float *y, uint64_t count) computes y[i] += a * x[i] for all i < count, with
/// // any grid, and accesses nothing else.
/// let saxpy: Kernel<'_, (f32, &[f32], &mut [f32], Len<u64>)> = unsafe { module.kernel("saxpy")? };
///
/// let x = DeviceBuffer::from_slice(&context, &[1.0; 1000])?;
/// let mut y = DeviceBuffer::zeroed(&context, 1000)?;
/// let config = LaunchConfig::for_elements(saxpy.function(), x.len())?;
/// stream.scope(|s| {
///     let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
///     saxpy.launch(s, config, (2.0, &x, &mut y))
/// })?;
/// assert_eq!(y.to_vec()?, [2.0; 1000]);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct Kernel<'module, S> {
    function: Function<'module>,
    signature: PhantomData<fn(S)>,
}

/// A kernel with its parameters, whose launches are unsafe; see [`Module::kernel_unchecked`].
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, Module, Stream};
/// use cuguard::scope::UncheckedKernel;
///
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// let module = Module::from_ptx(&context, include_str!("../../kernels/pattern.ptx"))?;
/// let fill: UncheckedKernel<'_, (&mut [u32], u64, u32)> = module.kernel_unchecked("fill_pattern")?;
/// let mut words = DeviceBuffer::zeroed(&context, 1000)?;
/// stream.scope(|s| {
///     let mut words = s.bind_mut(&mut words)?;
///     // SAFETY: fill_pattern(words, count, seed) writes `count` words; there are 1000.
///     unsafe { fill.launch(s, (4, 256), (&mut words, 500, 7)) }
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct UncheckedKernel<'module, S> {
    function: Function<'module>,
    signature: PhantomData<fn(S)>,
}

macro_rules! common {
    ($name:ident) => {
        impl<S> Clone for $name<'_, S> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<S> Copy for $name<'_, S> {}

        impl<S: Signature> fmt::Debug for $name<'_, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let parameters = S::describe().join(", ");
                write!(
                    f,
                    "{}({}({parameters}))",
                    stringify!($name),
                    self.function.name()
                )
            }
        }

        impl<'module, S> $name<'module, S> {
            /// The kernel without its parameters, for [attributes](Function::attributes), [occupancy](Function::max_active_blocks)
            /// and [`LaunchConfig::for_elements`].
            #[must_use]
            pub fn function(&self) -> &Function<'module> {
                &self.function
            }
        }
    };
}

common!(Kernel);
common!(UncheckedKernel);

impl Module {
    /// Looks up a kernel and declares its parameters `S`, a tuple of [`Parameter`](super::Parameter)s. Its launches are safe.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, Error, Module};
    /// # use cuguard::scope::Len;
    /// # let context = Context::new(0)?;
    /// # let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
    /// // SAFETY: saxpy(float a, const float *x, float *y, uint64_t count) accesses `count` elements of x and y, with any
    /// // grid, and nothing else.
    /// let saxpy = unsafe { module.kernel::<(f32, &[f32], &mut [f32], Len<u64>)>("saxpy")? };
    ///
    /// // The driver knows the sizes of the parameters.
    /// // SAFETY: never launched.
    /// let error = unsafe { module.kernel::<(f32, &[f32], &mut [f32])>("saxpy") }.unwrap_err();
    /// assert!(matches!(error, Error::SignatureMismatch { .. }), "{error}");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The caller guarantees this of the kernel, and [`Kernel::launch`] is safe because of it:
    ///
    /// 1. Its parameters are those of `S`, in this order and with the same representation: for slices and references a
    ///    pointer, for lengths and values the type itself.
    /// 2. For every launch configuration that the driver accepts (a kernel can restrict it by `__launch_bounds__`, `.reqntid`
    ///    or `.maxntid`), for every value of its plain parameters, for slices of all lengths, and whatever the variables of its
    ///    module contain, which safe code writes by [`Module::global`]: it accesses only elements of its slices and what its
    ///    references refer to. Which lengths its slices have, it knows by [`Len`](super::Len), for
    ///    slices that all have that length, by [`LenOf`](super::LenOf), or not at all.
    /// 3. It only reads from `&[T]` and `&T`. Several of them may overlap. What it leaves in `&mut [T]` and `&mut T` is a valid
    ///    `T` in each element, also where its own threads write to the same element.
    /// 4. Apart from that it uses its own local, shared and heap memory, and variables of its module only in a way that is
    ///    free of data races while other launches of it, and launches of other kernels, run on other streams. It keeps no
    ///    address for a later kernel to use.
    ///
    /// That it terminates is not required: the end of the scope waits for it, without limit. It may trap, which breaks the
    /// context and is an error of a later call.
    ///
    /// For a kernel of which this does not hold, such as one whose plain parameters are sizes that it trusts, use
    /// [`kernel_unchecked`](Self::kernel_unchecked).
    ///
    /// # Errors
    ///
    /// [`Error::SignatureMismatch`] if number or sizes of the parameters differ from those in the module (from CUDA 12.4 on;
    /// older drivers cannot be asked); else as [`function`](Self::function).
    pub unsafe fn kernel<S: Signature>(&self, name: &str) -> Result<Kernel<'_, S>> {
        Ok(Kernel {
            function: declare::<S>("Module::kernel", self, name)?,
            signature: PhantomData,
        })
    }

    /// Looks up a kernel and declares its parameters `S`, as [`kernel`](Self::kernel) does. Its launches are unsafe, so that
    /// nothing is guaranteed here.
    ///
    /// # Errors
    ///
    /// As [`kernel`](Self::kernel).
    pub fn kernel_unchecked<S: Signature>(&self, name: &str) -> Result<UncheckedKernel<'_, S>> {
        Ok(UncheckedKernel {
            function: declare::<S>("Module::kernel_unchecked", self, name)?,
            signature: PhantomData,
        })
    }
}

/// Looks up a kernel, and compares its parameters with those declared.
fn declare<'module, S: Signature>(
    operation: &'static str,
    module: &'module Module,
    name: &str,
) -> Result<Function<'module>> {
    const { S::CHECK };
    let function = module.function_for(operation, name)?;
    let Some(found) = function.read_parameter_sizes(operation)? else {
        return Ok(function);
    };
    if *found == *S::SIZES {
        return Ok(function);
    }
    let declared = list("parameter", S::SIZES);
    Err(Error::SignatureMismatch {
        operation,
        kernel: name.to_owned(),
        declared: format!("{declared}: ({})", S::describe().join(", ")),
        found: list("parameter", &found),
    })
}

impl<'env, S> Kernel<'env, S> {
    /// Launches the kernel on the scope's stream, with an argument for each parameter that is not a length.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Error, Module, Stream};
    /// # use cuguard::scope::Len;
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// # let module = Module::from_ptx(&context, include_str!("../../kernels/saxpy.ptx"))?;
    /// # // SAFETY: saxpy(a, x, y, count) reads `count` values of x and writes as many of y.
    /// # let saxpy = unsafe { module.kernel::<(f32, &[f32], &mut [f32], Len<u64>)>("saxpy")? };
    /// let x = DeviceBuffer::from_slice(&context, &[1.0; 1000])?;
    /// let mut y = DeviceBuffer::zeroed(&context, 999)?;
    /// let error = stream.scope(|s| {
    ///     let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
    ///     saxpy.launch(s, (4, 256), (2.0, &x, &mut y))
    /// });
    /// assert_eq!(
    ///     error.unwrap_err().to_string(),
    ///     "Kernel::launch: parameter 2 has 999 elements, parameter 1 1000"
    /// );
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`] if slices have different lengths and the signature has a [`Len`](super::Len), or if the
    /// argument of a reference has not one element; [`Error::OutsideLimits`] if the integer of a length is too small; else
    /// as [`Scope::launch`].
    #[track_caller]
    pub fn launch<'a, 'scope>(
        &self,
        scope: &Scope<'scope, 'env>,
        config: impl Into<LaunchConfig>,
        arguments: S::Arguments,
    ) -> Result<()>
    where
        S: SignatureArguments<'a, 'scope>,
    {
        // SAFETY: as the declaration guarantees.
        unsafe {
            launch::<S>(
                "Kernel::launch",
                &self.function,
                scope,
                config.into(),
                arguments,
            )
        }
    }
}

impl<'env, S> UncheckedKernel<'env, S> {
    /// Launches the kernel on the scope's stream, with an argument for each parameter that is not a length.
    ///
    /// # Safety
    ///
    /// With these arguments and this configuration, the kernel does what [`Module::kernel`] lists.
    ///
    /// # Errors
    ///
    /// As [`Kernel::launch`].
    #[track_caller]
    pub unsafe fn launch<'a, 'scope>(
        &self,
        scope: &Scope<'scope, 'env>,
        config: impl Into<LaunchConfig>,
        arguments: S::Arguments,
    ) -> Result<()>
    where
        S: SignatureArguments<'a, 'scope>,
    {
        let (function, config) = (&self.function, config.into());
        // SAFETY: as the caller ensures.
        unsafe {
            launch::<S>(
                "UncheckedKernel::launch",
                function,
                scope,
                config,
                arguments,
            )
        }
    }
}

/// # Safety
///
/// The kernel's parameters are `S`, and with these arguments it does what [`Module::kernel`] lists.
#[track_caller]
#[inline]
unsafe fn launch<'a, 'scope, 'env, S: SignatureArguments<'a, 'scope>>(
    operation: &'static str,
    function: &Function<'env>,
    scope: &Scope<'scope, 'env>,
    config: LaunchConfig,
    arguments: S::Arguments,
) -> Result<()> {
    let site = std::panic::Location::caller();
    S::pass(
        operation,
        arguments,
        scope.end.beside.is_some(),
        |parameters, used| {
            scope.end.using(operation, used, || {
                // The declaration has compared number and sizes.
                // SAFETY: a pointer to each argument, which lives until this returns. What the arguments refer to is bound in
                // this scope: `'scope` is invariant. The caller ensures the rest.
                unsafe { scope.launch_raw(operation, function, &config, parameters, None, site) }
            })
        },
    )
}
