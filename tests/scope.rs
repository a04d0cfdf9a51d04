//! Scopes: what is borrowed stays borrowed until the stream has done its work, whatever happens.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, DeviceBox, DeviceBuffer, Error, Event, PinnedBuffer, Result, Stream};

const LEN: usize = 10_000;

fn numbers() -> Vec<u32> {
    (0..LEN as u32)
        .map(|i| i.wrapping_mul(2654435761))
        .collect()
}

/// A buffer with numbers, and pinned memory to copy them to. Pinned: the copy is in flight until
/// somebody waits.
fn buffer_and_target(context: &Context) -> Result<(DeviceBuffer<u32>, PinnedBuffer<u32>)> {
    let buffer = DeviceBuffer::from_slice(context, &numbers())?;
    Ok((buffer, PinnedBuffer::zeroed(context, LEN)?))
}

#[test]
fn up_and_down_over_one_buffer() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let (input, mut output) = (numbers(), vec![0; LEN]);
    let mut buffer = DeviceBuffer::zeroed(&context, LEN)?;
    stream.scope(|s| {
        let (input, mut output) = (s.bind_host(&input), s.bind_host_mut(&mut output));
        let mut data = s.bind_mut(&mut buffer)?;
        s.upload(&mut data, &input)?;
        s.download(&mut output, &data)
    })?;
    assert_eq!(output, input);
    assert_eq!(buffer.to_vec()?, input);
    drop((buffer, stream));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_scope_waits_at_its_end() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (buffer, mut target) = buffer_and_target(&context)?;
    let gate = Gate::on(&context, &stream);
    let opener = stream.scope(|s| {
        s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
        // Given to the stream without waiting for it.
        assert!(!gate.is_open() && !stream.is_idle()?);
        Ok(gate.open_later())
    })?;
    assert!(gate.is_open());
    assert_eq!(*target, numbers());
    opener.join().unwrap();
    Ok(())
}

#[test]
fn a_scope_waits_when_its_closure_panics() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let stream = Stream::new(&context)?;
    let (buffer, mut target) = buffer_and_target(&context)?;
    let gate = Gate::on(&context, &stream);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|s| {
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
            gate.open_later();
            resume_unwind(Box::new("on purpose")) as Result<()>
        })
    }));
    assert!(unwound.is_err());
    assert!(gate.is_open());
    assert_eq!(*target, numbers());
    // All goes on as before.
    stream.scope(|s| s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?))?;
    drop((buffer, target, stream));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_scope_waits_when_its_closure_answers_an_error() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (buffer, mut target) = buffer_and_target(&context)?;
    let mut small = [0_u32; 3];
    let gate = Gate::on(&context, &stream);
    let result = stream.scope(|s| {
        let data = s.bind(&buffer)?;
        s.download(&mut s.bind_host_mut(&mut target), &data)?;
        gate.open_later();
        s.download(&mut s.bind_host_mut(&mut small), &data)
    });
    assert!(
        matches!(result, Err(Error::LengthMismatch { .. })),
        "{result:?}"
    );
    assert!(gate.is_open());
    assert_eq!(*target, numbers());
    Ok(())
}

#[test]
fn the_context_may_be_closed_inside_its_own_scope() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (mut buffer, mut target) = buffer_and_target(&context)?;
    let gate = Gate::on(&context, &stream);
    stream.scope(|s| {
        let mut data = s.bind_mut(&mut buffer)?;
        let mut target = s.bind_host_mut(&mut target);
        s.download(&mut target, &data)?;
        gate.open_later();
        context.close()?;
        // It has waited for the work.
        assert!(gate.is_open());
        let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
        assert!(closed(s.download(&mut target, &data)));
        assert!(closed(s.upload(&mut data, &target)));
        assert!(closed(s.zero(&mut data)));
        assert!(closed(s.fill(&mut data, 1)));
        let (mut front, back) = data.split_at(LEN / 2)?;
        assert!(closed(s.copy(&mut front, &back)));
        Ok(())
    })?;
    assert_eq!(*target, numbers());
    turn.all_came_back();
    // A scope on a stream whose context is gone.
    let mut more = [0_u8; 3];
    let result = stream.scope(|s| {
        assert_eq!(s.bind_host_mut(&mut more).len(), 3);
        s.bind(&buffer).map(drop)
    });
    assert!(
        matches!(result, Err(Error::ContextClosed { .. })),
        "{result:?}"
    );
    stream.scope(|_| Ok(()))
}

#[test]
fn the_context_may_be_closed_by_another_thread_while_a_scope_runs() -> Result<()> {
    let turn = turn();
    for round in 0..50 {
        let context = context()?;
        let stream = Stream::new(&context)?;
        let (mut buffer, target) = buffer_and_target(&context)?;
        std::thread::scope(|threads| {
            threads.spawn(move || {
                std::thread::sleep(std::time::Duration::from_micros(round * 20));
                context.close().unwrap();
            });
            let result = stream.scope(|s| {
                let mut data = s.bind_mut(&mut buffer)?;
                let target = s.bind_host(&target);
                loop {
                    s.upload(&mut data, &target)?;
                }
            });
            let result: Result<()> = result;
            assert!(
                matches!(result, Err(Error::ContextClosed { .. })),
                "{result:?}"
            );
        });
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn scopes_on_several_streams_run_side_by_side() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let streams = [Stream::new(&context)?, Stream::new(&context)?];
    let source = DeviceBuffer::from_slice(&context, &numbers())?;
    let mut targets = [
        PinnedBuffer::zeroed(&context, LEN)?,
        PinnedBuffer::zeroed(&context, LEN)?,
    ];
    let [one, two] = &mut targets;
    let gate = Gate::on(&context, &streams[0]);
    streams[0].scope(|s1| {
        s1.download(&mut s1.bind_host_mut(one), &s1.bind(&source)?)?;
        // The second does its work, and ends, while the first is held up.
        streams[1].scope(|s2| s2.download(&mut s2.bind_host_mut(two), &s2.bind(&source)?))?;
        assert_eq!(**two, numbers());
        assert!(!streams[0].is_idle()?);
        gate.open();
        Ok(())
    })?;
    assert_eq!(*targets[0], numbers());
    drop((targets, source, streams));

    // The same on threads, many times.
    std::thread::scope(|threads| {
        for thread in 0..8_u32 {
            let context = &context;
            threads.spawn(move || {
                let stream = Stream::new(context).unwrap();
                let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, LEN).unwrap();
                let mut target = PinnedBuffer::<u32>::zeroed(context, LEN).unwrap();
                for round in 0..20 {
                    let work = stream.scope(|s| {
                        let mut data = s.bind_mut(&mut buffer)?;
                        s.fill(&mut data, thread * 100 + round)?;
                        s.download(&mut s.bind_host_mut(&mut target), &data)
                    });
                    work.unwrap();
                    assert_eq!(*target, [thread * 100 + round; LEN]);
                }
            });
        }
    });
    assert_eq!(context.live_count(), 0);
    context.synchronize()?;
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn events_put_the_work_of_scopes_in_order() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    let (uploaded, done) = (Event::without_timing(&context)?, Event::new(&context)?);
    let (mut one, mut two) = (DeviceBox::new(&context, &0)?, DeviceBox::new(&context, &0)?);
    let gate = Gate::on(&context, &first);
    first.scope(|s1| {
        s1.fill(&mut s1.bind_mut(&mut one)?, 1)?;
        s1.record(&uploaded)?;
        second.scope(|s2| {
            s2.wait(&uploaded)?;
            s2.fill(&mut s2.bind_mut(&mut two)?, 2)?;
            s2.record(&done)?;
            assert!(!done.is_complete()? && !second.is_idle()?);
            gate.open_later();
            Ok(())
        })?;
        // The second has waited for the first.
        assert!(gate.is_open() && uploaded.is_complete()? && done.is_complete()?);
        Ok(())
    })?;
    assert_eq!((one.get()?, two.get()?), (1, 2));
    Ok(())
}

#[test]
fn a_buffer_of_another_stream_is_used_after_it_was_made() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let before = in_hand(&context)?;
    let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut target = PinnedBuffer::from_slice(&context, &[9_u32; LEN])?;
    let gate = Gate::on(&context, &home);
    // Allocated and cleared when the gate opens, not before.
    let mut buffer = DeviceBuffer::<u32>::zeroed(&home, LEN)?;
    other.scope(|s| {
        let mut data = s.bind_mut(&mut buffer)?;
        s.download(&mut s.bind_host_mut(&mut target), &data)?;
        s.fill(&mut data, 5)?;
        assert!(!other.is_idle()?);
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(*target, [0; LEN]);
    assert_eq!(buffer.to_vec()?, [5; LEN]);
    // Freed on its home stream; the scope on the other one has waited.
    drop((buffer, target));
    home.synchronize()?;
    drop((home, other));
    before.all_freed();
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn memory_of_another_context_is_refused() -> Result<()> {
    let _turn = turn();
    let (one, two) = (context()?, Context::builder().dedicated().build()?);
    let stream = Stream::new(&one)?;
    let mut foreign = DeviceBuffer::<u8>::zeroed(&two, 10)?;
    let mut twin = DeviceBuffer::<u8>::zeroed(&context()?, 10)?;
    let event = Event::new(&two)?;
    let wrong = |result: Result<()>| matches!(result, Err(Error::WrongContext { .. }));
    stream.scope(|s| {
        assert!(wrong(s.bind_mut(&mut foreign).map(drop)));
        assert!(wrong(s.bind_mut(&mut twin).map(drop)));
        assert!(wrong(s.record(&event)));
        assert!(wrong(s.wait(&event)));
        Ok(())
    })
}

#[test]
fn lengths_must_agree() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (mut three, four) = (
        DeviceBuffer::<u8>::zeroed(&context, 3)?,
        DeviceBuffer::<u8>::zeroed(&context, 4)?,
    );
    let (input, mut output) = ([0_u8; 2], [0_u8; 5]);
    stream.scope(|s| {
        let (mut three, four) = (s.bind_mut(&mut three)?, s.bind(&four)?);
        let mismatch = |result: Result<()>| match result.unwrap_err() {
            Error::LengthMismatch {
                expected, actual, ..
            } => (expected, actual),
            error => panic!("{error:?}"),
        };
        assert_eq!(mismatch(s.upload(&mut three, &s.bind_host(&input))), (3, 2));
        assert_eq!(
            mismatch(s.download(&mut s.bind_host_mut(&mut output), &four)),
            (4, 5)
        );
        assert_eq!(mismatch(s.copy(&mut three, &four)), (3, 4));
        Ok(())
    })
}

#[test]
fn nothing_is_copied_where_there_is_nothing() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut empty = DeviceBuffer::<u64>::zeroed(&context, 0)?;
    let mut on_stream = DeviceBuffer::<u64>::zeroed(&stream, 0)?;
    let mut sizeless = DeviceBuffer::<()>::zeroed(&context, 1000)?;
    let (mut no_numbers, mut units) = ([0_u64; 0], [(); 1000]);
    stream.scope(|s| {
        let (mut empty, mut on_stream) = (s.bind_mut(&mut empty)?, s.bind_mut(&mut on_stream)?);
        let mut host = s.bind_host_mut(&mut no_numbers);
        s.upload(&mut empty, &host)?;
        s.copy(&mut on_stream, &empty)?;
        s.zero(&mut on_stream)?;
        s.download(&mut host, &on_stream)?;
        let mut sizeless = s.bind_mut(&mut sizeless)?;
        let mut host = s.bind_host_mut(&mut units);
        s.upload(&mut sizeless, &host)?;
        s.zero(&mut sizeless)?;
        s.download(&mut host, &sizeless)?;
        let (one, two) = sizeless.split_at(400)?;
        assert_eq!((one.len(), two.len(), empty.is_empty()), (400, 600, true));
        Ok(())
    })
}

#[test]
fn one_binding_serves_many_operations() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut staging = PinnedBuffer::from_slice(&context, &[1_u32, 2, 3, 4])?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&context, 8)?;
    stream.scope(|s| {
        let mut staging = s.bind_host_mut(&mut staging);
        let (mut front, mut back) = s.bind_mut(&mut buffer)?.split_at(4)?;
        s.upload(&mut front, &staging)?;
        s.copy(&mut back, &front)?;
        s.fill_bytes(&mut front, 0xff)?;
        s.download(&mut staging, &front)?;
        s.upload(&mut front, &staging)?;
        s.download(&mut staging, &back)?;
        let mut middle = back.slice(1..=2)?;
        s.zero(&mut middle)
    })?;
    assert_eq!(
        buffer.to_vec()?,
        [u32::MAX, u32::MAX, u32::MAX, u32::MAX, 1, 0, 0, 4]
    );
    assert_eq!(*staging, [1, 2, 3, 4]);
    Ok(())
}

#[test]
fn fills_set_values_of_each_size() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut bytes = DeviceBuffer::<i8>::zeroed(&context, 5)?;
    let mut shorts = DeviceBuffer::<u16>::zeroed(&context, 5)?;
    let mut floats = DeviceBuffer::<f32>::zeroed(&context, 5)?;
    let mut pairs = DeviceBuffer::<[u16; 2]>::zeroed(&context, 5)?;
    let mut doubles = DeviceBuffer::<f64>::from_slice(&context, &[1.5; 5])?;
    stream.scope(|s| {
        s.fill(&mut s.bind_mut(&mut bytes)?, -3)?;
        s.fill(&mut s.bind_mut(&mut shorts)?.slice(1..)?, 0x1234)?;
        s.fill(&mut s.bind_mut(&mut floats)?, -0.25)?;
        s.fill(&mut s.bind_mut(&mut pairs)?.slice(..3)?, [1, 2])?;
        s.zero(&mut s.bind_mut(&mut doubles)?.slice(4..)?)
    })?;
    assert_eq!(bytes.to_vec()?, [-3; 5]);
    assert_eq!(shorts.to_vec()?, [0, 0x1234, 0x1234, 0x1234, 0x1234]);
    assert_eq!(floats.to_vec()?, [-0.25; 5]);
    assert_eq!(pairs.to_vec()?, [[1, 2], [1, 2], [1, 2], [0, 0], [0, 0]]);
    assert_eq!(doubles.to_vec()?, [1.5, 1.5, 1.5, 1.5, 0.0]);
    Ok(())
}

#[test]
fn a_part_beyond_the_end_is_an_error_and_the_scope_still_waits() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let (buffer, mut target) = buffer_and_target(&context)?;
    let gate = Gate::on(&context, &stream);
    let result = stream.scope(|s| {
        s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)?;
        gate.open_later();
        s.bind(&buffer)?.slice(3..LEN + 1).map(drop)
    });
    let end = LEN + 1;
    assert_eq!(
        result.unwrap_err().to_string(),
        format!("DeviceRef::slice: the range 3..{end} exceeds the memory's {LEN} elements")
    );
    assert!(gate.is_open());
    assert_eq!(*target, numbers());
    let mut buffer = buffer;
    let result = stream.scope(|s| s.bind_mut(&mut buffer)?.split_at(end).map(drop));
    assert_eq!(
        result.unwrap_err().to_string(),
        format!("DeviceMut::split_at: the range 0..{end} exceeds the memory's {LEN} elements")
    );
    Ok(())
}

#[test]
fn one_scope_can_be_used_by_several_threads() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&context, 4 * LEN)?;
    let input = numbers();
    stream.scope(|s| {
        let mut rest = s.bind_mut(&mut buffer)?;
        std::thread::scope(|threads| {
            for _ in 0..4 {
                let (mut part, others) = rest.split_at(LEN)?;
                rest = others;
                let input = s.bind_host(&input);
                threads.spawn(move || s.upload(&mut part, &input).unwrap());
            }
            Ok(())
        })
    })?;
    assert_eq!(buffer.to_vec()?, input.repeat(4));
    Ok(())
}

/// Bytes that are cast to arrays need not be aligned to their size, as the driver requires of a fill.
#[test]
fn a_fill_of_values_at_any_address() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    for (start, count) in (0..5).flat_map(|start| (0..4).map(move |count| (start, count))) {
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 32)?;
        let mut expected = [0; 32];
        let (two, four) = (start..start + 2 * count, start + 12..start + 12 + 4 * count);
        for (value, byte) in [7, 8].iter().cycle().zip(&mut expected[two.clone()]) {
            *byte = *value;
        }
        for (value, byte) in [1, 2, 3, 4].iter().cycle().zip(&mut expected[four.clone()]) {
            *byte = *value;
        }
        let (mut front, mut back) = buffer.split_at_mut(12)?;
        let two = front.slice_mut(two)?.cast::<[u8; 2]>()?;
        let four = back.slice_mut(four.start - 12..four.end - 12)?;
        let four = four.cast::<[u8; 4]>()?;
        stream.scope(|s| {
            s.fill(&mut s.bind_mut(two)?, [7, 8])?;
            s.fill(&mut s.bind_mut(four)?, [1, 2, 3, 4])
        })?;
        assert_eq!(buffer.to_vec()?, expected, "{start} {count}");
    }
    Ok(())
}
