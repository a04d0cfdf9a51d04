//! Misuse of [`Stream::scope_over`](crate::Stream::scope_over) that the compiler rejects: each case with its error, and a twin that
//! differs in one thing, compiles and runs. Compiled for documentation tests only.

/// Letting a binding escape that is for several streams:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// let mut escaped = None;
/// Stream::scope_over([&first, &second], |[first, _]| {
///     escaped = Some(first.bind(&buffer)?);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// let mut length = None;
/// Stream::scope_over([&first, &second], |[first, _]| {
///     length = Some(first.bind(&buffer)?.len());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod letting_a_binding_escape {}

/// Binding memory for one stream that another one may write: the binding is for both:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// Stream::scope_over([&first, &second], |[first, second]| {
///     let mut data = first.bind_mut(&mut buffer)?;
///     first.zero(&mut data)?;
///     second.download(&mut second.bind_host_mut(&mut output), &second.bind(&buffer)?)?;
///     first.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// Stream::scope_over([&first, &second], |[first, second]| {
///     let mut data = first.bind_mut(&mut buffer)?;
///     first.zero(&mut data)?;
///     second.download(&mut second.bind_host_mut(&mut output), &data)?;
///     first.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod binding_memory_again_on_another_stream {}

/// Using a binding of a scope over several streams in a scope of one of them:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// Stream::scope_over([&first, &second], |[one, _]| {
///     let mut data = one.bind_mut(&mut buffer)?;
///     second.scope(|s| s.zero(&mut data))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// Stream::scope_over([&first, &second], |[one, other]| {
///     let mut data = one.bind_mut(&mut buffer)?;
///     other.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod using_a_binding_in_a_scope_of_one_stream {}

/// Writing with one stream what is bound shared:
///
/// ```compile_fail,E0308
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// Stream::scope_over([&first, &second], |[first, second]| {
///     let mut data = first.bind(&buffer)?;
///     second.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut output = [0; 3];
/// Stream::scope_over([&first, &second], |[first, second]| {
///     let mut data = first.bind_mut(&mut buffer)?;
///     second.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod writing_what_is_bound_shared {}
