//! Memory as the driver allocates it: managed memory with prefetches and advice, write-combined memory, and the alignment
//! of device memory.

use std::ffi::c_void;

use crate::support::*;
use cuguard::driver::api;
use cuguard::driver::sys::mem_range_attribute;
use cuguard::memory::{ManagedAdvice, MemoryLocation, WriteCombinedBuffer};
use cuguard::scope::DeviceMut;
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DriverPool, Error, ManagedBuffer, Pool, ResourceKind, Result,
    Scope, Stream, assert_no_leaks,
};

const LEN: usize = 5000;

/// A range attribute, as the driver reports it.
fn attribute(context: &Context, buffer: &ManagedBuffer<u8>, attribute: u32) -> i32 {
    let _current = context.make_current().unwrap();
    let (mut value, address) = (0_i32, buffer.as_device_ptr().as_raw());
    let out: *mut c_void = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the variable has four bytes, and the range is managed memory.
    let code = unsafe { api::cuMemRangeGetAttribute(out, 4, attribute, address, buffer.len()) };
    assert!(code.is_success(), "{code}");
    value
}

#[test]
fn advice_reaches_the_driver() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let buffer = ManagedBuffer::<u8>::zeroed(&context, LEN)?;
    let is = |which| attribute(&context, &buffer, which);
    assert_eq!(is(mem_range_attribute::READ_MOSTLY), 0);
    buffer.advise(ManagedAdvice::ReadMostly)?;
    assert_eq!(is(mem_range_attribute::READ_MOSTLY), 1);
    buffer.advise(ManagedAdvice::NotReadMostly)?;
    assert_eq!(is(mem_range_attribute::READ_MOSTLY), 0);

    const HOST: i32 = -1;
    let preferred = mem_range_attribute::PREFERRED_LOCATION;
    buffer.advise(ManagedAdvice::PreferredLocation(MemoryLocation::Device(0)))?;
    assert_eq!(is(preferred), 0);
    buffer.advise(ManagedAdvice::PreferredLocation(MemoryLocation::Host))?;
    assert_eq!(is(preferred), HOST);
    buffer.advise(ManagedAdvice::NoPreferredLocation)?;
    assert!(is(preferred) < HOST);

    let accessed = mem_range_attribute::ACCESSED_BY;
    buffer.advise(ManagedAdvice::AccessedBy(MemoryLocation::Device(0)))?;
    assert_eq!(is(accessed), 0);
    buffer.advise(ManagedAdvice::NotAccessedBy(MemoryLocation::Device(0)))?;
    assert!(is(accessed) < HOST);
    Ok(())
}

#[test]
fn prefetches_are_in_stream_order_and_keep_the_values() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = ManagedBuffer::from_slice(&context, &[7_u8; LEN])?;
    let last = mem_range_attribute::LAST_PREFETCH_LOCATION;
    buffer.prefetch(&stream, MemoryLocation::Device(0))?;
    stream.scope(|s| s.fill(&mut s.bind_mut(buffer.as_view_mut().into_slice(1..)?)?, 8))?;
    assert_eq!(attribute(&context, &buffer, last), 0);
    buffer.prefetch(&stream, MemoryLocation::Host)?;
    stream.synchronize()?;
    assert_eq!(attribute(&context, &buffer, last), -1);
    let values = buffer.as_slice(&context)?;
    assert_eq!((values[0], &values[1..]), (7, &[8; LEN - 1][..]));
    // A prefetch may be pending when the memory is freed.
    buffer.prefetch(&stream, MemoryLocation::Device(0))?;
    buffer.close()?;
    drop(stream);
    assert_no_leaks!(context);
    Ok(())
}

#[test]
fn bad_prefetches_and_advice_are_errors() -> Result<()> {
    let _turn = turn();
    let (context, other) = (context()?, Context::builder().dedicated().build()?);
    let (stream, foreign) = (Stream::new(&context)?, Stream::new(&other)?);
    let buffer = ManagedBuffer::<u8>::zeroed(&context, LEN)?;
    let nowhere = MemoryLocation::Device(1000);
    let error = buffer.prefetch(&stream, nowhere).unwrap_err();
    assert!(
        matches!(error, Error::NoSuchDevice { ordinal: 1000, .. }),
        "{error}"
    );
    for advice in [
        ManagedAdvice::PreferredLocation(nowhere),
        ManagedAdvice::AccessedBy(nowhere),
        ManagedAdvice::NotAccessedBy(nowhere),
    ] {
        let error = buffer.advise(advice).unwrap_err();
        assert!(matches!(error, Error::NoSuchDevice { .. }), "{error}");
    }
    let error = buffer.prefetch(&foreign, MemoryLocation::Host).unwrap_err();
    assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    // Nothing to do, but the location must exist.
    let empty = ManagedBuffer::<u8>::zeroed(&context, 0)?;
    empty.prefetch(&stream, MemoryLocation::Device(0))?;
    empty.advise(ManagedAdvice::ReadMostly)?;
    assert!(empty.prefetch(&stream, nowhere).is_err());
    drop((buffer, empty, stream));
    let buffer = ManagedBuffer::<u8>::zeroed(&context, LEN)?;
    context.close()?;
    let error = buffer.advise(ManagedAdvice::ReadMostly).unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    Ok(())
}

#[test]
fn write_combined_memory_is_uploaded_and_freed() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    {
        let stream = Stream::new(&context)?;
        let mut staging = WriteCombinedBuffer::<u32>::zeroed(&context, LEN)?.with_label("staging");
        let live = &context.snapshot().live;
        let group = live
            .iter()
            .find(|group| group.kind == ResourceKind::WriteCombined);
        let group = group.expect("it is recorded");
        assert_eq!(group.amount.bytes, 4 * LEN as u64);
        assert_eq!(group.label.as_deref(), Some("staging"));
        let mut buffer = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
        for round in 0..3_u32 {
            let values: Vec<u32> = (round..round + LEN as u32).collect();
            staging.copy_from_slice(&values)?;
            let staged = staging.as_slice(&context)?;
            stream.scope(|s| s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(staged)))?;
            assert_eq!(buffer.to_vec()?, values);
        }
        staging.as_mut_slice(&context)?[0] = 17;
        assert_eq!(staging.as_slice(&context)?[0], 17);
        let error = staging.copy_from_slice(&[1]).unwrap_err();
        assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
        staging.close()?;
        assert!(WriteCombinedBuffer::<u32>::zeroed(&context, 0)?.is_empty());
        drop(WriteCombinedBuffer::from_slice(&context, &[1.5_f64; 10])?);
    }
    assert_no_leaks!(context);
    before.all_freed();
    Ok(())
}

/// A close of the context frees it, so the host gets no access any more.
#[test]
fn write_combined_memory_of_a_closed_context() -> Result<()> {
    let _turn = turn();
    let other = Context::builder().dedicated().build()?;
    let before = in_hand(&other)?;
    let context = Context::builder().dedicated().build()?;
    let mut buffer = WriteCombinedBuffer::<u8>::zeroed(&context, LEN)?;
    let error = buffer.as_slice(&other).unwrap_err();
    assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    context.close()?;
    before.all_freed();
    let error = buffer.copy_from_slice(&[0; LEN]).unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    assert!(buffer.as_mut_slice(&other).is_err());
    let error = buffer.close().unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    Ok(())
}

#[test]
fn write_combined_memory_beyond_the_host_is_an_error() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let error = WriteCombinedBuffer::<u64>::zeroed(&context, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");
    let error = WriteCombinedBuffer::<u8>::zeroed(&context, 1 << 50).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    #[derive(Clone, Copy)]
    #[repr(align(65536))]
    struct Aligned {
        _bytes: [u8; 65536],
    }
    // SAFETY: plain bytes.
    unsafe impl cust::memory::DeviceCopy for Aligned {}
    // SAFETY: as above.
    unsafe impl bytemuck::Zeroable for Aligned {}
    // Whether the driver's address is aligned to so much is its own business.
    match WriteCombinedBuffer::<Aligned>::zeroed(&context, 1) {
        Ok(buffer) => {
            let start = buffer.as_slice(&context)?.as_ptr();
            assert!(start.is_aligned());
        }
        Err(error) => assert!(matches!(error, Error::Misaligned { .. }), "{error}"),
    }
    assert_no_leaks!(context);
    Ok(())
}

/// More than any driver aligns to, and more than blocks of pools are aligned to.
#[derive(Clone, Copy)]
#[repr(C, align(65536))]
struct Wide([u8; 65536]);

// SAFETY: plain bytes.
unsafe impl cust::memory::DeviceCopy for Wide {}
// SAFETY: as above.
unsafe impl bytemuck::Zeroable for Wide {}

const WIDE: usize = 4;

/// Blocks in between, so that addresses vary.
const BETWEEN: usize = 272 << 10;

/// Counts the allocations that were refused. Those that succeed are aligned.
#[derive(Default)]
struct Refusals(u32);

impl Refusals {
    #[track_caller]
    fn check(&mut self, what: &str, allocated: Result<u64>) {
        match allocated {
            Ok(address) => assert!(address.is_multiple_of(65536), "{what}: {address:#x}"),
            Err(error @ Error::Misaligned { .. }) => {
                assert!(error.to_string().starts_with(what), "{what}: {error}");
                self.0 += 1;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn check_scratch<'scope>(&mut self, s: &'scope Scope<'scope, '_>) -> Result<()> {
        let address = |memory: DeviceMut<'scope, Wide>| memory.as_device_ptr().as_raw();
        s.zeroed::<u8>(BETWEEN)?;
        self.check("Scope::zeroed", s.zeroed(WIDE).map(address));
        s.zeroed::<u8>(BETWEEN)?;
        // SAFETY: never read.
        let uninitialized = unsafe { s.uninitialized(WIDE) };
        self.check("Scope::uninitialized", uninitialized.map(address));
        Ok(())
    }
}

/// A way to allocate, and the function that an error names.
type Constructor<'a> = (&'static str, &'a dyn Fn() -> Result<DeviceBuffer<Wide>>);

/// Kernels with typed parameters get the address of device memory, which must be aligned for its type.
#[test]
fn device_memory_is_aligned_for_its_type_or_refused() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let pooled = Context::builder().dedicated().pool(Pool::builder());
    let pooled = pooled.build()?;
    let mut refusals = Refusals::default();
    {
        let stream = Stream::new(&context)?;
        let (pool, driver_pool) = (Pool::new(&context)?, DriverPool::new(&context)?);
        let source = driver_pool.on(&stream);
        let values = vec![Wide([7; 65536]); WIDE];
        // SAFETY: never read.
        let uninitialized = || unsafe { DeviceBuffer::uninitialized(&context, WIDE) };
        // SAFETY: never read.
        let uninitialized_on = || unsafe { DeviceBuffer::uninitialized(&stream, WIDE) };
        // SAFETY: never read.
        let uninitialized_in = || unsafe { DeviceBuffer::uninitialized(&pool, WIDE) };
        let constructors: [Constructor<'_>; 13] = [
            ("DeviceBuffer::from_slice", &|| {
                DeviceBuffer::from_slice(&context, &values)
            }),
            ("DeviceBuffer::zeroed", &|| {
                DeviceBuffer::zeroed(&context, WIDE)
            }),
            ("DeviceBuffer::uninitialized", &uninitialized),
            ("DeviceBox::new", &|| {
                Ok(DeviceBox::new(&context, &values[0])?.into_buffer())
            }),
            ("DeviceBuffer::from_slice", &|| {
                DeviceBuffer::from_slice(&stream, &values)
            }),
            ("DeviceBuffer::zeroed", &|| {
                DeviceBuffer::zeroed(&stream, WIDE)
            }),
            ("DeviceBuffer::uninitialized", &uninitialized_on),
            ("DeviceBuffer::from_slice", &|| {
                DeviceBuffer::from_slice(&source, &values)
            }),
            ("DeviceBuffer::zeroed", &|| {
                DeviceBuffer::zeroed(&source, WIDE)
            }),
            ("DeviceBuffer::zeroed", &|| {
                DeviceBuffer::zeroed(&pool, WIDE)
            }),
            ("DeviceBuffer::uninitialized", &uninitialized_in),
            ("DeviceBuffer::zeroed", &|| {
                DeviceBuffer::zeroed(&pooled, WIDE)
            }),
            ("DeviceBox::new", &|| {
                Ok(DeviceBox::new(&pooled, &values[0])?.into_buffer())
            }),
        ];
        let mut kept = Vec::new();
        for _ in 0..4 {
            for (what, allocate) in constructors {
                kept.push(DeviceBuffer::<u8>::zeroed(&context, BETWEEN)?);
                kept.push(DeviceBuffer::<u8>::zeroed(&pooled, BETWEEN)?);
                kept.push(DeviceBuffer::<u8>::zeroed(&stream, BETWEEN)?);
                kept.push(DeviceBuffer::<u8>::zeroed(&source, BETWEEN)?);
                kept.push(DeviceBuffer::<u8>::zeroed(&pool, BETWEEN)?);
                let live = (context.live_count(), pooled.live_count());
                let allocated = allocate();
                refusals.check(
                    what,
                    allocated.map(|buffer| buffer.as_view().as_device_ptr().as_raw()),
                );
                let now = (context.live_count(), pooled.live_count());
                assert_eq!(now, live, "{what}: nothing stays allocated");
            }
            stream.scope(|s| refusals.check_scratch(s))?;
            drop(stream.capture(|c| refusals.check_scratch(c))?);
        }
    }
    // The simulated GPU aligns to 512 bytes.
    if simulated("the count of refusals in device_memory_is_aligned_for_its_type_or_refused") {
        assert!(refusals.0 > 0);
    }
    // No values need no memory.
    assert!(DeviceBuffer::<Wide>::zeroed(&context, 0)?.is_empty());
    pooled.close()?;
    context.close()?;
    turn.all_came_back();
    Ok(())
}
