//! Programs, each with a part of the guards, that use what they create and free it.

use std::sync::atomic::{AtomicU32, Ordering};

use cuguard::context::DeviceHeap;
use cuguard::device::PeerAccess;
use cuguard::memory::{ManagedAdvice, MemoryLocation, PitchedBuffer, WriteCombinedBuffer};
use cuguard::report::ReportSettings;
use cuguard::{
    Chunked, Context, DeviceBox, DeviceBuffer, DriverPool, Error, Event, ManagedBuffer,
    PinnedBuffer, Pool, RegisteredVec, Result, Stream,
};

/// With these settings of reports.
pub type Scenario = fn(&ReportSettings) -> Result<()>;

pub const SCENARIOS: [(&str, Scenario); 22] = [
    ("memory", memory),
    ("streams", streams),
    ("pools", pools),
    ("a pool of cuguard", pool),
    ("a pool that is compacted", compacted),
    ("a pool for all buffers", pool_for_all),
    ("an own context", own_context),
    ("given away", given_away),
    ("forgotten", forgotten),
    ("context first", context_first),
    ("dropped in a host function", dropped_in_a_host_function),
    ("out of memory", out_of_memory),
    ("in pieces", in_pieces),
    ("the device heap", heap),
    ("two devices", two_devices),
    ("a borrowed context", borrowed_context),
    ("views", views),
    ("two contexts", two_contexts),
    ("scratch memory and host functions", scratch_memory),
    ("several streams", several_streams),
    ("graphs", graphs),
    ("matrices and the driver's host memory", matrices),
];

pub fn primary(settings: &ReportSettings) -> Result<Context> {
    Context::builder().report(settings.clone()).build()
}

fn memory(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let mut buffer = DeviceBuffer::from_slice(&context, &[1_u8; 1000])?.with_label("memory");
    buffer.copy_from_slice(&[2; 1000])?;
    assert_eq!(buffer.to_vec()?, [2; 1000]);
    let boxed = DeviceBox::new(&context, &7_u64)?;
    let mut managed = ManagedBuffer::<u16>::zeroed(&context, 100)?;
    managed.as_mut_slice(&context)?[0] = 1;
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 5000)?;
    let registered = RegisteredVec::new(&context, vec![0_u8; 5000])?;
    context.memory()?;
    boxed.close()?;
    pinned.close()?;
    registered.into_vec()?;
    drop((buffer, managed));
    context.close()
}

fn streams(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let event = Event::new(&context)?;
    let source = PinnedBuffer::from_slice(&context, &[3_u8; 1000])?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    let (mut a, mut b) = (
        DeviceBuffer::<u8>::zeroed(&context, 1000)?,
        DeviceBuffer::<u8>::zeroed(&other, 1000)?,
    );
    one.scope(|s| {
        let (mut a, mut b) = (s.bind_mut(&mut a)?, s.bind_mut(&mut b)?);
        s.upload(&mut a, &s.bind_host(&source))?;
        s.copy(&mut b, &a)?;
        s.record(&event)?;
        s.download(&mut s.bind_host_mut(&mut target), &b)
    })?;
    assert_eq!(*target, [3; 1000]);
    other.wait_for(&event)?;
    b.record_stream(&one)?;
    b.close()?;
    event.close()?;
    drop((one, other, a));
    context.synchronize()?;
    context.close()
}

fn pools(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?;
    pool.set_release_threshold(1 << 20)?;
    let buffers = [
        DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?,
        DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3 << 20)?,
    ];
    drop(pool);
    assert_eq!(buffers[0].to_vec()?, [0; 1000]);
    drop(buffers);
    stream.close()?;
    context.close()
}

/// Whatever is refused, a block has its bytes.
fn pool(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    // Several pages, and few bytes to fill and to copy: this is run some hundred times.
    const BYTES: usize = (2 << 20) + 5000;
    let pool = Pool::new(&context)?;
    let kept = DeviceBuffer::from_slice(&pool.on(&one), &[7_u8; 5000])?;
    let large = DeviceBuffer::<u8>::zeroed(&pool.on(&one), BYTES)?;
    drop(large);
    let second = DeviceBuffer::<u8>::zeroed(&pool.on(&other), BYTES)?;
    let third = second.try_clone()?;
    let address = third.into_raw();
    // SAFETY: released above, with this length, on the same stream.
    let third = unsafe { DeviceBuffer::<u8>::from_raw_on(&other, address, BYTES) };
    drop((second, other));
    pool.trim()?;
    assert_eq!(kept.to_vec()?, [7; 5000]);
    drop(pool);
    assert_eq!(kept.to_vec()?, [7; 5000]);
    kept.close()?;
    drop((third, one));
    context.close()
}

fn compacted(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let pool = Pool::new(&context)?;
    let mut blocks = Vec::new();
    for number in 0..12_u8 {
        let values = vec![number; 700 << 10];
        blocks.push((number, DeviceBuffer::from_slice(&pool, &values)?));
    }
    blocks.retain(|(number, _)| number % 3 == 0);
    let compacted = pool.compact();
    for (number, block) in &blocks {
        // Where the driver refuses the copy there is nothing to compare.
        if let Ok(values) = block.to_vec() {
            assert!(values == vec![*number; 700 << 10], "block {number}");
        }
    }
    compacted?;
    drop((blocks, pool));
    context.close()
}

fn pool_for_all(settings: &ReportSettings) -> Result<()> {
    let builder = Context::builder().report(settings.clone());
    let context = builder.pool(Pool::builder()).build()?;
    let stream = Stream::new(&context)?;
    let buffer = DeviceBuffer::from_slice(&context, &[3_u8; 1000])?;
    let on = DeviceBuffer::<u8>::zeroed(&stream, 3 << 20)?;
    let boxed = DeviceBox::new(&context, &7_u64)?;
    assert_eq!(buffer.to_vec()?, [3; 1000]);
    drop((buffer, on, stream));
    // Last: it keeps the context open where anything before fails.
    std::mem::forget(boxed);
    context.close()
}

fn own_context(settings: &ReportSettings) -> Result<()> {
    let context = Context::builder()
        .dedicated()
        .report(settings.clone())
        .build()?;
    let current = context.make_current()?;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    drop(current);
    // On another thread, where no context is current.
    std::thread::scope(|scope| scope.spawn(|| drop(buffer)).join()).expect("a drop never panics");
    context.close()
}

fn given_away(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let plain = DeviceBuffer::from_slice(&context, &[5_u8; 100])?.into_raw();
    // SAFETY: the address and the length of a buffer of this context, given away above.
    let plain = unsafe { DeviceBuffer::<u8>::from_raw(&context, plain, 100) };
    let ordered = DeviceBuffer::<u8>::zeroed(&stream, 100)?.into_raw();
    // SAFETY: the same, on the same stream.
    let ordered = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, ordered, 100) };
    assert_eq!(plain.to_vec()?, [5; 100]);
    drop((plain, ordered));
    context.close()
}

fn forgotten(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let forget = || -> Result<()> {
        let stream = Stream::new(&context)?;
        std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
        std::mem::forget(DeviceBuffer::<u8>::zeroed(&stream, 1000)?);
        std::mem::forget(PinnedBuffer::<u8>::zeroed(&context, 1000)?);
        std::mem::forget(Event::new(&context)?);
        std::mem::forget(DriverPool::new(&context)?);
        std::mem::forget(stream);
        Ok(())
    };
    // Dropped, it would stay open for what was forgotten.
    let forgotten = forget();
    forgotten.and(context.close())
}

/// A context that is dropped before its resources, the last of which tears it down.
fn context_first(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let resources = (
        DeviceBuffer::<u8>::zeroed(&context, 1000)?,
        DeviceBuffer::<u8>::zeroed(&stream, 1000)?,
        PinnedBuffer::<u8>::zeroed(&context, 1000)?,
        Event::new(&context)?,
        DriverPool::new(&context)?,
    );
    drop(context);
    stream.synchronize()?;
    drop(resources);
    Ok(())
}

/// The same with host functions, in which the driver permits no call.
fn dropped_in_a_host_function(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let resources = (
        DeviceBuffer::<u8>::zeroed(&context, 1000)?,
        DeviceBuffer::<u8>::zeroed(&stream, 1000)?,
        PinnedBuffer::<u8>::zeroed(&context, 1000)?,
        Event::new(&context)?,
    );
    type Resources = (DeviceBuffer<u8>, DeviceBuffer<u8>, PinnedBuffer<u8>, Event);
    unsafe extern "C" fn drop_them(resources: *mut std::ffi::c_void) {
        // SAFETY: given away by `Box::into_raw` below, once.
        drop(unsafe { Box::from_raw(resources.cast::<Resources>()) });
    }
    let resources: *mut Resources = Box::into_raw(Box::new(resources));
    // SAFETY: the stream is alive, and the function takes what it is given.
    let code = unsafe {
        cuguard::driver::api::cuLaunchHostFunc(stream.as_raw(), Some(drop_them), resources.cast())
    };
    if !code.is_success() {
        // SAFETY: nobody else has it. (`cust` would leak it here.)
        drop(unsafe { Box::from_raw(resources) });
    }
    stream.synchronize()?;
    drop(stream);
    context.close()
}

/// An allocation that cannot succeed, and everything that is tried and asked before it fails.
fn out_of_memory(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?;
    pool.set_release_threshold(u64::MAX)?;
    let kept = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    drop(DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1 << 20)?);
    let callback = context.release_on_oom(|_| {});
    // More than any device has, however it is asked for.
    let refused = [
        DeviceBuffer::<u8>::zeroed(&context, 1 << 50),
        DeviceBuffer::<u8>::zeroed(&stream, 1 << 50),
    ];
    for refused in refused {
        match refused {
            Err(Error::OutOfMemory(why)) => assert!(!why.to_text().is_empty()),
            Err(error) => return Err(error),
            Ok(_) => panic!("there is no such device"),
        }
    }
    drop((callback, kept, pool, stream));
    context.close()
}

fn in_pieces(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let mut values = vec![1_u8; 20_000];
    Chunked::new(&context)
        .piece_bytes(5_000)
        .update(&mut values, |s, mut piece| s.fill(&mut piece.data, 2))?;
    assert!(values.iter().all(|value| *value == 2));
    context.close()
}

/// One scope over them: what one writes, the other reads.
fn several_streams(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let source = PinnedBuffer::from_slice(&context, &[3_u8; 1000])?;
    let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    let mut data = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    let seen = AtomicU32::new(0);
    Stream::scope_over([&one, &other], |[one, other]| {
        let mut data = one.bind_mut(&mut data)?;
        one.upload(&mut data, &one.bind_host(&source))?;
        let mut scratch = one.zeroed(1000)?;
        other.copy(&mut scratch, &data)?;
        other.call(|| seen.store(1, Ordering::Relaxed))?;
        one.download(&mut one.bind_host_mut(&mut target), &scratch)
    })?;
    assert_eq!((*target).to_vec(), [3; 1000]);
    assert_eq!(seen.into_inner(), 1);
    drop((source, data, one, other));
    context.close()
}

/// Scratch memory, host functions, and page-locked memory on the device.
fn scratch_memory(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let mut pinned = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    let seen = AtomicU32::new(0);
    stream.scope(|s| {
        let mut pinned = s.bind_mut(&mut pinned)?;
        let mut scratch = s.zeroed(1000)?;
        s.fill(&mut scratch, 3)?;
        // SAFETY: the copy initializes it.
        let mut more = unsafe { s.uninitialized(1000)? };
        s.copy(&mut more, &scratch)?;
        s.call(|| seen.store(1, Ordering::Relaxed))?;
        s.copy(&mut pinned, &more)
    })?;
    assert_eq!((*pinned).to_vec(), [3; 1000]);
    assert_eq!(seen.into_inner(), 1);
    drop((pinned, stream));
    context.close()
}

/// In a context of its own: a capture whose end is refused stays in progress, and prohibits waits for its context.
fn graphs(settings: &ReportSettings) -> Result<()> {
    let builder = Context::builder().dedicated();
    let context = builder.report(settings.clone()).build()?;
    let run = || -> Result<()> {
        let (stream, home) = (Stream::new(&context)?, Stream::new(&context)?);
        let mut buffer = DeviceBuffer::<u8>::zeroed(&home, 1000)?;
        let calls = AtomicU32::new(0);
        let (graph, data) = stream.capture(|c| {
            let mut data = c.bind_mut(&mut buffer)?;
            let mut scratch = c.zeroed(1000)?;
            c.fill(&mut scratch, 3)?;
            c.call_each(|| {
                calls.fetch_add(1, Ordering::Relaxed);
            })?;
            c.copy(&mut data, &scratch)?;
            c.export_mut(&data)
        })?;
        let mut exec = graph.instantiate()?;
        exec.view_mut(&data)?.fill(9)?;
        stream.scope(|s| {
            let mut graph = s.bind_graph(&mut exec)?;
            s.launch_graph(&mut graph)?;
            s.launch_graph(&mut graph)
        })?;
        assert_eq!(exec.view(&data.as_ref())?.to_vec()?, [3; 1000]);
        exec.close()?;
        let (graph, data) = stream.capture(|c| {
            let mut data = c.bind_mut(&mut buffer)?;
            c.fill(&mut data, 1)?;
            c.export_mut(&data)
        })?;
        let mut exec = graph.instantiate()?;
        exec.recapture(&stream, |c| c.fill(&mut c.reuse_mut(&data)?, 2))?;
        exec.launch(&home)?;
        drop(exec);
        assert_eq!(buffer.to_vec()?, [2; 1000]);
        assert_eq!(calls.into_inner(), 2);
        Ok(())
    };
    let ran = run();
    ran.and(context.close())
}

fn heap(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let heap = DeviceHeap::limit(&context, 16 << 20)?;
    assert!(DeviceHeap::current(&context)? >= 16 << 20);
    heap.close()?;
    context.close()
}

fn two_devices(settings: &ReportSettings) -> Result<()> {
    let first = primary(settings)?;
    let second = Context::builder()
        .device(1)
        .report(settings.clone())
        .build()?;
    let access = PeerAccess::new(&first, &second)?;
    let again = PeerAccess::new(&first, &second)?;
    let (stream, there) = (Stream::new(&first)?, Stream::new(&second)?);
    let mut a = DeviceBuffer::<u8>::zeroed(&first, 1000)?;
    let b = DeviceBuffer::from_slice(&there, &[3_u8; 1000])?;
    let mut c = DeviceBuffer::<u8>::zeroed(&second, 1000)?;
    stream.scope(|s| {
        let (mut a, mut c) = (s.bind_mut(&mut a)?, s.bind_peer_mut(&mut c)?);
        s.copy_from_peer(&mut a, &s.bind_peer(&b)?)?;
        s.copy_to_peer(&mut c, &a)
    })?;
    assert_eq!(c.to_vec()?, [3; 1000]);
    drop(again);
    drop((a, b, c, stream, there));
    // The access ends with the context that is accessed.
    let closed = second.close();
    access.close()?;
    closed.and(first.close())
}

/// A context of other code, which stays, and its default stream.
fn borrowed_context(settings: &ReportSettings) -> Result<()> {
    let owner = Context::builder().report(settings.clone()).build()?;
    let builder = Context::builder().report(settings.clone());
    // SAFETY: `owner` is dropped after it, and so after its resources.
    let context = unsafe { builder.build_borrowed(owner.as_raw())? };
    let stream = Stream::default_stream(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
    stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 1))?;
    let event = Event::new(&context)?;
    event.record(&stream)?;
    // SAFETY: released in the same line, in the same context.
    let event = unsafe { Event::from_raw(&context, event.into_raw())? };
    event.synchronize()?;
    drop((buffer, event, stream));
    let closed = context.close();
    closed.and(owner.close())
}

fn views(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut plain = DeviceBuffer::from_slice(&context, &[1_u8; 1000])?;
    let mut ordered = DeviceBuffer::from_slice(&one, &[2_u8; 1000])?;
    let mut third = DeviceBuffer::<u8>::zeroed(&other, 1000)?;
    plain.slice_mut(..500)?.copy_from(ordered.slice(500..)?)?;
    third.copy_from(&ordered)?;
    let (mut front, back) = third.split_at_mut(300)?;
    front.copy_from(back.slice(..300)?)?;
    ordered.slice_mut(1..)?.fill(3)?;
    ordered.zero()?;
    // Larger than what the driver can fill with.
    plain
        .as_view_mut()
        .cast::<[u8; 5]>()?
        .fill([1, 2, 3, 4, 5])?;
    let clones = [plain.try_clone()?, ordered.try_clone()?];
    drop((plain, ordered));
    assert_eq!(clones[0].slice(999..)?.to_vec()?, [5]);
    assert_eq!(clones[1].slice(..2)?.to_vec()?, [0, 0]);
    let words = third.cast::<u32>()?;
    other.scope(|s| s.bind(words.slice(1..)?).map(drop))?;
    words.close()?;
    drop((clones, one, other));
    context.close()
}

/// Copies between two contexts, whose streams are not ordered with each other.
fn two_contexts(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let own = Context::builder()
        .dedicated()
        .report(settings.clone())
        .build()?;
    // The first context is closed although the second may have failed.
    let copies = || -> Result<()> {
        let stream = Stream::new(&own)?;
        let from = DeviceBuffer::from_slice(&context, &[1_u8; 1000])?;
        let mut to = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
        to.slice_mut(500..)?.copy_from(from.slice(..500)?)?;
        assert_eq!(to.slice(499..501)?.to_vec()?, [0, 1]);
        let mut back = from.try_clone()?;
        back.copy_from(&to)
    };
    let copied = copies();
    copied.and(own.close()).and(context.close())
}

fn matrices(settings: &ReportSettings) -> Result<()> {
    let context = primary(settings)?;
    let stream = Stream::new(&context)?;
    let mut matrix = PitchedBuffer::from_slice(&context, 2, 3, &[1_u8, 2, 3, 4, 5, 6])?;
    let clone = matrix.try_clone()?;
    matrix.zero()?;
    matrix.row_mut(1)?.copy_from(clone.row(0)?)?;
    assert_eq!(matrix.to_vec()?, [0, 0, 0, 1, 2, 3]);
    let mut staging = WriteCombinedBuffer::<u8>::zeroed(&context, 1000)?;
    staging.copy_from_slice(&[7; 1000])?;
    let mut managed = ManagedBuffer::<u8>::zeroed(&context, 1000)?;
    managed.advise(ManagedAdvice::ReadMostly)?;
    managed.prefetch(&stream, MemoryLocation::Device(0))?;
    managed.as_view_mut().slice_mut(1..)?.fill(1)?;
    drop((clone, managed));
    staging.close()?;
    matrix.close()?;
    stream.close()?;
    context.close()
}
