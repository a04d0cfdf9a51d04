//! Scopes over several streams: work that uses the same memory is ordered, other work is not, and all of it is waited for.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::*;
use cuguard::{Context, DeviceBuffer, Error, Event, PinnedBuffer, Result, Scope, Stream};

const LEN: usize = 1000;

struct World {
    context: Context,
    first: Stream,
    second: Stream,
    data: DeviceBuffer<u32>,
    seen: PinnedBuffer<u32>,
}

impl World {
    /// All of `data` is 7.
    fn new() -> Result<Self> {
        let context = context()?;
        let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
        Ok(Self {
            data: DeviceBuffer::from_slice(&context, &[7; LEN])?,
            seen: PinnedBuffer::zeroed(&context, LEN)?,
            first,
            second,
            context,
        })
    }
}

/// A stream is working, and still is after a while.
#[track_caller]
fn assert_waits(stream: &Stream) {
    std::thread::sleep(Duration::from_millis(20));
    assert!(!stream.is_idle().unwrap(), "it waits for nothing");
}

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
    let data = DeviceBuffer::<u32>::zeroed_on(&home, LEN)?;
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

/// It is freed on the stream that it was allocated on, while the other one may use it.
#[test]
fn scratch_memory_is_there_until_all_streams_are_done() -> Result<()> {
    let turn = turn();
    let mut world = World::new()?;
    let before = in_hand(&world.context)?;
    let gate = Gate::on(&world.context, &world.second);
    Stream::scope_over([&world.first, &world.second], |[first, second]| {
        let mut scratch = first.zeroed(LEN)?;
        first.fill(&mut scratch, 4)?;
        second.download(&mut second.bind_host_mut(&mut world.seen), &scratch)?;
        gate.open_later();
        Ok(())
    })?;
    assert_eq!(*world.seen, [4; LEN]);
    world.first.synchronize()?;
    before.all_freed();
    drop(world);
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_panic_and_an_error_wait_for_all_streams() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    for panics in [true, false] {
        world.seen.fill(0);
        let gate = Gate::on(&world.context, &world.second);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            Stream::scope_over([&world.first, &world.second], |[first, second]| {
                let data = first.bind(&world.data)?;
                second.download(&mut second.bind_host_mut(&mut world.seen), &data)?;
                gate.open_later();
                match panics {
                    true => resume_unwind(Box::new("on purpose")),
                    false => first.upload(&mut first.zeroed::<u32>(1)?, &first.bind_host(&[])),
                }
            })
        }));
        match ended {
            Err(_) => assert!(panics),
            Ok(result) => assert!(
                !panics && matches!(result, Err(Error::LengthMismatch { .. })),
                "{result:?}"
            ),
        }
        assert!(gate.is_open());
        assert_eq!(*world.seen, [7; LEN]);
    }
    Ok(())
}

#[test]
fn the_panic_of_a_host_function_continues_when_all_streams_are_done() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let gate = Gate::on(&world.context, &world.first);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        Stream::scope_over([&world.first, &world.second], |[first, second]| {
            second.call(|| resume_unwind(Box::new("in a host function")))?;
            let data = first.bind(&world.data)?;
            first.download(&mut first.bind_host_mut(&mut world.seen), &data)?;
            gate.open_later();
            Ok(())
        })
    }));
    let panic = unwound.unwrap_err();
    assert_eq!(
        panic.downcast_ref::<&str>().copied(),
        Some("in a host function")
    );
    assert_eq!(*world.seen, [7; LEN]);
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

#[test]
fn the_context_may_be_closed_within() -> Result<()> {
    let turn = turn();
    let World {
        context,
        first,
        second,
        mut data,
        mut seen,
    } = World::new()?;
    let gate = Gate::on(&context, &second);
    Stream::scope_over([&first, &second], |[first, second]| {
        let mut data = first.bind_mut(&mut data)?;
        let mut seen = first.bind_host_mut(&mut seen);
        second.download(&mut seen, &data)?;
        gate.open_later();
        context.close()?;
        assert!(gate.is_open());
        for result in [
            first.download(&mut seen, &data),
            second.upload(&mut data, &seen),
            first.fill(&mut data, 1),
        ] {
            assert!(matches!(result, Err(Error::ContextClosed { .. })));
        }
        Ok(())
    })?;
    assert_eq!(*seen, [7; LEN]);
    drop((first, second, data, seen));
    turn.all_came_back();
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
fn one_stream_may_be_there_twice_and_events_order_as_they_do() -> Result<()> {
    let _turn = turn();
    let mut world = World::new()?;
    let event = Event::without_timing(&world.context)?;
    Stream::scope_over(
        [&world.first, &world.second, &world.first],
        |[first, second, again]| {
            let mut data = first.bind_mut(&mut world.data)?;
            first.fill(&mut data, 1)?;
            again.fill(&mut data, 2)?;
            again.record(&event)?;
            second.wait(&event)?;
            second.download(&mut second.bind_host_mut(&mut world.seen), &data)
        },
    )?;
    assert_eq!(*world.seen, [2; LEN]);
    Ok(())
}

/// How many buffers a random program has on the device, and as many on the host; and their lengths.
const BUFFERS: usize = 3;
const FEW: usize = 64;

/// Small random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// Two that differ.
    fn two_below(&mut self, end: usize) -> [usize; 2] {
        let first = self.below(end);
        [first, (first + 1 + self.below(end - 1)) % end]
    }
}

/// The values that a program has on the device and on the host, and the first ones that its host functions have seen.
#[derive(Debug, PartialEq)]
struct Values {
    device: [Vec<u32>; BUFFERS],
    host: [Vec<u32>; BUFFERS],
    seen: Vec<u32>,
}

/// What a random program computes on the given streams, and what it should.
fn random_program(context: &Context, streams: [&Stream; 3], seed: u64) -> Result<[Values; 2]> {
    const STEPS: usize = 40;
    let mut random = Random(seed);
    let initial = |base: usize| std::array::from_fn(|index| vec![(base + index) as u32; FEW]);
    let mut model = Values {
        device: initial(10),
        host: initial(20),
        seen: vec![0; STEPS],
    };
    let (mut device, mut host) = (Vec::new(), Vec::new());
    for index in 0..BUFFERS {
        device.push(DeviceBuffer::from_slice(context, &model.device[index])?);
        host.push(PinnedBuffer::from_slice(context, &model.host[index])?);
    }
    let seen: [AtomicU32; STEPS] = [const { AtomicU32::new(0) }; STEPS];
    Stream::scope_over(streams, |scopes| {
        let binding = device.iter_mut().map(|buffer| scopes[0].bind_mut(buffer));
        let mut device = binding.collect::<Result<Vec<_>>>()?;
        let binding = host
            .iter_mut()
            .map(|buffer| scopes[1].bind_host_mut(buffer));
        let mut host: Vec<_> = binding.collect();
        for step in 0..STEPS {
            let s: &Scope<'_, '_> = scopes[random.below(3)];
            let [to, from] = random.two_below(BUFFERS);
            match random.below(7) {
                0 => {
                    s.fill(&mut device[to], step as u32)?;
                    model.device[to].fill(step as u32);
                }
                1 => {
                    let [into, of] = device.get_disjoint_mut([to, from]).expect("they differ");
                    s.copy(into, of)?;
                    model.device[to] = model.device[from].clone();
                }
                2 => {
                    s.upload(&mut device[to], &host[from])?;
                    model.device[to] = model.host[from].clone();
                }
                3 => {
                    s.download(&mut host[to], &device[from])?;
                    model.host[to] = model.device[from].clone();
                }
                4 => s.call(|| std::thread::sleep(Duration::from_micros(100)))?,
                5 => {
                    let seen = &seen[step];
                    s.call_with(&host[from], |values| {
                        seen.store(values[0], Ordering::Relaxed)
                    })?;
                    model.seen[step] = model.host[from][0];
                }
                _ => {
                    let mut scratch = s.zeroed(FEW)?;
                    s.copy(&mut scratch, &device[from])?;
                    scopes[random.below(3)].copy(&mut device[to], &scratch)?;
                    model.device[to] = model.device[from].clone();
                }
            }
        }
        Ok(())
    })?;
    let mut found = Values {
        device: initial(0),
        host: initial(0),
        seen: seen.iter().map(|one| one.load(Ordering::Relaxed)).collect(),
    };
    for index in 0..BUFFERS {
        found.device[index] = device[index].to_vec()?;
        found.host[index] = host[index].to_vec();
    }
    Ok([found, model])
}

/// The outcome is that of one stream, in the order of the calls.
#[test]
fn random_programs_give_what_one_stream_gives() -> Result<()> {
    let turn = turn();
    let World {
        context,
        first,
        second,
        data,
        seen,
    } = World::new()?;
    let third = Stream::new(&context)?;
    for seed in 0..60 {
        let [found, expected] = random_program(&context, [&first, &second, &third], seed)?;
        assert_eq!(found, expected, "seed {seed}");
    }
    drop((first, second, third, data, seen));
    assert_eq!(context.live_count(), 0);
    context.close()?;
    turn.all_came_back();
    Ok(())
}
