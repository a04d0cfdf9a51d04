//! Misuse of [graphs](crate::graph::Graph), scratch memory and host functions that the compiler rejects: each case with its
//! error, and a twin that differs in one thing, compiles and runs. Compiled for documentation tests only.

/// Using a buffer that a graph writes, while the graph exists:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let early = buffer.to_vec()?;
/// graph.instantiate()?.launch(&stream)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// graph.instantiate()?.launch(&stream)?;
/// let late = buffer.to_vec()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod using_a_buffer_that_a_graph_writes_while_the_graph_exists {}

/// A graph that outlives its buffer:
///
/// ```compile_fail,E0505
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let mut exec = graph.instantiate()?;
/// drop(buffer);
/// exec.launch(&stream)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// drop(exec);
/// drop(buffer);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_graph_that_outlives_its_buffer {}

/// A graph that outlives a buffer which it reads:
///
/// ```compile_fail,E0597
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (mut seen, exec);
/// {
///     let local = DeviceBuffer::from_slice(&context, &[1_u8, 2, 3])?;
///     seen = [0; 3];
///     exec = stream.capture(|c| c.download(&mut c.bind_host_mut(&mut seen), &c.bind(&local)?))?;
/// }
/// exec.0.instantiate()?.launch(&stream)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let local = DeviceBuffer::from_slice(&context, &[1_u8, 2, 3])?;
/// let (mut seen, exec);
/// {
///     seen = [0; 3];
///     exec = stream.capture(|c| c.download(&mut c.bind_host_mut(&mut seen), &c.bind(&local)?))?;
/// }
/// exec.0.instantiate()?.launch(&stream)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_graph_that_outlives_a_buffer_which_it_reads {}

/// A closure of a graph that outlives what it borrows:
///
/// ```compile_fail,E0597
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let graph;
/// {
///     let count = std::sync::atomic::AtomicU32::new(0);
///     graph = stream.capture(|c| c.call_each(|| { count.fetch_add(1, std::sync::atomic::Ordering::Relaxed); }))?;
/// }
/// drop(graph);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let graph;
/// let count = std::sync::atomic::AtomicU32::new(0);
/// {
///     graph = stream.capture(|c| c.call_each(|| { count.fetch_add(1, std::sync::atomic::Ordering::Relaxed); }))?;
/// }
/// drop(graph);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_closure_of_a_graph_that_outlives_what_it_borrows {}

/// Access to the memory of a graph while it is launched:
///
/// ```compile_fail,E0502
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, data) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut buffer)?))?;
/// let mut exec = graph.instantiate()?;
/// stream.scope(|s| {
///     s.launch_graph(&mut s.bind_graph(&mut exec)?)?;
///     exec.view(&data.as_ref())?.to_vec().map(drop)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, data) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut buffer)?))?;
/// let mut exec = graph.instantiate()?;
/// stream.scope(|s| s.launch_graph(&mut s.bind_graph(&mut exec)?))?;
/// exec.view(&data.as_ref())?.to_vec()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod access_to_the_memory_of_a_graph_while_it_is_launched {}

/// Launching a graph while its memory is accessed:
///
/// ```compile_fail,E0499
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, data) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut buffer)?))?;
/// let mut exec = graph.instantiate()?;
/// let mut view = exec.view_mut(&data)?;
/// exec.launch(&stream)?;
/// view.fill(1)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, data) = stream.capture(|c| c.export_mut(&c.bind_mut(&mut buffer)?))?;
/// let mut exec = graph.instantiate()?;
/// let mut view = exec.view_mut(&data)?;
/// view.fill(1)?;
/// exec.launch(&stream)?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod launching_a_graph_while_its_memory_is_accessed {}

/// Launching one executable on two streams at once:
///
/// ```compile_fail,E0499
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let second = Stream::new(&context)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let mut exec = graph.instantiate()?;
/// stream.scope(|s1| {
///     s1.launch_graph(&mut s1.bind_graph(&mut exec)?)?;
///     second.scope(|s2| s2.launch_graph(&mut s2.bind_graph(&mut exec)?))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let second = Stream::new(&context)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let mut exec = graph.instantiate()?;
/// stream.scope(|s1| s1.launch_graph(&mut s1.bind_graph(&mut exec)?))?;
/// second.scope(|s2| s2.launch_graph(&mut s2.bind_graph(&mut exec)?))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod launching_one_executable_on_two_streams_at_once {}

/// Instantiating twice:
///
/// ```compile_fail,E0382
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let (one, two) = (graph.instantiate()?, graph.instantiate()?);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, ()) = stream.capture(|c| c.fill(&mut c.bind_mut(&mut buffer)?, 7))?;
/// let one = graph.instantiate()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod instantiating_twice {}

/// Using a binding after the capture:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let mut escaped = None;
/// stream.capture(|c| {
///     escaped = Some(c.bind(&other)?);
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let mut length = None;
/// stream.capture(|c| {
///     length = Some(c.bind(&other)?.len());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod using_a_binding_after_the_capture {}

/// Returning a binding from the capture:
///
/// ```compile_fail
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, binding) = stream.capture(|c| c.bind(&other))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let (graph, length) = stream.capture(|c| Ok(c.bind(&other)?.len()))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod returning_a_binding_from_the_capture {}

/// Using scratch memory of one scope in another:
///
/// ```compile_fail,E0521
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let second = Stream::new(&context)?;
/// stream.scope(|s1| {
///     let mut scratch = s1.zeroed::<u8>(3)?;
///     second.scope(|s2| s2.fill(&mut scratch, 1))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let second = Stream::new(&context)?;
/// stream.scope(|s1| {
///     let mut scratch = s1.zeroed::<u8>(3)?;
///     s1.fill(&mut scratch, 1)
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod using_scratch_memory_of_one_scope_in_another {}

/// A host function that borrows what ends before the scope:
///
/// ```compile_fail,E0597
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// stream.scope(|s| {
///     let count = std::sync::atomic::AtomicU32::new(0);
///     s.call(|| count.store(1, std::sync::atomic::Ordering::Relaxed))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let count = std::sync::atomic::AtomicU32::new(0);
/// stream.scope(|s| {
///     s.call(|| count.store(1, std::sync::atomic::Ordering::Relaxed))
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_host_function_that_borrows_what_ends_before_the_scope {}

/// A host function that is not `Send`:
///
/// ```compile_fail,E0277
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let count = std::cell::Cell::new(0);
/// stream.scope(|s| s.call(|| count.set(1)))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?; let stream = Stream::new(&context)?;
/// # let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 3)?; let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
/// let count = std::sync::atomic::AtomicU32::new(0);
/// stream.scope(|s| s.call(|| count.store(1, std::sync::atomic::Ordering::Relaxed)))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_host_function_that_is_not_send {}
