//! Kernel launches within a scope.

use std::ffi::c_void;
use std::panic::Location;
use std::ptr;

use cuguard_driver::result::function as driver;
use cuguard_driver::sys::{CUlaunchConfig, CUresult};
use cuguard_driver::{DriverKind, loaded};

use super::Scope;
use super::argument::{self, KernelArgument};
use crate::core::{Request, same_context};
use crate::error::{Error, Result};
use crate::guards::{Function, LaunchConfig};
use crate::recovery;

/// As many arguments are passed without an allocation.
const INLINE: usize = 32;

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Launches a kernel. The configuration is a pair of grid and block, each a number or a tuple of up to three, or a
    /// [`LaunchConfig`] with more.
    ///
    /// ```no_run,standalone_crate
    /// # use cuguard::{Context, DeviceBuffer, Module, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let module = Module::from_ptx(&context, include_str!("../../kernels/pattern.ptx"))?;
    /// let fill = module.function("fill_pattern")?;
    /// let mut words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
    /// stream.scope(|s| {
    ///     let words = s.bind_mut(&mut words)?;
    ///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
    ///     unsafe { s.launch(&fill, (4, 256), &[&words, &(words.len() as u64), &7_u32]) }
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// It queries nothing and allocates nothing on the host for up to 32 arguments: the kernel's limits are read at its
    /// first launch, and the sizes of its parameters, with which the arguments of each launch are compared. Where a launch
    /// needs more than 48 KiB of dynamic shared memory, this allows it for the kernel, once.
    ///
    /// [`Module::kernel`](crate::Module::kernel) declares a kernel's parameters, for launches that are safe.
    ///
    /// # Safety
    ///
    /// None of this is checked:
    ///
    /// - The arguments match the kernel's parameters in order and type. Number and sizes are compared by the launch, with a
    ///   driver of CUDA 12.4 or later; an older one does not know them, and they have to match too.
    /// - The kernel stays within the memory that it is passed. It only reads what it is passed as
    ///   [`DeviceRef`](crate::scope::DeviceRef) or [`PeerRef`](crate::scope::PeerRef): what is bound by [`bind`](Scope::bind), and
    ///   `&*x` of what is bound by [`bind_mut`](Scope::bind_mut). It leaves only valid values in what it is passed as
    ///   [`DeviceMut`](crate::scope::DeviceMut) or [`PeerMut`](crate::scope::PeerMut).
    /// - Memory that it reaches in other ways, such as through addresses in memory and global variables of the module, is
    ///   valid and free of conflicting accesses until the scope ends; in a [capture](crate::Stream::capture), while the
    ///   graph or an executable of it exists.
    /// - It does not depend on uninitialized memory.
    /// - In a [scope over several streams](crate::Stream::scope_over), no other thread uses what is passed as
    ///   [`DeviceMut`](crate::scope::DeviceMut) while this call enqueues the kernel.
    /// - If the launch lacks memory, [callbacks](crate::Context::release_on_oom) run before it is retried: they free
    ///   nothing that the kernel uses.
    ///
    /// # Errors
    ///
    /// [`Error::ArgumentMismatch`] if number or sizes of the arguments are not those of the kernel's parameters,
    /// [`Error::OutsideLimits`] for a grid or block of 0 or beyond the limits of the device or the kernel, for shared memory
    /// that a block cannot have, and for a cooperative launch or a cluster that does not fit on the device,
    /// [`Error::UnsupportedLaunch`], [`Error::WrongContext`], [`Error::ContextClosed`], [`Error::NoKernels`] on the
    /// simulated GPU for compiled code (with `CUGUARD_SIM=kernels=skip` it checks and skips the launch instead), [`Error::OutOfMemory`], or
    /// any other driver error. An error of the kernel itself is returned by a later call that waits for it.
    #[track_caller]
    #[inline]
    #[doc(alias("launch_kernel", "launch_builder", "cuLaunchKernel"))]
    pub unsafe fn launch(
        &self,
        function: &Function<'env>,
        config: impl Into<LaunchConfig>,
        arguments: &[&dyn KernelArgument<'scope>],
    ) -> Result<()> {
        const OPERATION: &str = "Scope::launch";
        let (mut inline, many): ([*mut c_void; INLINE], Vec<_>);
        let parameters = if arguments.len() <= INLINE {
            inline = [ptr::null_mut(); INLINE];
            for (parameter, argument) in inline.iter_mut().zip(arguments) {
                *parameter = argument.parameter().cast_mut();
            }
            &inline[..arguments.len()]
        } else {
            let parameters = arguments.iter().map(|one| one.parameter().cast_mut());
            many = parameters.collect();
            &many[..]
        };
        let used: Vec<_> = match &self.end.beside {
            Some(_) => arguments.iter().filter_map(|one| one.used()).collect(),
            None => Vec::new(),
        };
        let (config, site) = (config.into(), Location::caller());
        self.end.using(OPERATION, &used, || {
            // SAFETY: as the caller ensures; each parameter points to an argument, which is borrowed.
            unsafe {
                self.launch_raw(
                    OPERATION,
                    function,
                    &config,
                    parameters,
                    Some(arguments),
                    site,
                )
            }
        })
    }

    /// The same with a pointer to each argument. `arguments` are compared with the kernel's parameters in number and size.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch); the pointers are valid during the call.
    pub(super) unsafe fn launch_raw(
        &self,
        operation: &'static str,
        function: &Function<'env>,
        config: &LaunchConfig,
        parameters: &[*mut c_void],
        arguments: Option<&[&dyn KernelArgument<'scope>]>,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let module_of = ("the function's module", function.state());
        same_context::check(
            operation,
            ("the scope's stream", self.core().state()),
            module_of,
        )?;
        // A kernel may need local memory, and its code may be loaded lazily by this call. CUDA_ERROR_OUT_OF_MEMORY is never
        // the error of earlier work, so nothing was launched and the launch can be retried, after what the stream has by
        // then. Recovery is safe within a scope: bindings stay borrowed whatever callbacks drop, the wait for frees is
        // bounded, and the scope waits even if a callback panics or closes the context.
        let request = Request {
            operation,
            kind: None,
            bytes: 0,
            site,
        };
        let launched = recovery::with_recovery(self.core().state(), &request, || {
            function.prepare(operation, config)?;
            if let Some(arguments) = arguments {
                argument::check(operation, function, arguments)?;
            }
            self.try_enqueue(operation, |stream| {
                // SAFETY: the function's module is borrowed until the stream is idle. The driver reads the parameters during
                // the call; the caller ensures that they are the kernel's.
                unsafe {
                    if config.cooperative || config.cluster.is_some() {
                        let launch = |own: &CUlaunchConfig| {
                            driver::launch_kernel_ex(own, function.as_raw(), parameters)
                        };
                        config.with_attributes(stream, launch)
                    } else {
                        driver::launch_kernel(
                            function.as_raw(),
                            config.grid,
                            config.block,
                            config.shared_bytes,
                            stream,
                            parameters,
                        )
                    }
                }
            })
        });
        launched.map_err(|error| explain(operation, function, config, error))
    }
}

/// The driver's error of a launch, in words where they are known: what the simulated GPU returns, and what does not fit.
#[cold]
fn explain(
    operation: &'static str,
    function: &Function<'_>,
    config: &LaunchConfig,
    error: Error,
) -> Error {
    let simulated = || loaded().is_some_and(|driver| driver.kind() == DriverKind::Simulated);
    let (what, value, most) = match error.code() {
        Some(CUresult::NOT_SUPPORTED) if simulated() => return Error::NoKernels { operation },
        Some(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE) => {
            let threads = config.threads() as u32;
            let most = function.max_cooperative_blocks(threads, config.shared_bytes);
            let what = "the number of blocks of a cooperative launch";
            (what, config.blocks(), most)
        }
        Some(CUresult::INVALID_CLUSTER_SIZE) => {
            let most = function.max_cluster_blocks(config);
            let what = "the number of blocks per cluster";
            (what, config.cluster_blocks(), most)
        }
        _ => return error,
    };
    match most {
        Ok(most) if value > u64::from(most) => Error::OutsideLimits {
            operation,
            subject: function.name().to_owned(),
            what,
            value,
            least: 1,
            most: most.into(),
        },
        _ => error,
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex, MutexGuard};

    use cuguard_driver::sys::CUresult;
    use cuguard_driver::{Choice, DriverKind, load, select};
    use cuguard_sim::{Fault, clear_faults, inject};
    use cuguard_testing::{Requirement, not_run};

    use crate::{Context, DeviceBuffer, Error, Module, Result, Stream};

    use crate::oom::{OutOfMemory, RecoveryStep};

    /// One test at a time, because faults are global; none on a real GPU.
    fn turn() -> Option<MutexGuard<'static, ()>> {
        static LOCK: Mutex<()> = Mutex::new(());
        let turn = cuguard_sync::lock(&LOCK);
        let _ = select(Choice::Sim);
        if load().expect("a driver").kind() == DriverKind::Simulated {
            return Some(turn);
        }
        not_run(Requirement::SimulatedGpu, "");
        None
    }

    fn refuse() -> Fault {
        Fault::nth_call_of("cuLaunchKernel", 1).returning(CUresult::OUT_OF_MEMORY)
    }

    /// A module with a kernel that has no parameters.
    fn module(context: &Context) -> Result<Module> {
        let text =
            ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";
        Module::from_ptx(context, text)
    }

    /// Launches a kernel of no arguments.
    fn launch(stream: &Stream, module: &Module) -> Result<()> {
        let function = module.function("nothing")?;
        // SAFETY: the kernel takes nothing.
        stream.scope(|s| unsafe { s.launch(&function, (1, 1), &[]) })
    }

    fn why(result: Result<()>) -> OutOfMemory {
        match result {
            Err(Error::OutOfMemory(why)) => *why,
            other => panic!("not out of memory: {other:?}"),
        }
    }

    #[test]
    fn a_launch_that_finds_too_little_memory_says_why() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, module(&context)?);
        inject(refuse().sticky()).expect("there is such a function");
        let result = launch(&stream, &module);
        clear_faults();
        let why = why(result);
        assert_eq!(why.request.operation, "Scope::launch");
        assert_eq!((why.request.kind, why.request.bytes), (None, None));
        assert_eq!(why.request.function, Some("cuLaunchKernel"));
        assert_eq!(why.request.code, 2);
        let site = why.request.site.expect("a line");
        assert!(site.file.ends_with("launch.rs"), "{site}");
        let steps: Vec<_> = why.recovery.iter().map(|result| result.step).collect();
        assert_eq!(
            steps,
            [
                RecoveryStep::Callbacks,
                RecoveryStep::Wait,
                RecoveryStep::Trim
            ]
        );
        let text = why.to_text();
        assert!(text.contains("  - let the kernel need less"), "{text}");
        assert!(!text.contains("pieces"), "{text}");
        drop((stream, module));
        assert_eq!(context.live_count(), 0);
        context.close()
    }

    #[test]
    fn a_launch_is_retried_after_a_callback() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, module(&context)?);
        let cache = Arc::new(Mutex::new(Some(DeviceBuffer::<u8>::zeroed(&context, 100)?)));
        let callback = context.release_on_oom({
            let cache = cache.clone();
            move |bytes| {
                assert_eq!(bytes, u64::MAX, "the size is unknown");
                drop(cache.lock().unwrap().take());
            }
        });
        let fault = inject(refuse()).expect("there is such a function");
        launch(&stream, &module)?;
        assert_eq!(fault.fired(), 1);
        assert!(cache.lock().unwrap().is_none());
        drop((callback, stream, module));
        assert_eq!(context.live_count(), 0);
        context.close()
    }

    /// A callback that panics, and one that closes the context, within the scope.
    #[test]
    fn callbacks_may_do_anything_within_a_scope() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, module(&context)?);
        let callback = context.release_on_oom(|_| panic!("in a callback"));
        inject(refuse()).expect("there is such a function");
        let caught = catch_unwind(AssertUnwindSafe(|| launch(&stream, &module)));
        assert!(caught.is_err() && stream.is_idle()?);
        drop(callback);
        let slot = Arc::new(Mutex::new(None::<Context>));
        let callback = context.release_on_oom({
            let slot = slot.clone();
            move |_| {
                if let Some(context) = slot.lock().unwrap().take() {
                    context.close().unwrap();
                }
            }
        });
        *slot.lock().unwrap() = Some(context);
        inject(refuse()).expect("there is such a function");
        let error = launch(&stream, &module).unwrap_err();
        assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
        drop(callback);
        Ok(())
    }

    /// `cust`'s macro accepts this crate's function, stream and memory.
    #[test]
    fn the_launch_macro_of_cust_reaches_the_driver() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, module(&context)?);
        let (function, buffer) = (
            module.function("nothing")?,
            DeviceBuffer::from_slice(&context, &[1_u32, 2, 3])?,
        );
        let calls = || cuguard_sim::counters().calls["cuLaunchKernel"];
        let launch = || -> Result<()> {
            let _bound = context.make_current()?;
            // SAFETY: the kernel reads no argument.
            let launched = unsafe {
                cust::launch!(function<<<1, 32, 0, stream>>>(buffer.as_device_ptr(), 3_u64))
            };
            Ok(launched?)
        };
        launch()?;
        let before = calls();
        launch()?;
        assert_eq!(calls(), before + 1);
        context.close()?;
        let attribute = cust::function::FunctionAttribute::NumRegisters;
        let closed = catch_unwind(AssertUnwindSafe(|| {
            function.get_attribute(attribute).is_ok()
        }));
        let words = closed.unwrap_err();
        let words = words.downcast_ref::<String>().map(String::as_str);
        assert_eq!(words, Some("Function::deref: the context was closed"));
        Ok(())
    }
}
