//! Copies between contexts: directions, order, lengths, and contexts that are closed meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use cuguard::driver::api;
use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

use super::{machine, pair};
use crate::support::gate::Gate;
use crate::support::*;

#[test]
fn copies_in_both_directions() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let before = (in_hand(&first)?, in_hand(&second)?);
    let stream = Stream::new(&first)?;
    let values: Vec<u32> = (0..100_000).collect();
    let there = DeviceBuffer::from_slice(&second, &values)?;
    let mut here = DeviceBuffer::<u32>::zeroed(&first, values.len())?;
    let mut back = DeviceBuffer::<u32>::zeroed(&second, values.len())?;
    stream.scope(|s| {
        let (there, mut back) = (s.bind_peer(&there)?, s.bind_peer_mut(&mut back)?);
        let mut here = s.bind_mut(&mut here)?;
        assert_eq!((there.len(), there.is_empty()), (values.len(), false));
        s.copy_from_peer(&mut here, &there)?;
        s.copy_to_peer(&mut back, &here)
    })?;
    assert_eq!(here.to_vec()?, values);
    assert_eq!(back.to_vec()?, values);
    drop((there, here, back, stream));
    before.0.all_freed();
    before.1.all_freed();
    second.close()?;
    first.close()
}

/// The same without a scope: views of two contexts.
#[test]
fn synchronous_copies() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let from = DeviceBuffer::from_slice(&second, &[1_u8, 2, 3, 4])?;
    let mut to = DeviceBuffer::<u8>::zeroed(&first, 4)?;
    to.slice_mut(1..3)?.copy_from(from.slice(2..)?)?;
    assert_eq!(to.to_vec()?, [0, 3, 4, 0]);
    drop((from, to));
    second.close()?;
    first.close()
}

/// The copy waits for the allocation and the fill on a stream of the other context.
#[test]
fn stream_ordered_memory_and_views() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let (stream, there) = (Stream::new(&first)?, Stream::new(&second)?);
    for round in 0..20_u32 {
        let mut from = DeviceBuffer::<u32>::zeroed(&there, 1000)?;
        from.slice_mut(500..)?.fill(round)?;
        let mut to = DeviceBuffer::<u32>::zeroed(&stream, 500)?;
        let mut target = DeviceBuffer::<u32>::zeroed(&there, 250)?;
        stream.scope(|s| {
            let mut to = s.bind_mut(&mut to)?;
            s.copy_from_peer(&mut to, &s.bind_peer(from.slice(500..)?)?)?;
            let (front, _) = to.split_at(250)?;
            s.copy_to_peer(&mut s.bind_peer_mut(&mut target)?, &front)
        })?;
        assert_eq!(to.to_vec()?, [round; 500]);
        assert_eq!(target.to_vec()?, [round; 250]);
    }
    drop((stream, there));
    second.close()?;
    first.close()
}

#[test]
fn lengths_must_match() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let stream = Stream::new(&first)?;
    let mut there = DeviceBuffer::from_slice(&second, &[1_u8, 2, 3])?;
    let mut here = DeviceBuffer::<u8>::zeroed(&first, 2)?;
    let mut both = |from_peer: bool| {
        stream.scope(|s| {
            let (mut there, mut here) = (s.bind_peer_mut(&mut there)?, s.bind_mut(&mut here)?);
            match from_peer {
                true => s.copy_from_peer(&mut here, &there),
                false => s.copy_to_peer(&mut there, &here),
            }
        })
    };
    let text = |error: Result<()>| error.unwrap_err().to_string();
    assert_eq!(
        [text(both(true)), text(both(false))],
        [
            "Scope::copy_from_peer: the source has 3 elements, the destination 2",
            "Scope::copy_to_peer: the source has 2 elements, the destination 3"
        ]
    );
    assert_eq!(there.to_vec()?, [1, 2, 3]);
    // Memory of another context is no memory of this one.
    let error = stream.scope(|s| s.bind(&there).map(drop)).unwrap_err();
    assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    drop((there, here, stream));
    second.close()?;
    first.close()
}

/// Teardown of the other context waits for the copy, and later copies fail.
#[test]
fn the_other_context_is_closed_within_the_scope() -> Result<()> {
    let _turn = machine();
    // A synchronous free waits for the device, a free in stream order does not.
    for (to_peer, ordered) in [(false, false), (true, false), (false, true), (true, true)] {
        let (first, second) = pair()?;
        let stream = Stream::new(&first)?;
        let mut there = match ordered {
            true => DeviceBuffer::from_slice(&Stream::new(&second)?, &[7_u8; 1 << 16])?,
            false => DeviceBuffer::from_slice(&second, &[7_u8; 1 << 16])?,
        };
        let mut here = DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?;
        stream.scope(|s| {
            let (mut there, mut here) = (s.bind_peer_mut(&mut there)?, s.bind_mut(&mut here)?);
            for _ in 0..10 {
                s.copy_from_peer(&mut here, &there)?;
                if to_peer {
                    s.copy_to_peer(&mut there, &here)?;
                }
            }
            second.close()?;
            let late = s.copy_from_peer(&mut here, &there).unwrap_err();
            assert!(matches!(late, Error::ContextClosed { .. }), "{late}");
            Ok(())
        })?;
        assert_eq!(here.to_vec()?, [7; 1 << 16]);
        assert!(matches!(there.to_vec(), Err(Error::ContextClosed { .. })));
        let error = stream.scope(|s| s.bind_peer(&there).map(drop)).unwrap_err();
        assert!(matches!(error, Error::ContextClosed { .. }), "{error}");
        drop((there, here, stream));
        first.close()?;
    }
    Ok(())
}

/// Teardown waits for one stream; another one, which is borrowed, leaves its scope meanwhile and is destroyed.
#[test]
fn a_borrowed_stream_is_destroyed_while_the_other_context_is_closed() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let (slow, raw) = (
        Stream::new(&first)?,
        Stream::new(&first)?.into_raw().unwrap(),
    );
    // SAFETY: alive until the guard is dropped.
    let borrowed = unsafe { Stream::borrow_raw(&first, raw)? };
    let there = DeviceBuffer::from_slice(&second, &[7_u8; 1 << 16])?;
    let mut here = DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?;
    let gate = Gate::on(&first, &slow);
    let (bound, is_bound) = mpsc::channel();
    std::thread::scope(|threads| {
        let copy = threads.spawn(|| {
            slow.scope(|s| {
                s.copy_from_peer(&mut s.bind_mut(&mut here)?, &s.bind_peer(&there)?)?;
                bound.send(()).unwrap();
                Ok(())
            })
        });
        is_bound.recv().unwrap();
        let closing = borrowed.scope(|s| {
            let there = s.bind_peer(&there)?;
            let closing = threads.spawn(|| second.close());
            // It waits for the slow stream by now.
            std::thread::sleep(Duration::from_millis(50));
            drop(there);
            Ok(closing)
        })?;
        drop(borrowed);
        {
            let _current = first.make_current()?;
            // SAFETY: created above, and borrowed by no guard any more.
            let destroyed = unsafe { api::cuStreamDestroy_v2(raw) };
            assert!(destroyed.is_success(), "{destroyed}");
        }
        gate.open();
        copy.join().unwrap()?;
        closing.join().unwrap()
    })?;
    assert_eq!(here.to_vec()?, [7; 1 << 16]);
    drop((here, slow));
    first.close()
}

#[test]
fn the_own_context_is_closed_within_the_scope() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let stream = Stream::new(&first)?;
    let mut there = DeviceBuffer::from_slice(&second, &[0_u8; 1 << 16])?;
    let here = DeviceBuffer::<u8>::from_slice(&first, &[9; 1 << 16])?;
    stream.scope(|s| {
        let mut there = s.bind_peer_mut(&mut there)?;
        let here = s.bind(&here)?;
        s.copy_to_peer(&mut there, &here)?;
        first.close()?;
        let late = s.copy_to_peer(&mut there, &here).unwrap_err();
        assert!(matches!(late, Error::ContextClosed { .. }), "{late}");
        Ok(())
    })?;
    assert_eq!(there.to_vec()?, [9; 1 << 16]);
    drop((here, stream));
    drop(there);
    second.close()
}

/// Two contexts that copy to each other and are closed at the same time do not wait for each other.
#[test]
fn both_are_closed_at_once() -> Result<()> {
    let _turn = machine();
    for _ in 0..30 {
        let (first, second) = pair()?;
        let buffers = (
            DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?,
            DeviceBuffer::<u8>::zeroed(&second, 1 << 16)?,
        );
        let streams = (Stream::new(&first)?, Stream::new(&second)?);
        let mut targets = (
            DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?,
            DeviceBuffer::<u8>::zeroed(&second, 1 << 16)?,
        );
        let barrier = Barrier::new(2);
        let side = |context: Context,
                    stream: &Stream,
                    from: &DeviceBuffer<u8>,
                    to: &mut DeviceBuffer<u8>| {
            stream.scope(|s| {
                let (from, mut to) = (s.bind_peer(from)?, s.bind_mut(to)?);
                for _ in 0..3 {
                    s.copy_from_peer(&mut to, &from)?;
                }
                barrier.wait();
                context.close()
            })
        };
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| side(second, &streams.1, &buffers.0, &mut targets.1));
            let one = side(first, &streams.0, &buffers.1, &mut targets.0);
            (one, other.join().expect("no panic"))
        });
        one?;
        two?;
    }
    Ok(())
}

#[test]
fn a_panic_in_the_scope() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    let stream = Stream::new(&first)?;
    let there = DeviceBuffer::from_slice(&second, &[3_u8; 1 << 16])?;
    let mut here = DeviceBuffer::<u8>::zeroed(&first, 1 << 16)?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|s| -> Result<()> {
            s.copy_from_peer(&mut s.bind_mut(&mut here)?, &s.bind_peer(&there)?)?;
            panic!("in the scope")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(here.to_vec()?, [3; 1 << 16]);
    drop((there, here, stream));
    second.close()?;
    first.close()
}

/// Each thread works on its own device.
#[test]
fn one_context_for_each_device() -> Result<()> {
    let _turn = machine();
    let (first, second) = pair()?;
    std::thread::scope(|scope| {
        for context in [&first, &second] {
            scope.spawn(move || -> Result<()> {
                let stream = Stream::new(context)?;
                for value in 0..20_u8 {
                    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 10_000)?;
                    stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, value))?;
                    assert_eq!(buffer.to_vec()?, [value; 10_000]);
                }
                Ok(())
            });
        }
    });
    assert_eq!((first.live_count(), second.live_count()), (0, 0));
    second.close()?;
    first.close()
}
