//! Misuse of [`Stream::scope`](crate::Stream::scope) that the borrow checker rejects: each case with its error, and a twin
//! that differs in one thing, compiles and runs. Compiled for documentation tests only.

/// Reading what a copy in flight writes, on the device:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut data = s.bind_mut(&mut buffer)?;
///     s.upload(&mut data, &s.bind_host(&input))?;
///     let early = buffer.to_vec()?;
///     s.zero(&mut data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut data = s.bind_mut(&mut buffer)?;
///     s.upload(&mut data, &s.bind_host(&input))
/// })?;
/// let late = buffer.to_vec()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod reading_what_a_copy_in_flight_writes_on_the_device {}

/// Reading what a copy in flight writes, on the host:
///
/// ```compile_fail,E0503
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut target = s.bind_host_mut(&mut output);
///     s.download(&mut target, &s.bind(&buffer)?)?;
///     let early = output[0];
///     s.download(&mut target, &s.bind(&buffer)?)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut target = s.bind_host_mut(&mut output);
///     s.download(&mut target, &s.bind(&buffer)?)
/// })?;
/// let late = output[0];
/// # Ok::<(), cuguard::Error>(())
/// ```
mod reading_what_a_copy_in_flight_writes_on_the_host {}

/// The same when the binding is not used any more: the copy is still in flight:
///
/// ```compile_fail,E0503
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.download(&mut s.bind_host_mut(&mut output), &s.bind(&buffer)?)?;
///     let early = output[0];
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.download(&mut s.bind_host_mut(&mut output), &s.bind(&buffer)?)
/// })?;
/// let late = output[0];
/// # Ok::<(), cuguard::Error>(())
/// ```
mod the_same_when_the_binding_is_not_used_any_more {}

/// Writing to what a copy in flight reads:
///
/// ```compile_fail,E0506
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&input))?;
///     input[0] = 7;
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&input))
/// })?;
/// input[0] = 7;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod writing_to_what_a_copy_in_flight_reads {}

/// Using a buffer exclusively while it is bound shared:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.download(&mut s.bind_host_mut(&mut output), &s.bind(&buffer)?)?;
///     buffer.copy_from_slice(&input)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.download(&mut s.bind_host_mut(&mut output), &s.bind(&buffer)?)
/// })?;
/// buffer.copy_from_slice(&input)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod using_a_buffer_exclusively_while_it_is_bound_shared {}

/// Dropping the source of a copy in flight:
///
/// ```compile_fail,E0505
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let source = PinnedBuffer::from_slice(&context, &[1, 2, 3])?;
/// stream.scope(|s| {
///     s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&source))?;
///     drop(source);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let source = PinnedBuffer::from_slice(&context, &[1, 2, 3])?;
/// stream.scope(|s| {
///     s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&source))
/// })?;
/// drop(source);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod dropping_the_source_of_a_copy_in_flight {}

/// Dropping a buffer that work in flight uses:
///
/// ```compile_fail,E0505
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.zero(&mut s.bind_mut(&mut buffer)?)?;
///     drop(buffer);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.zero(&mut s.bind_mut(&mut buffer)?)
/// })?;
/// drop(buffer);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod dropping_a_buffer_that_work_in_flight_uses {}

/// Moving a buffer that work in flight uses:
///
/// ```compile_fail,E0505
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut kept = Vec::new();
/// stream.scope(|s| {
///     s.zero(&mut s.bind_mut(&mut buffer)?)?;
///     kept.push(buffer);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut kept = Vec::new();
/// stream.scope(|s| {
///     s.zero(&mut s.bind_mut(&mut buffer)?)
/// })?;
/// kept.push(buffer);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod moving_a_buffer_that_work_in_flight_uses {}

/// Binding memory that is dropped before the scope ends:
///
/// ```compile_fail,E0597
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let local = [7_u8; 3];
///     s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&local))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let outside = [7_u8; 3];
/// stream.scope(|s| {
///     s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&outside))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod binding_memory_that_is_dropped_before_the_scope_ends {}

/// Binding a buffer that is dropped before the scope ends:
///
/// ```compile_fail,E0597
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut local = DeviceBuffer::<u8>::zeroed(&context, 3)?;
///     s.upload(&mut s.bind_mut(&mut local)?, &s.bind_host(&input))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut outside = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// stream.scope(|s| {
///     s.upload(&mut s.bind_mut(&mut outside)?, &s.bind_host(&input))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod binding_a_buffer_that_is_dropped_before_the_scope_ends {}

/// Binding exclusively twice:
///
/// ```compile_fail,E0499
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut one = s.bind_mut(&mut buffer)?;
///     let mut two = s.bind_mut(&mut buffer)?;
///     s.zero(&mut one)?;
///     s.zero(&mut two)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let (one, two) = (s.bind(&buffer)?, s.bind(&buffer)?);
///     assert_eq!(one.len(), two.len());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod binding_exclusively_twice {}

/// Binding exclusively what is bound shared:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let shared = s.bind(&buffer)?;
///     s.zero(&mut s.bind_mut(&mut buffer)?)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let exclusive = s.bind_mut(&mut buffer)?; // does for reading, too
///     s.download(&mut s.bind_host_mut(&mut output), &exclusive)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod binding_exclusively_what_is_bound_shared {}

/// Copying onto itself:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let mut data = s.bind_mut(&mut buffer)?;
///     s.copy(&mut data, &data)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     let (mut one, two) = s.bind_mut(&mut buffer)?.slice(..2)?.split_at(1)?;
///     s.copy(&mut one, &two)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod copying_onto_itself {}

/// Letting a binding escape:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut escaped = None;
/// stream.scope(|s| {
///     escaped = Some(s.bind(&buffer)?);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut length = None;
/// stream.scope(|s| {
///     length = Some(s.bind(&buffer)?.len());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod letting_a_binding_escape {}

/// Letting the scope itself escape:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut escaped = None;
/// stream.scope(|s| {
///     escaped = Some(s);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let mut handle = None;
/// stream.scope(|s| {
///     handle = Some(s.stream());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod letting_the_scope_itself_escape {}

/// Using a binding of one scope in another, whose stream does not wait for the first:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let other = Stream::new(&context)?;
/// stream.scope(|s1| {
///     let mut data = s1.bind_mut(&mut buffer)?;
///     s1.zero(&mut data)?;
///     other.scope(|s2| s2.zero(&mut data))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let other = Stream::new(&context)?;
/// stream.scope(|s1| {
///     let data = s1.bind(&buffer)?;
///     s1.download(&mut s1.bind_host_mut(&mut output), &data)?;
///     other.scope(|s2| {
///         let data = s2.bind(&buffer)?;
///         assert_eq!(data.len(), 3);
///         Ok(())
///     })
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod using_a_binding_of_one_scope_in_another {}

/// Dropping the stream within its own scope:
///
/// ```compile_fail,E0505
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.zero(&mut s.bind_mut(&mut buffer)?)?;
///     drop(stream);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// stream.scope(|s| {
///     s.zero(&mut s.bind_mut(&mut buffer)?)
/// })?;
/// drop(stream);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod dropping_the_stream_within_its_own_scope {}

/// Unloading a module while its kernel is in flight:
///
/// ```compile_fail,E0505
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let Ok(module) = Module::from_ptx(&context, "") else { return Ok(()) };
/// stream.scope(|s| {
///     let kernel = module.function("f")?;
///     // SAFETY: takes nothing.
///     unsafe { s.launch(&kernel, (1, 1), &[])? };
///     drop(module);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let mut input = [1; 3]; let mut output = [0; 3];
/// let Ok(module) = Module::from_ptx(&context, "") else { return Ok(()) };
/// stream.scope(|s| {
///     let kernel = module.function("f")?;
///     // SAFETY: takes nothing.
///     unsafe { s.launch(&kernel, (1, 1), &[]) }
/// })?;
/// drop(module);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod unloading_a_module_while_its_kernel_is_in_flight {}
