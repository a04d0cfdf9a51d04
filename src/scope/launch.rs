//! Kernel launches within a scope.

use std::ffi::c_void;
use std::mem;
use std::ops::Deref;
use std::ptr;

use cuguard_driver::result::module;
use cuguard_driver::sys::CUfunction;
use cust::function::{BlockSize, GridSize};
use cust::memory::DeviceCopy;

use super::Scope;
use super::bound::{DeviceMut, DeviceRef};
use crate::core::{Request, same_context};
use crate::error::{Error, Result};
use crate::guards::Function;
use crate::recovery;

/// What a kernel can be given: a value that can be copied to the device, or memory that the scope
/// has bound, which the kernel gets as a pointer.
///
/// ```no_run
/// use cuguard::{Context, DeviceBuffer, Module, Stream};
/// use cuguard::scope::KernelArgument;
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let module = Module::from_ptx(&context, include_str!("../kernels/pattern.ptx"))?;
/// let fill = module.function("fill_pattern")?;
/// let mut words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
/// stream.scope(|s| {
///     let words = s.bind_mut(&mut words)?;
///     let (count, seed) = (words.len() as u64, 7_u32);
///     let arguments: [&dyn KernelArgument<'_>; 3] = [&words, &count, &seed];
///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
///     unsafe { s.launch(&fill, 4, 256, 0, &arguments) }
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// # Safety
///
/// The pointer leads to what the driver copies as the kernel's parameter.
pub unsafe trait KernelArgument<'scope> {
    #[doc(hidden)]
    fn parameter(&self) -> *const c_void;
}

// SAFETY: a plain value is its own parameter.
unsafe impl<T: DeviceCopy> KernelArgument<'_> for T {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self).cast()
    }
}

// SAFETY: an address on the device is a pointer there.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceRef<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

// SAFETY: an address on the device is a pointer there.
unsafe impl<'scope, T> KernelArgument<'scope> for DeviceMut<'scope, T> {
    fn parameter(&self) -> *const c_void {
        ptr::from_ref(self.address()).cast()
    }
}

// What `deref` below relies on.
const _: () = assert!(
    mem::size_of::<cust::function::Function<'_>>() == mem::size_of::<CUfunction>()
        && mem::align_of::<cust::function::Function<'_>>() == mem::align_of::<CUfunction>(),
    "cust's Function is more than its handle"
);

/// The kernel as `cust` has it, for its attributes and for `cust::launch!`, which also takes
/// this crate's [`Stream`](crate::Stream). The context must be [bound](crate::Context::make_current). Such a
/// launch borrows nothing: all that the kernel uses must live until it has run.
///
/// ```no_run
/// use cuguard::{Context, DeviceBuffer, Module, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let module = Module::from_ptx(&context, include_str!("../kernels/pattern.ptx"))?;
/// let fill = module.function("fill_pattern")?;
/// let words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
/// let _bound = context.make_current()?;
/// // SAFETY: fill_pattern(words, count, seed) writes `count` words, and they live until then.
/// unsafe { cust::launch!(fill<<<4, 256, 0, stream>>>(words.as_device_ptr(), 1000_u64, 7_u32))? };
/// stream.synchronize()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The macro's other form, `launch!(module.fill_pattern<<<…>>>(…))`, looks the kernel up in a module of
/// `cust`'s own and does not take a [`Module`](crate::Module).
impl<'module> Deref for Function<'module> {
    type Target = cust::function::Function<'module>;

    /// # Panics
    ///
    /// If the context was closed: the handle is not valid any more. If the process is ending: the
    /// driver may be gone.
    #[track_caller]
    fn deref(&self) -> &cust::function::Function<'module> {
        let entered = self.state().enter("Function::deref");
        if let Err(error @ (Error::ContextClosed { .. } | Error::ProcessEnding { .. })) = entered {
            panic!("{error}");
        }
        let handle: *const CUfunction = self.handle();
        // SAFETY: `cust`'s `Function` is a struct with the handle, a pointer that is only passed to
        // the driver, as its one field with a size; the assertion above says that there is room for
        // nothing else. So it has the handle's layout. It has no `Drop`, and is borrowed as long.
        unsafe { &*handle.cast() }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Launches a kernel: `grid` blocks of `block` threads, each a number or a tuple of up to
    /// three, with `shared_bytes` of shared memory for each block beyond what the kernel has by
    /// itself.
    ///
    /// ```no_run
    /// # use cuguard::{Context, DeviceBuffer, Module, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let module = Module::from_ptx(&context, include_str!("../kernels/pattern.ptx"))?;
    /// let fill = module.function("fill_pattern")?;
    /// let mut words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
    /// stream.scope(|s| {
    ///     let words = s.bind_mut(&mut words)?;
    ///     // SAFETY: fill_pattern(words, count, seed) writes `count` words.
    ///     unsafe { s.launch(&fill, 4, 256, 0, &[&words, &(words.len() as u64), &7_u32]) }
    /// })?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The driver checks none of this:
    ///
    /// - The arguments are those that the kernel takes, in number, order and size.
    /// - The kernel stays within the memory that it is given. It only reads what is bound by
    ///   [`bind`](Scope::bind), and leaves only valid values in what is bound by
    ///   [`bind_mut`](Scope::bind_mut).
    /// - Memory that it reaches by other ways, such as addresses among the values and the module's
    ///   variables, is valid, and nobody else uses it in a way that conflicts, until the scope
    ///   ends.
    /// - It does not count on values in memory that nobody wrote.
    ///
    /// Where there is too little memory for the launch,
    /// [callbacks](crate::Context::release_on_oom) are called before it is tried again: what they
    /// let go of is none of this.
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`](crate::Error::WrongContext),
    /// [`Error::ContextClosed`](crate::Error::ContextClosed),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or what the driver says. What goes wrong
    /// within the kernel is told later, by whatever waits for it.
    #[track_caller]
    pub unsafe fn launch(
        &self,
        function: &Function<'scope>,
        grid: impl Into<GridSize>,
        block: impl Into<BlockSize>,
        shared_bytes: u32,
        arguments: &[&dyn KernelArgument<'scope>],
    ) -> Result<()> {
        const OPERATION: &str = "Scope::launch";
        let module_of = ("the function's module", function.state());
        same_context::check(
            OPERATION,
            ("the scope's stream", self.core().state()),
            module_of,
        )?;
        let (grid, block) = (grid.into(), block.into());
        let parameters: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| argument.parameter().cast_mut())
            .collect();
        let (grid, block) = ([grid.x, grid.y, grid.z], [block.x, block.y, block.z]);
        // A kernel may need local memory, and its code may be loaded only now. Code 2 is never what
        // became of earlier work, so the launch has done nothing and can be asked for again, behind
        // what the stream has by then. Within a scope that is as good as for an allocation there:
        // what is bound stays borrowed, whatever callbacks let go of; the wait has its end; the
        // scope waits also where a callback panics, or closes the context.
        let request = Request::of_unknown_size(OPERATION, None);
        recovery::satisfy(self.core().state(), &request, || {
            let mut parameters = parameters.clone();
            self.ask(OPERATION, |stream| {
                let function = function.as_raw();
                // SAFETY: the function's module is borrowed until the stream has been waited for. The parameters are
                // read, and only read, during the call; the caller vouches that they are the kernel's.
                unsafe {
                    module::launch_kernel(
                        function,
                        grid,
                        block,
                        shared_bytes,
                        stream,
                        &mut parameters,
                    )
                }
            })
        })
    }
}

/// Here, as only here there is a kernel that the simulated GPU can refuse.
#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use cuguard_driver::sys::CUresult;
    use cuguard_driver::{Choice, DriverKind, load, select};
    use cuguard_sim::{Fault, clear_faults, inject};

    use crate::{Context, DeviceBuffer, Error, Module, Result, Stream};

    use crate::oom::{OutOfMemory, RecoveryStep};

    /// One test at a time, as faults are everybody's; none where the GPU is a real one.
    fn turn() -> Option<MutexGuard<'static, ()>> {
        static LOCK: Mutex<()> = Mutex::new(());
        let turn = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = select(Choice::Sim);
        let simulated = load().expect("a driver").kind() == DriverKind::Simulated;
        simulated.then_some(turn)
    }

    fn refuse() -> Fault {
        Fault::nth_call_of("cuLaunchKernel", 1).returning(CUresult::OUT_OF_MEMORY)
    }

    /// Launches a kernel of no arguments.
    fn launch(stream: &Stream, module: &Module) -> Result<()> {
        let function = module.pretended_function();
        // SAFETY: the simulated GPU runs no kernels.
        stream.scope(|s| unsafe { s.launch(&function, 1, 1, 0, &[]) })
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
        let (stream, module) = (Stream::new(&context)?, Module::pretended(&context));
        inject(refuse().sticky()).expect("there is such a function");
        let result = launch(&stream, &module);
        clear_faults();
        let why = why(result);
        assert_eq!(why.asked.operation, "Scope::launch");
        assert_eq!((why.asked.kind, why.asked.bytes), (None, None));
        assert_eq!(why.asked.function, Some("cuLaunchKernel"));
        assert_eq!(why.asked.code, 2);
        let site = why.asked.site.expect("a line");
        assert!(site.file.ends_with("launch.rs"), "{site}");
        let rungs: Vec<_> = why.attempts.iter().map(|attempt| attempt.step).collect();
        assert_eq!(
            rungs,
            [
                RecoveryStep::Callbacks,
                RecoveryStep::Wait,
                RecoveryStep::Trim
            ]
        );
        let text = why.to_text();
        assert!(text.contains("  - let the kernel need less"), "{text}");
        assert!(!text.contains("pieces"), "{text}");
        drop(stream);
        assert_eq!(context.live_count(), 0);
        context.close()
    }

    /// The simulated GPU says that it has no kernels when it is asked for the second time.
    #[test]
    fn a_launch_is_asked_for_again_after_a_callback() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, Module::pretended(&context));
        let cache = Arc::new(Mutex::new(Some(DeviceBuffer::<u8>::zeroed(&context, 100)?)));
        let callback = context.release_on_oom({
            let cache = cache.clone();
            move |bytes| {
                assert_eq!(bytes, u64::MAX, "nobody knows how much");
                drop(cache.lock().unwrap().take());
            }
        });
        let fault = inject(refuse()).expect("there is such a function");
        let error = launch(&stream, &module).unwrap_err();
        assert_eq!(error.code(), Some(CUresult::NOT_SUPPORTED), "{error}");
        assert_eq!(fault.fired(), 1);
        assert!(cache.lock().unwrap().is_none());
        drop((callback, stream));
        assert_eq!(context.live_count(), 0);
        context.close()
    }

    /// A callback that panics, and one that closes the context, within the scope.
    #[test]
    fn callbacks_may_do_anything_within_a_scope() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, Module::pretended(&context));
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

    /// `cust`'s macro takes this crate's function, stream and memory.
    #[test]
    fn the_launch_macro_of_cust_reaches_the_driver() -> Result<()> {
        let Some(_turn) = turn() else { return Ok(()) };
        let context = Context::new(0)?;
        let (stream, module) = (Stream::new(&context)?, Module::pretended(&context));
        let (function, buffer) = (
            module.pretended_function(),
            DeviceBuffer::from_slice(&context, &[1_u32, 2, 3])?,
        );
        let calls = || cuguard_sim::counters().calls["cuLaunchKernel"];
        let launch = || -> Result<()> {
            let _bound = context.make_current()?;
            // SAFETY: the simulated GPU runs no kernels.
            let launched = unsafe {
                cust::launch!(function<<<1, 32, 0, stream>>>(buffer.as_device_ptr(), 3_u64))
            };
            Ok(launched?)
        };
        let _ = launch();
        let before = calls();
        assert_eq!(launch().unwrap_err().code(), Some(CUresult::NOT_SUPPORTED));
        assert_eq!(calls(), before + 1);
        context.close()?;
        let attribute = cust::function::FunctionAttribute::NumRegisters;
        let closed = catch_unwind(AssertUnwindSafe(|| {
            function.get_attribute(attribute).is_ok()
        }));
        let words = closed.unwrap_err();
        let words = words.downcast_ref::<String>().map(String::as_str);
        assert_eq!(words, Some("Function::deref: its context was closed"));
        Ok(())
    }
}
