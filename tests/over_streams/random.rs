//! Random programs: the outcome is that of one stream.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::World;
use crate::support::*;
use cuguard::{Context, DeviceBuffer, PinnedBuffer, Result, Scope, Stream};

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
