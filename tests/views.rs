//! Views of device memory: ranges, partial copies, copies on the device, fills, clones, casts.

use crate::support::*;
use cuguard::driver::DriverKind;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBox, DeviceBuffer, DeviceView, DriverPool, Error, ManagedBuffer, Result, Stream,
    assert_no_leaks,
};
use cuguard_testing::{Requirement, not_run};

const LEN: usize = 1000;

fn numbers() -> Vec<u32> {
    (0..LEN as u32).collect()
}

/// One buffer of each kind with the same values: synchronous, stream-ordered on two streams, of a pool.
fn kinds(context: &Context, streams: [&Stream; 2]) -> Result<Vec<DeviceBuffer<u32>>> {
    let pool = DriverPool::new(context)?;
    Ok(vec![
        DeviceBuffer::from_slice(context, &numbers())?,
        DeviceBuffer::from_slice(streams[0], &numbers())?,
        DeviceBuffer::from_slice(streams[1], &numbers())?,
        DeviceBuffer::from_slice(&pool.on(streams[1]), &numbers())?,
    ])
}

#[test]
fn partial_copies_touch_their_part_alone() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    for mut buffer in kinds(&context, [&one, &other])? {
        let mut expected = numbers();
        assert_eq!(buffer.slice(10..20)?.to_vec()?, expected[10..20]);
        let mut part = [0; 7];
        buffer.slice(993..)?.copy_to_slice(&mut part)?;
        assert_eq!(part, expected[993..]);

        buffer.slice_mut(3..6)?.copy_from_slice(&[7, 8, 9])?;
        expected[3..6].copy_from_slice(&[7, 8, 9]);
        let mut view = buffer.as_view_mut();
        view.slice_mut(500..)?.zero()?;
        expected[500..].fill(0);
        let (mut front, mut back) = view.split_at_mut(100)?;
        front.slice_mut(90..)?.fill(0x0102_0304)?;
        back.slice_mut(..5)?.fill(5)?;
        expected[90..100].fill(0x0102_0304);
        expected[100..105].fill(5);
        assert_eq!(buffer.to_vec()?, expected);
    }
    Ok(())
}

/// Each kind of memory to each other, whole and in parts.
#[test]
fn device_to_device_copies_are_ordered_after_both_streams() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let sources = kinds(&context, [&one, &other])?;
    for (from, source) in sources.iter().enumerate() {
        for (to, mut target) in kinds(&context, [&one, &other])?.into_iter().enumerate() {
            target.fill(u32::MAX)?; // pending on the home stream
            target.copy_from(source)?;
            assert_eq!(target.to_vec()?, numbers(), "{from} to {to}");
            target.zero()?;
            target.slice_mut(1..11)?.copy_from(source.slice(90..100)?)?;
            let mut expected = vec![0; LEN];
            expected[1..11].copy_from_slice(&numbers()[90..100]);
            assert_eq!(target.to_vec()?, expected, "{from} to {to}");
        }
    }
    Ok(())
}

/// A fill that is only enqueued is seen by a copy from the memory, on whatever stream that runs.
#[test]
fn a_copy_sees_a_fill_that_is_pending() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut from = DeviceBuffer::<u8>::zeroed(&one, 8 << 20)?;
    let mut targets = [
        DeviceBuffer::<u8>::zeroed(&context, 8 << 20)?,
        DeviceBuffer::<u8>::zeroed(&other, 8 << 20)?,
    ];
    for (round, target) in targets.iter_mut().enumerate() {
        let value = round as u8 + 1;
        from.fill(value)?;
        target.copy_from(&from)?;
        assert!(target.to_vec()?.iter().all(|byte| *byte == value));
    }
    Ok(())
}

#[test]
fn copies_between_contexts() -> Result<()> {
    let _turn = turn();
    let (one, other) = (context()?, Context::builder().dedicated().build()?);
    let (a, b) = (Stream::new(&one)?, Stream::new(&other)?);
    let (from, ordered) = (
        DeviceBuffer::from_slice(&one, &numbers())?,
        DeviceBuffer::from_slice(&a, &numbers())?,
    );
    let mut targets = [
        DeviceBuffer::<u32>::zeroed(&other, LEN)?,
        DeviceBuffer::<u32>::zeroed(&b, LEN)?,
    ];
    for target in &mut targets {
        for source in [&from, &ordered] {
            target.fill(1)?;
            target.slice_mut(1..)?.copy_from(source.slice(..LEN - 1)?)?;
            assert_eq!(target.slice(..1)?.to_vec()?, [1]);
            assert_eq!(target.slice(1..)?.to_vec()?, numbers()[..LEN - 1]);
        }
    }
    // Nothing to copy, but both contexts must be open.
    let [target, _] = &mut targets;
    target.slice_mut(..0)?.copy_from(from.slice(..0)?)?;
    one.close()?;
    let error = target.copy_from(&from).unwrap_err();
    assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
    let error = target.slice_mut(..0)?.copy_from(from.slice(..0)?);
    assert!(matches!(error, Err(Error::ContextClosed { .. })));
    assert_eq!(target.slice(1..2)?.to_vec()?, [0]);
    Ok(())
}

#[test]
fn fills_of_any_size() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    fn check<T>(context: &Context, stream: &Stream, value: T) -> Result<()>
    where
        T: cust::memory::DeviceCopy + bytemuck::Pod + PartialEq + std::fmt::Debug,
    {
        for len in [0, 1, 2, 3, 100, 1023] {
            let mut buffers = [
                DeviceBuffer::<T>::zeroed(context, len)?,
                DeviceBuffer::<T>::zeroed(stream, len)?,
            ];
            for buffer in &mut buffers {
                buffer.fill(value)?;
                assert_eq!(buffer.to_vec()?, vec![value; len]);
                if len > 2 {
                    buffer.zero()?;
                    buffer.slice_mut(1..len - 1)?.fill(value)?;
                    let mut expected = vec![value; len];
                    (expected[0], expected[len - 1]) = (T::zeroed(), T::zeroed());
                    assert_eq!(buffer.to_vec()?, expected);
                }
            }
        }
        Ok(())
    }
    check(&context, &stream, 0x12_u8)?;
    check(&context, &stream, 0x1234_u16)?;
    check(&context, &stream, 0x1234_5678_u32)?;
    check(&context, &stream, 1.1_f64)?;
    check(&context, &stream, u64::MAX)?;
    check(&context, &stream, [1_u8, 2, 3])?;
    check(&context, &stream, [1_u32, 2, 3])?;
    check(&context, &stream, u128::MAX / 3)?;
    Ok(())
}

/// A fill whose pattern the driver cannot use at this address.
#[test]
fn a_fill_of_misaligned_memory() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 18)?;
    let mut view = buffer.slice_mut(1..17)?.cast::<[u8; 4]>()?;
    view.fill([1, 2, 3, 4])?;
    let mut expected = vec![0; 18];
    for (index, byte) in expected[1..17].iter_mut().enumerate() {
        *byte = index as u8 % 4 + 1;
    }
    assert_eq!(buffer.to_vec()?, expected);

    let stream = Stream::new(&context)?;
    buffer.zero()?;
    stream.scope(|s| {
        let view = buffer.slice_mut(1..17)?.cast::<[u8; 4]>()?;
        s.fill(&mut s.bind_mut(view)?, [1, 2, 3, 4])
    })?;
    assert_eq!(buffer.to_vec()?, expected);
    stream.scope(|s| {
        let view = buffer.slice_mut(3..9)?.cast::<[u8; 2]>()?;
        s.fill(&mut s.bind_mut(view)?, [8, 9])
    })?;
    expected[3..9].copy_from_slice(&[8, 9, 8, 9, 8, 9]);
    assert_eq!(buffer.to_vec()?, expected);
    Ok(())
}

/// Some copies of a fill have begun when a capture of other code prohibits the next: the error is returned when they are
/// done.
#[test]
fn a_fill_that_fails_half_way_leaves_no_work() -> Result<()> {
    if !simulated("a_fill_that_fails_half_way_leaves_no_work") {
        return Ok(());
    }
    let _turn = turn();
    let context = context()?;
    let default = Stream::default_stream(&context)?;
    let mut buffer = DeviceBuffer::<[u8; 3]>::zeroed(&context, 4 << 20)?;
    for nth in 1..=22 {
        let fault = Fault::nth_call_of("cuMemcpyDtoDAsync_v2", nth);
        let fault = sim::inject(fault.returning(CUresult::STREAM_CAPTURE_IMPLICIT)).unwrap();
        assert!(buffer.fill([1, 2, 3]).is_err());
        assert_eq!(fault.fired(), 1);
        assert!(default.is_idle()?, "copy {nth}");
    }
    Ok(())
}

#[test]
fn clones_are_of_the_same_kind() -> Result<()> {
    let turn = turn();
    let context = context()?;
    {
        let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
        let pool = DriverPool::new(&context)?;
        for buffer in kinds(&context, [&one, &other])? {
            let mut copy = buffer.try_clone()?;
            copy.fill(1)?;
            assert_eq!(buffer.to_vec()?, numbers());
            assert_eq!(copy.to_vec()?, [1; LEN]);
        }
        let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&one), 4096)?;
        let used = pool.used_bytes()?;
        let copy = buffer.try_clone()?;
        assert_eq!(pool.used_bytes()?, 2 * used);
        // The source may be dropped while the copy is pending.
        drop(buffer);
        assert_eq!(copy.to_vec()?, [0; 4096]);
        let empty = DeviceBuffer::<u8>::zeroed(&one, 0)?.try_clone()?;
        assert!(empty.is_empty());
        let live = context.snapshot().live;
        let clones = live
            .iter()
            .filter(|group| group.amount.bytes == 4096)
            .count();
        assert_eq!(clones, 1);
    }
    assert_no_leaks!(context);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn views_are_accepted_by_reference() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let source = DeviceBuffer::from_slice(&context, &numbers())?;
    let mut target = DeviceBuffer::<u32>::zeroed(&context, 4)?;
    let view = source.slice(2..6)?;
    #[expect(
        clippy::needless_borrows_for_generic_args,
        reason = "what is tested: a program may do so"
    )]
    target.copy_from(&view)?;
    assert_eq!(target.to_vec()?, [2, 3, 4, 5]);
    let mut host = [0; 4];
    stream.scope(|s| s.download(&mut s.bind_host_mut(&mut host), &s.bind(&view)?))?;
    assert_eq!(host, [2, 3, 4, 5]);
    assert_eq!(view.len(), 4); // still usable
    Ok(())
}

/// A struct of the program, by the traits that the guide lists.
#[test]
fn structs_are_elements() -> Result<()> {
    use bytemuck::{Pod, Zeroable};
    #[derive(Clone, Copy, Debug, PartialEq, cuguard::DeviceCopy, Pod, Zeroable)]
    #[repr(C)]
    struct Pair {
        number: u32,
        weight: f32,
    }
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pair = Pair {
        number: 7,
        weight: 0.5,
    };
    let mut pairs = DeviceBuffer::<Pair>::zeroed(&context, 3)?;
    pairs.slice_mut(1..)?.fill(pair)?;
    stream.scope(|s| s.fill(&mut s.bind_mut(pairs.slice_mut(..1)?)?, pair))?;
    assert_eq!(pairs.to_vec()?, [pair; 3]);
    assert_eq!(pairs.cast::<u32>()?.to_vec()?[4..], [7, 0.5_f32.to_bits()]);
    Ok(())
}

#[test]
fn casts_keep_memory_and_record() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let words = DeviceBuffer::from_slice(&context, &[1_u32, 2, 3])?.with_label("words");
    let bytes = words.cast::<u8>()?;
    assert_eq!(bytes.len(), 12);
    assert_eq!(context.snapshot().live[0].label.as_deref(), Some("words"));
    let odd = bytes.slice(1..9)?;
    let error = odd.cast::<u32>().unwrap_err();
    assert!(matches!(error, Error::Cast { align: 4, .. }), "{error}");
    let error = bytes.slice(..7)?.cast::<u32>().unwrap_err();
    assert!(matches!(error, Error::Cast { bytes: 7, .. }), "{error}");
    assert!(bytes.slice(..0)?.cast::<[u8; 0]>().is_err());
    assert_eq!(odd.cast::<[u8; 2]>()?.to_vec()?[0], [0, 0]);
    assert_eq!(bytes.as_view().cast::<u32>()?.to_vec()?, [1, 2, 3]);
    // On failure the buffer is freed.
    assert!(bytes.cast::<u64>().is_err());
    assert_no_leaks!(context);
    Ok(())
}

#[test]
fn ranges_outside_are_errors() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 4)?;
    assert!(buffer.slice(5..).is_err() && buffer.slice(..=4).is_err());
    #[expect(clippy::reversed_empty_ranges, reason = "the error is tested")]
    let reversed = buffer.slice(3..2).unwrap_err().to_string();
    assert_eq!(
        reversed,
        "DeviceBuffer::slice: the range 3..2 ends before it begins"
    );
    assert!(buffer.split_at(5).is_err() && buffer.split_at_mut(5).is_err());
    assert!(buffer.split_at(4).is_ok());
    let mut view = buffer.as_view_mut();
    assert!(view.slice_mut(..5).is_err() && view.slice(..=usize::MAX).is_err());
    let mut part = view.slice_mut(1..3)?;
    let error = part.slice_mut(..3).unwrap_err().to_string();
    assert_eq!(
        error,
        "DeviceViewMut::slice_mut: the range 0..3 exceeds the view's 2 elements"
    );
    let error = part.copy_from_slice(&[1]).unwrap_err().to_string();
    assert_eq!(
        error,
        "DeviceViewMut::copy_from_slice: the source has 1 element, the view 2"
    );
    assert!(part.copy_to_slice(&mut [0; 3]).is_err());
    let other = DeviceBuffer::<u8>::zeroed(&context, 3)?;
    let error = part.copy_from(&other).unwrap_err().to_string();
    assert_eq!(
        error,
        "DeviceViewMut::copy_from: the source has 3 elements, the view 2"
    );
    Ok(())
}

#[test]
fn views_of_a_closed_context_fail() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffers = [
        DeviceBuffer::<u8>::zeroed(&context, 4)?,
        DeviceBuffer::<u8>::zeroed(&stream, 4)?,
    ];
    let other = DeviceBuffer::<u8>::zeroed(&context, 4)?;
    context.close()?;
    for buffer in &mut buffers {
        let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
        assert!(closed(buffer.slice(1..)?.to_vec().map(drop)));
        assert!(closed(buffer.try_clone().map(drop)));
        let mut view = buffer.slice_mut(1..)?;
        assert!(closed(view.copy_from_slice(&[0; 3])));
        assert!(closed(view.copy_from(other.slice(1..)?)));
        assert!(closed(view.fill(1)) && closed(view.zero()));
        assert!(closed(view.slice_mut(..0)?.zero()));
    }
    Ok(())
}

#[test]
fn views_of_values_without_size() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::<[u8; 0]>::zeroed(&context, usize::MAX)?;
    let (front, back) = buffer.split_at(10)?;
    assert_eq!((front.len(), back.len()), (10, usize::MAX - 10));
    assert_eq!(front.to_vec()?.len(), 10);
    buffer.slice_mut(..5)?.fill([])?;
    buffer.zero()?;
    assert_eq!(buffer.try_clone()?.len(), usize::MAX);
    Ok(())
}

/// Two threads write to two parts at the same time.
#[test]
fn parts_on_several_threads() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let (mut front, mut back) = buffer.split_at_mut(LEN / 2)?;
    std::thread::scope(|scope| {
        let one = scope.spawn(|| front.fill(1));
        let other = scope.spawn(|| back.fill(2));
        one.join().expect("no panic")?;
        other.join().expect("no panic")
    })?;
    let values = buffer.to_vec()?;
    assert!(values[..LEN / 2].iter().all(|value| *value == 1));
    assert!(values[LEN / 2..].iter().all(|value| *value == 2));
    Ok(())
}

/// `cust` writes stream-ordered memory on the default stream; views see it.
#[test]
fn views_are_ordered_after_cust() -> Result<()> {
    use cust::memory::CopyDestination;

    let _turn = turn();
    let context = context()?;
    let _current = context.make_current()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 8 << 20)?;
    for value in 1..4 {
        CopyDestination::copy_from(&mut *buffer, &vec![value; 8 << 20])?;
        let copy = buffer.try_clone()?;
        assert!(copy.to_vec()?.iter().all(|byte| *byte == value));
        assert_eq!(buffer.slice(100..101)?.to_vec()?, [value]);
        buffer.slice_mut(1..)?.zero()?;
        assert_eq!(buffer.slice(..2)?.to_vec()?, [value, 0]);
    }
    Ok(())
}

#[test]
fn copies_between_two_devices() -> Result<()> {
    const TEST: &str = "copies_between_two_devices";
    let loaded = cuguard::driver::load().expect("a driver");
    if loaded.kind() != DriverKind::Simulated {
        not_run(Requirement::TwoDevices, "");
        return Ok(());
    }
    if part().is_none() {
        let devices = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "devices=2")];
        succeeded(&child(TEST, "two devices", &devices));
        return Ok(());
    }
    let (first, second) = (Context::new(0)?, Context::new(1)?);
    let stream = Stream::new(&second)?;
    let mut from = DeviceBuffer::from_slice(&first, &numbers())?;
    let mut to = DeviceBuffer::<u32>::zeroed(&stream, LEN)?;
    to.slice_mut(1..)?.copy_from(from.slice(..LEN - 1)?)?;
    assert_eq!(to.slice(1..)?.to_vec()?, numbers()[..LEN - 1]);
    fn sum(values: DeviceView<'_, u32>) -> Result<u32> {
        Ok(values.to_vec()?.iter().sum())
    }
    from.copy_from(&to)?;
    assert_eq!(sum(from.as_view())?, sum(to.as_view())?);
    drop((from, to, stream));
    assert_no_leaks!(first);
    assert_no_leaks!(second);
    Ok(())
}

#[test]
fn views_can_be_bound_in_scopes() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (one, other) = (Stream::new(&context)?, Stream::new(&context)?);
    for mut buffer in kinds(&context, [&one, &other])? {
        let mut seen = [0; 4];
        one.scope(|s| {
            let (front, back) = buffer.split_at_mut(10)?;
            s.zero(&mut s.bind_mut(front.into_slice(1..)?)?)?;
            let back = s.bind(back.into_view())?;
            s.download(&mut s.bind_host_mut(&mut seen), &back.slice(..4)?)
        })?;
        assert_eq!(seen, numbers()[10..14]);
        let mut expected = numbers();
        expected[1..10].fill(0);
        assert_eq!(buffer.to_vec()?, expected);
        // Bound before the scope, and used after it.
        let mut view = buffer.as_view_mut();
        other.scope(|s| s.fill(&mut s.bind_mut(view.reborrow())?, 3))?;
        assert_eq!(view.slice(..2)?.to_vec()?, [3, 3]);
        let shared = buffer.slice(1..3)?;
        let mut two = [0; 2];
        other.scope(|s| s.download(&mut s.bind_host_mut(&mut two), &s.bind(shared)?))?;
        assert_eq!((two, shared.len()), ([3, 3], 2));
    }
    Ok(())
}

#[test]
fn boxes_and_managed_memory_have_views() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut managed = ManagedBuffer::from_slice(&context, &[1_u32, 2, 3, 4])?;
    let mut boxed = DeviceBox::new(&context, &7_u32)?;
    let mut buffers = [
        DeviceBuffer::<u32>::zeroed(&context, 4)?,
        DeviceBuffer::<u32>::zeroed(&stream, 4)?,
    ];
    for buffer in &mut buffers {
        buffer.copy_from(&managed)?;
        buffer.slice_mut(3..)?.copy_from(&boxed)?;
        assert_eq!(buffer.to_vec()?, [1, 2, 3, 7]);
    }
    boxed
        .as_view_mut()
        .copy_from(managed.as_view().slice(2..3)?)?;
    assert_eq!(boxed.get()?, 3);
    assert_eq!(boxed.try_clone()?.get()?, 3);
    managed
        .as_view_mut()
        .slice_mut(..3)?
        .copy_from(buffers[1].slice(1..)?)?;
    assert_eq!(managed.as_slice(&context)?, [2, 3, 7, 4]);
    managed.as_view_mut().fill(9)?;
    assert_eq!(managed.as_view().to_vec()?, [9; 4]);
    assert_eq!(managed.as_slice(&context)?, [9; 4]);
    Ok(())
}
