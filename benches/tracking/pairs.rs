//! Allocate and free: one pair after the other, and a crowd that changes.

use cuguard::{Context, DeviceBuffer, Stream};
use cust::memory::DeviceBuffer as CustBuffer;

use crate::timing::{Numbers, medians, size};
use crate::{Outcome, Way, contexts_and_streams};

const SIZES: [usize; 5] = [4, 4 << 10, 256 << 10, 1 << 20, 64 << 20];

/// A pair by `cust`.
fn plain(stream: Option<&cust::stream::Stream>, bytes: usize) -> Outcome {
    // SAFETY: nothing reads the memory.
    unsafe {
        match stream {
            None => drop(CustBuffer::<u8>::uninitialized(bytes)?),
            Some(stream) => {
                CustBuffer::<u8>::uninitialized_async(bytes, stream)?.drop_async(stream)?;
            }
        }
    }
    Ok(())
}

/// The same by cuguard.
fn guarded(context: &Context, stream: Option<&Stream>, bytes: usize) -> Outcome {
    // SAFETY: nothing reads the memory.
    unsafe {
        match stream {
            None => drop(DeviceBuffer::<u8>::uninitialized(context, bytes)?),
            Some(stream) => drop(DeviceBuffer::<u8>::uninitialized(stream, bytes)?),
        }
    }
    Ok(())
}

/// A pair in one way, to be called many times.
pub fn repeated<'a>(
    way: Way,
    context: &'a Context,
    stream: Option<&'a Stream>,
    bytes: usize,
) -> Box<dyn FnMut() -> Outcome + 'a> {
    if way == Way::Cust {
        // Once, as it asks whether the context is still there.
        let stream: Option<&cust::stream::Stream> = stream.map(|stream| &**stream);
        Box::new(move || plain(stream, bytes))
    } else {
        Box::new(move || guarded(context, stream, bytes))
    }
}

pub fn pair(short: bool) -> Outcome {
    let (contexts, streams) = contexts_and_streams()?;
    // As in a program that works in one context: it is current already.
    let _bound = contexts[0].make_current()?;
    for mode in ["sync", "stream"] {
        for bytes in SIZES {
            let (rounds, count) = match (short, mode) {
                (true, _) => (3, 5),
                (false, "sync") if bytes > 1 << 20 => (21, 10),
                (false, "sync") => (41, 50),
                (false, _) => (201, 500),
            };
            let mut ways: Vec<_> = Way::ALL
                .iter()
                .zip(contexts.iter().zip(&streams))
                .map(|(way, (context, stream))| {
                    let stream = (mode == "stream").then_some(stream);
                    repeated(*way, context, stream, bytes)
                })
                .collect();
            let mut ways: Vec<&mut dyn FnMut() -> Outcome> =
                ways.iter_mut().map(|way| &mut **way as _).collect();
            let times = medians(rounds, count, &mut ways)?;
            for (way, time) in Way::ALL.iter().zip(&times) {
                println!(
                    "pair mode={mode} size={} way={} ns={time:.0} ratio={:.3}",
                    size(bytes),
                    way.name(),
                    time / times[0]
                );
            }
        }
    }
    Ok(())
}

/// A crowd of blocks of which one is replaced at a time.
trait Crowd {
    fn replace(&mut self, index: usize, bytes: usize) -> Outcome;
}

struct Plain<'a>(Vec<Option<CustBuffer<u8>>>, &'a cust::stream::Stream);

impl Crowd for Plain<'_> {
    fn replace(&mut self, index: usize, bytes: usize) -> Outcome {
        if let Some(old) = self.0[index].take() {
            old.drop_async(self.1)?;
        }
        // SAFETY: nothing reads the memory.
        self.0[index] = Some(unsafe { CustBuffer::uninitialized_async(bytes, self.1)? });
        Ok(())
    }
}

struct Guarded<'a>(Vec<Option<DeviceBuffer<u8>>>, &'a Stream);

impl Crowd for Guarded<'_> {
    fn replace(&mut self, index: usize, bytes: usize) -> Outcome {
        self.0[index] = None;
        // SAFETY: nothing reads the memory.
        self.0[index] = Some(unsafe { DeviceBuffer::uninitialized(self.1, bytes)? });
        Ok(())
    }
}

pub fn churn(short: bool) -> Outcome {
    const LIVE: usize = 1000;
    let (rounds, count) = if short { (3, 20) } else { (51, 1000) };
    let (contexts, streams) = contexts_and_streams()?;
    let _bound = contexts[0].make_current()?;
    let mut crowds: Vec<Box<dyn Crowd>> = Vec::new();
    for (way, stream) in Way::ALL.iter().zip(&streams) {
        if *way == Way::Cust {
            crowds.push(Box::new(Plain((0..LIVE).map(|_| None).collect(), stream)));
        } else {
            crowds.push(Box::new(Guarded((0..LIVE).map(|_| None).collect(), stream)));
        }
    }
    let mut ways: Vec<_> = crowds
        .iter_mut()
        .map(|crowd| {
            // The same sizes in the same order for all.
            let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
            move || {
                let bytes = 256 << numbers.next(13);
                crowd.replace(numbers.next(LIVE as u64) as usize, bytes)
            }
        })
        .collect();
    let mut ways: Vec<&mut dyn FnMut() -> Outcome> = ways
        .iter_mut()
        .map(|way| way as &mut dyn FnMut() -> Outcome)
        .collect();
    let times = medians(rounds, count, &mut ways)?;
    for (way, time) in Way::ALL.iter().zip(&times) {
        println!(
            "churn live={LIVE} way={} ns={time:.0} ratio={:.3}",
            way.name(),
            time / times[0]
        );
    }
    drop(ways);
    // `cust` would free by itself with another function, and wait for the device each time.
    drop(crowds);
    Ok(())
}
