//! Misuse of [typed kernels](crate::Module::kernel) that the compiler rejects: each case with its error, and a twin that differs
//! in one thing and compiles. Compiled for documentation tests only.

/// An argument of another element type:
///
/// ```compile_fail,E0308
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// let (x, mut y) = (DeviceBuffer::<f64>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|s| {
///     let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
///     scale.launch(s, (1, 32), (&x, &mut y, 2.0))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|s| {
///     let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
///     scale.launch(s, (1, 32), (&x, &mut y, 2.0))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
mod an_argument_of_another_element_type {}

/// Memory that is bound for reading, where the kernel writes:
///
/// ```compile_fail,E0308
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|s| {
///     let (x, mut y) = (s.bind(&x)?, s.bind(&y)?);
///     scale.launch(s, (1, 32), (&x, &mut y, 2.0))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|s| {
///     let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
///     scale.launch(s, (1, 32), (&x, &mut y, 2.0))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
mod memory_bound_for_reading_where_the_kernel_writes {}

/// The same memory for reading and writing:
///
/// ```compile_fail,E0502
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let mut y = DeviceBuffer::<f32>::zeroed(&context, 9)?;
/// let launched = stream.scope(|s| {
///     let mut y = s.bind_mut(&mut y)?;
///     scale.launch(s, (1, 32), (&y, &mut y, 2.0))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let mut y = DeviceBuffer::<f32>::zeroed(&context, 8)?;
/// let launched = stream.scope(|s| {
///     let (x, mut y) = s.bind_mut(&mut y)?.split_at(4)?;
///     scale.launch(s, (1, 32), (&x, &mut y, 2.0))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
mod the_same_memory_for_reading_and_writing {}

/// A binding of another scope, whose stream is not ordered with this one:
///
/// ```compile_fail,E0521
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?;
/// # let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|outer| {
///     let x = outer.bind(&x)?;
///     other.scope(|s| scale.launch(s, (1, 32), (&x, &mut s.bind_mut(&mut y)?, 2.0)))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?;
/// # let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|outer| {
///     other.scope(|s| scale.launch(s, (1, 32), (&s.bind(&x)?, &mut s.bind_mut(&mut y)?, 2.0)))
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_binding_of_another_scope {}

/// Reading on the host what the kernel writes:
///
/// ```compile_fail,E0502
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|s| {
///     scale.launch(s, (1, 32), (&s.bind(&x)?, &mut s.bind_mut(&mut y)?, 2.0))?;
///     y.to_vec()
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// # // SAFETY: scale(input, output, count, factor) accesses `count` elements of each.
/// # let scale = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>, f32)>("scale")? };
/// # let (x, mut y) = (DeviceBuffer::<f32>::zeroed(&context, 9)?, DeviceBuffer::<f32>::zeroed(&context, 9)?);
/// let launched = stream.scope(|s| {
///     scale.launch(s, (1, 32), (&s.bind(&x)?, &mut s.bind_mut(&mut y)?, 2.0))
/// });
/// let values = y.to_vec()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod reading_on_the_host_what_the_kernel_writes {}

/// Dropping the module while a kernel of it may run:
///
/// ```compile_fail,E0505
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// // SAFETY: the kernel accesses nothing.
/// let nothing = unsafe { module.kernel::<()>("nothing")? };
/// let launched = stream.scope(|s| {
///     nothing.launch(s, (1, 32), ())?;
///     drop(module);
///     Ok(())
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// // SAFETY: the kernel accesses nothing.
/// let nothing = unsafe { module.kernel::<()>("nothing")? };
/// let launched = stream.scope(|s| nothing.launch(s, (1, 32), ()));
/// drop(module);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod dropping_the_module_while_a_kernel_may_run {}

/// A kernel that is looked up within the scope: its module must outlive the scope, and the kernel may be short-lived:
///
/// ```standalone_crate
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
/// let launched = stream.scope(|s| {
///     // SAFETY: the kernel accesses nothing.
///     let nothing = unsafe { module.kernel::<()>("nothing")? };
///     nothing.launch(s, (1, 32), ())
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```compile_fail,E0597
/// # use cuguard::{*, scope::*}; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// let launched = stream.scope(|s| {
///     let module = Module::from_ptx(&context, include_str!("../../kernels/launches.ptx"))?;
///     // SAFETY: the kernel accesses nothing.
///     let nothing = unsafe { module.kernel::<()>("nothing")? };
///     nothing.launch(s, (1, 32), ())
/// });
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_module_that_does_not_outlive_the_scope {}

/// A type that is not a parameter:
///
/// ```compile_fail,E0277
/// # use cuguard::{*, scope::*};
/// # fn declare(module: &Module) -> Result<()> {
/// module.kernel_unchecked::<(String,)>("kernel")?;
/// # Ok(())
/// # }
/// ```
///
/// ```
/// # use cuguard::{*, scope::*};
/// # fn declare(module: &Module) -> Result<()> {
/// module.kernel_unchecked::<(Value<[f32; 4]>,)>("kernel")?;
/// # Ok(())
/// # }
/// ```
mod a_type_that_is_no_parameter {}

/// The length of what is not a slice, and a length without any slice:
///
/// ```compile_fail,E0080
/// # use cuguard::{*, scope::*};
/// # fn declare(module: &Module) -> Result<()> {
/// module.kernel_unchecked::<(&[f32], f32, LenOf<1, u32>)>("kernel")?;
/// # Ok(())
/// # }
/// # let _: fn(&Module) -> Result<()> = declare;
/// ```
///
/// ```compile_fail,E0080
/// # use cuguard::{*, scope::*};
/// # fn declare(module: &Module) -> Result<()> {
/// module.kernel_unchecked::<(&f32, f32, Len<u32>)>("kernel")?;
/// # Ok(())
/// # }
/// # let _: fn(&Module) -> Result<()> = declare;
/// ```
///
/// ```
/// # use cuguard::{*, scope::*};
/// # fn declare(module: &Module) -> Result<()> {
/// module.kernel_unchecked::<(&[f32], f32, LenOf<0, u32>)>("kernel")?;
/// module.kernel_unchecked::<(&[f32], f32, Len<u32>)>("kernel")?;
/// # Ok(())
/// # }
/// # let _: fn(&Module) -> Result<()> = declare;
/// ```
mod the_length_of_what_is_no_slice {}
