//! Compile-fail tests: element types that are not `Send` or not `Sync` cannot cross threads by way of the device, and the
//! buffer of a `DeviceBox` cannot be replaced. Each case has the error code and a twin that differs in one respect, and
//! compiles and runs. Compiled for doctests only; `tests/send_sync.rs` has the whole table.

/// A value that is not `Send`, uploaded on another thread and read on this one:
///
/// ```compile_fail,E0277
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// #[derive(Clone, Copy)]
/// struct Token(usize, std::marker::PhantomData<*mut ()>); // an index into a thread's own table
/// // SAFETY: plain bits, no pointers.
/// unsafe impl cuguard::DeviceCopy for Token {}
///
/// fn token(index: usize) -> Token {
///     Token(index, std::marker::PhantomData)
/// }
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let mut buffer = DeviceBuffer::from_slice(&context, &[token(1)])?;
/// stream.scope(|s| {
///     let mut bound = s.bind_mut(&mut buffer)?;
///     std::thread::scope(|threads| {
///         let other = threads.spawn(move || {
///             let values: &'static [Token] = Box::leak(Box::new([token(2)]));
///             s.upload(&mut bound, &s.bind_host(values))
///         });
///         other.join().unwrap()
///     })
/// })?;
/// assert_eq!(buffer.to_vec()?[0].0, 2);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// #[derive(Clone, Copy)]
/// struct Token(usize, std::marker::PhantomData<()>);
/// // SAFETY: plain bits, no pointers.
/// unsafe impl cuguard::DeviceCopy for Token {}
///
/// fn token(index: usize) -> Token {
///     Token(index, std::marker::PhantomData)
/// }
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let mut buffer = DeviceBuffer::from_slice(&context, &[token(1)])?;
/// stream.scope(|s| {
///     let mut bound = s.bind_mut(&mut buffer)?;
///     std::thread::scope(|threads| {
///         let other = threads.spawn(move || {
///             let values: &'static [Token] = Box::leak(Box::new([token(2)]));
///             s.upload(&mut bound, &s.bind_host(values))
///         });
///         other.join().unwrap()
///     })
/// })?;
/// assert_eq!(buffer.to_vec()?[0].0, 2);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_value_that_is_not_send_from_another_thread {}

/// A value that is not `Sync`, bound for reading and used on two threads:
///
/// ```compile_fail,E0277
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// #[derive(Clone, Copy)]
/// struct Token(usize, std::marker::PhantomData<std::cell::Cell<u8>>);
/// // SAFETY: plain bits, no pointers.
/// unsafe impl cuguard::DeviceCopy for Token {}
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let buffer = DeviceBuffer::from_slice(&context, &[Token(1, std::marker::PhantomData)])?;
/// stream.scope(|s| {
///     let bound = s.bind(&buffer)?;
///     std::thread::scope(|threads| threads.spawn(|| bound.len()).join().unwrap());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::*; driver::select(driver::Choice::Sim).unwrap();
/// #[derive(Clone, Copy)]
/// struct Token(usize, std::marker::PhantomData<u8>);
/// // SAFETY: plain bits, no pointers.
/// unsafe impl cuguard::DeviceCopy for Token {}
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let buffer = DeviceBuffer::from_slice(&context, &[Token(1, std::marker::PhantomData)])?;
/// stream.scope(|s| {
///     let bound = s.bind(&buffer)?;
///     std::thread::scope(|threads| threads.spawn(|| bound.len()).join().unwrap());
///     Ok(())
/// })?;
/// # Ok::<(), cuguard::Error>(())
/// ```
mod a_value_that_is_not_sync_on_two_threads {}

/// A mutable binding is invariant in its element type, so that no value with a shorter lifetime is written to a buffer
/// of values with a longer one:
///
/// ```compile_fail
/// # use cuguard::scope::DeviceMut;
/// fn shorter<'s>(bound: DeviceMut<'s, Reference<'static>>) -> DeviceMut<'s, Reference<'s>> {
///     bound
/// }
/// # #[derive(Clone, Copy)]
/// # struct Reference<'a>(usize, std::marker::PhantomData<&'a ()>);
/// ```
///
/// ```
/// # use cuguard::scope::DeviceMut;
/// fn the_same<'s>(bound: DeviceMut<'s, Reference<'s>>) -> DeviceMut<'s, Reference<'s>> {
///     bound
/// }
/// # #[derive(Clone, Copy)]
/// # struct Reference<'a>(usize, std::marker::PhantomData<&'a ()>);
/// ```
mod a_shorter_lifetime_of_the_elements {}

/// The same for the memory of a graph, which [`GraphExec::view_mut`](crate::graph::GraphExec::view_mut) writes to:
///
/// ```compile_fail
/// # use cuguard::graph::GraphMemoryMut;
/// fn shorter<'s>(token: GraphMemoryMut<Reference<'static>>) -> GraphMemoryMut<Reference<'s>> {
///     token
/// }
/// # struct Reference<'a>(usize, std::marker::PhantomData<&'a ()>);
/// ```
///
/// ```
/// # use cuguard::graph::GraphMemory;
/// fn shorter<'s>(token: GraphMemory<Reference<'static>>) -> GraphMemory<Reference<'s>> {
///     token
/// }
/// # struct Reference<'a>(usize, std::marker::PhantomData<&'a ()>);
/// ```
mod a_shorter_lifetime_of_the_elements_of_a_graph {}

/// The buffer of a `DeviceBox` cannot be replaced, so that its length stays 1:
///
/// ```compile_fail,E0594
/// # use cuguard::{Context, DeviceBox, DeviceBuffer};
/// # let context = Context::new(0)?;
/// let mut counter = DeviceBox::new(&context, &7)?;
/// *counter.as_buffer() = DeviceBuffer::from_slice(&context, &[8, 9])?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```compile_fail,E0599
/// # use cuguard::{Context, DeviceBox, DeviceBuffer};
/// # let context = Context::new(0)?;
/// let mut counter = DeviceBox::new(&context, &7)?;
/// *counter.as_buffer_mut() = DeviceBuffer::from_slice(&context, &[8, 9])?;
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// ```
/// # use cuguard::{Context, DeviceBox, DeviceBuffer}; cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = Context::new(0)?;
/// let mut counter = DeviceBox::new(&context, &7)?.into_buffer();
/// counter = DeviceBuffer::from_slice(&context, &[8, 9])?;
/// # drop(counter);
/// # Ok::<(), cuguard::Error>(())
/// ```
mod the_buffer_of_a_box_replaced {}
