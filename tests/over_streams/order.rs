//! What waits for what.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{LEN, World, assert_waits};
use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, DeviceBuffer, Error, Event, PinnedBuffer, Result, Scope, Stream};

#[test]
fn what_is_read_was_written_on_the_other_stream() -> Result<()> {
    let turn = turn();
    let mut world = World::new()?;
    let before = in_hand(&world.context)?;
    let gate = Gate::on(&world.context, &world.first);
    let opener = Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut data = first.bind_mut(&mut world.data)?;
        first.fill(&mut data, 9)?;
        second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
        assert_waits(second.stream());
        Ok(gate.open_later())
    })?;
    assert_eq!(*world.seen, [9; LEN]);
    opener.join().unwrap();
    before.all_freed();
    let World { context, .. } = world;
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn what_is_written_was_read_on_the_other_stream() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let gate = Gate::on(&world.context, &world.first);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut data = first.bind_mut(&mut world.data)?;
        first.download(&mut first.bind_host_mut(&mut world.seen), &data)?;
        second.fill(&mut data, 9)?;
        assert_waits(second.stream());
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(*world.seen, [7; LEN]);
    assert_eq!(world.data.to_vec()?, [9; LEN]);
    Ok(())
}

#[test]
fn host_memory_is_ordered_too() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let mut copy = DeviceBuffer::<u32>::zeroed(&world.context, LEN)?;
    let sum = AtomicBool::new(false);
    let gate = Gate::on(&world.context, &world.first);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut seen = first.bind_host_mut(&mut world.seen);
        first.download(&mut seen, &first.bind(&world.data)?)?;
        second.upload(&mut second.bind_mut(&mut copy)?, &seen)?;
        second.call_with(&seen, |seen| {
            sum.store(seen == [7; LEN], Ordering::Relaxed);
        })?;
        assert_waits(second.stream());
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(copy.to_vec()?, [7; LEN]);
    assert!(sum.into_inner());
    Ok(())
}

#[test]
fn what_does_not_conflict_overlaps() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let shared = DeviceBuffer::from_slice(&world.context, &[5_u32; LEN])?;
    let mut other = PinnedBuffer::<u32>::zeroed(&world.context, LEN)?;
    let gate = Gate::on(&world.context, &world.first);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut data = first.bind_mut(&mut world.data)?;
        let shared = first.bind(&shared)?;
        let (mut front, mut back) = {
            second.fill(&mut data, 8)?;
            data.split_at(LEN / 2)?
        };
        // Two parts, and what is only read.
        first.fill(&mut front, 1)?;
        first.download(&mut first.bind_host_mut(&mut world.seen), &shared)?;
        second.fill(&mut back, 2)?;
        second.download(&mut second.bind_host_mut(&mut other), &shared)?;
        assert!(soon(|| second.stream().is_idle().unwrap()));
        assert!(!first.stream().is_idle()?);
        gate.open();
        Ok(())
    })?;
    assert_eq!((&*world.seen, &*other), (&[5; LEN][..], &[5; LEN][..]));
    let data = world.data.to_vec()?;
    assert_eq!(data[..LEN / 2], [1; LEN / 2]);
    assert_eq!(data[LEN / 2..], [2; LEN / 2]);
    Ok(())
}

/// A stream waits for the work that it conflicts with, and for no other that is enqueued after it.
#[test]
fn later_work_is_not_waited_for() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let mut other = DeviceBuffer::<u32>::zeroed(&world.context, LEN)?;
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut data = first.bind_mut(&mut world.data)?;
        first.fill(&mut data, 9)?;
        let gate = Gate::on(&world.context, first.stream());
        first.fill(&mut first.bind_mut(&mut other)?, 1)?;
        second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
        second.fill(&mut data, 8)?;
        assert!(soon(|| second.stream().is_idle().unwrap()));
        assert!(!gate.is_open() && !first.stream().is_idle()?);
        first.fill(&mut data, 10)?;
        gate.open();
        Ok(())
    })?;
    assert_eq!(*world.seen, [9; LEN]);
    assert_eq!(world.data.to_vec()?, [10; LEN]);
    assert_eq!(other.to_vec()?, [1; LEN]);
    Ok(())
}

/// Memory is allocated, and cleared, on a stream of its own.
#[test]
fn every_stream_comes_after_the_allocation() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let home = Stream::new(&world.context)?;
    let gate = Gate::on(&world.context, &home);
    let data = DeviceBuffer::<u32>::zeroed(&home, LEN)?;
    let mut other = PinnedBuffer::from_slice(&world.context, &[3_u32; LEN])?;
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let data = first.bind(&data)?;
        second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
        first.download(&mut first.bind_host_mut(&mut other), &data)?;
        assert_waits(first.stream());
        assert_waits(second.stream());
        gate.open_later();
        Ok(())
    })?;
    assert_eq!((&*world.seen, &*other), (&[0; LEN][..], &[0; LEN][..]));
    Ok(())
}

#[test]
fn streams_of_two_contexts_are_refused() -> Result<()> {
    let _turn = turn();
    let world = World::new()?;
    let other = Context::builder().dedicated().build()?;
    let stream = Stream::new(&other)?;
    let result = Stream::scope_over([&world.first, &stream], |_| Ok(()));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::WrongContext { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("Stream::scope_over: ") && text.contains("another stream"),
        "{text}"
    );
    Ok(())
}

/// A graph uses its memory on the stream that launches it, one launch after the other.
#[test]
fn launches_of_one_graph_are_ordered() -> Result<()> {
    let _turn = turn();
    let world = World::new()?;
    let mut counter = DeviceBuffer::from_slice(&world.context, &[1_u32, 2, 3, 4])?;
    let (graph, counter) = world.first.capture(|c| {
        let counter = c.bind_mut(&mut counter)?;
        let exported = c.export_mut(&counter)?;
        let (mut front, back) = counter.split_at(2)?;
        c.copy(&mut front, &back)?;
        Ok(exported)
    })?;
    let mut exec = graph.instantiate()?;
    let gate = Gate::on(&world.context, &world.second);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut graph = first.bind_graph(&mut exec)?;
        second.launch_graph(&mut graph)?;
        first.launch_graph(&mut graph)?;
        assert_waits(first.stream());
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(exec.view(&counter)?.to_vec()?, [3, 4, 3, 4]);
    Ok(())
}

#[test]
fn one_stream_may_be_there_twice() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let gate = Gate::on(&world.context, &world.first);
    Stream::scope_over(
        [&world.first, &world.second, &world.first],
        |[first, second, again]| {
            let mut data = first.bind_mut(&mut world.data)?;
            first.fill(&mut data, 1)?;
            again.fill(&mut data, 2)?;
            second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
            assert_waits(second.stream());
            gate.open_later();
            Ok(())
        },
    )?;
    assert_eq!(*world.seen, [2; LEN]);
    Ok(())
}

/// Events are for what the scope does not know.
#[test]
fn events_order_what_is_not_bound() -> Result<()> {
    let _turn = turn();
    let world = World::new()?;
    let event = Event::without_timing(&world.context)?;
    let order = Mutex::new(Vec::new());
    let gate = Gate::on(&world.context, &world.first);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        first.call(|| order.lock().unwrap().push(1))?;
        first.record(&event)?;
        second.wait(&event)?;
        second.call(|| order.lock().unwrap().push(2))?;
        assert_waits(second.stream());
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(order.into_inner().unwrap(), [1, 2]);
    Ok(())
}

/// A read on the stream that wrote is no reason for another stream to wait for more than the write.
#[test]
fn reads_do_not_wait_for_reads() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let mut other = PinnedBuffer::<u32>::zeroed(&world.context, LEN)?;
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut data = first.bind_mut(&mut world.data)?;
        first.fill(&mut data, 9)?;
        let gate = Gate::on(&world.context, first.stream());
        first.download(&mut first.bind_host_mut(&mut other), &data)?;
        second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
        assert!(soon(|| second.stream().is_idle().unwrap()));
        assert!(!gate.is_open());
        // A write does wait for the read.
        second.fill(&mut data, 10)?;
        assert_waits(second.stream());
        gate.open_later();
        Ok(())
    })?;
    assert_eq!((&*world.seen, &*other), (&[9; LEN][..], &[9; LEN][..]));
    assert_eq!(world.data.to_vec()?, [10; LEN]);
    Ok(())
}

/// Threads read at the same time, on the same stream and on others. What is written later comes after all of them.
#[test]
fn threads_may_read_at_the_same_time() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let third = Stream::new(&world.context)?;
    let copies = || DeviceBuffer::<u32>::zeroed(&world.context, LEN);
    let mut copies = [copies()?, copies()?, copies()?, copies()?];
    Stream::scope_over(
        [&world.first, &world.second, &third],
        |[first, second, third]| {
            let mut data = third.bind_mut(&mut world.data)?;
            third.fill(&mut data, 1)?;
            std::thread::scope(|threads| -> Result<()> {
                let read =
                    |s: &Scope<'_, '_>| s.call(|| std::thread::sleep(Duration::from_millis(1)));
                for (index, copy) in copies.iter_mut().enumerate() {
                    let s = [first, second][index % 2];
                    let mut copy = s.bind_mut(copy)?;
                    let data = &data;
                    threads.spawn(move || {
                        for _ in 0..30 {
                            read(s).unwrap();
                            s.copy(&mut copy, data).unwrap();
                        }
                    });
                }
                Ok(())
            })?;
            third.fill(&mut data, 2)
        },
    )?;
    for copy in copies {
        assert_eq!(copy.to_vec()?, [1; LEN]);
    }
    assert_eq!(world.data.to_vec()?, [2; LEN]);
    Ok(())
}
