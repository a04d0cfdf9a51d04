//! `Deref` to `cust`'s `Function`.

use std::mem;
use std::ops::Deref;

use cuguard_driver::sys::CUfunction;

use crate::error::Error;
use crate::guards::Function;

// `deref` below relies on this.
const _: () = assert!(
    mem::size_of::<cust::function::Function<'_>>() == mem::size_of::<CUfunction>()
        && mem::align_of::<cust::function::Function<'_>>() == mem::align_of::<CUfunction>(),
    "cust's Function is more than its handle"
);

/// Dereferences to `cust`'s `Function`, for its attributes and for `cust::launch!`, which also accepts this crate's
/// [`Stream`](crate::Stream). The context must be [current](crate::Context::make_current). Such a launch borrows nothing:
/// everything that the kernel uses must live until it has run.
///
/// ```no_run,standalone_crate
/// use cuguard::{Context, DeviceBuffer, Module, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let module = Module::from_ptx(&context, include_str!("../../kernels/pattern.ptx"))?;
/// let fill = module.function("fill_pattern")?;
/// let words = DeviceBuffer::<u32>::zeroed(&context, 1000)?;
/// let _bound = context.make_current()?;
/// // SAFETY: fill_pattern(words, count, seed) writes `count` words, and they live until then.
/// unsafe { cust::launch!(fill<<<4, 256, 0, stream>>>(words.as_device_ptr(), 1000_u64, 7_u32))? };
/// stream.synchronize()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The macro's other form, `launch!(module.fill_pattern<<<…>>>(…))`, requires a module of `cust`'s and does not accept a
/// [`Module`](crate::Module).
impl<'module> Deref for Function<'module> {
    type Target = cust::function::Function<'module>;

    /// # Panics
    ///
    /// If the context was closed, which invalidates the handle, or the process is exiting.
    #[track_caller]
    fn deref(&self) -> &cust::function::Function<'module> {
        let entered = self.state().enter("Function::deref");
        if let Err(error @ (Error::ContextClosed { .. } | Error::ProcessEnding { .. })) = entered {
            panic!("{error}");
        }
        let handle: *const CUfunction = self.handle();
        // SAFETY: the handle is the only sized field of `cust`'s `Function`, as the assertion above checks, so both have the
        // same layout. `cust` only passes the handle to the driver. `Function` has no `Drop`, and is borrowed as long as
        // the handle.
        unsafe { &*handle.cast() }
    }
}
