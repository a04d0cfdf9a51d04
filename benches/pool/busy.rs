//! A free while a kernel runs on another stream.

use std::time::Instant;

use cuguard::driver::{DriverKind, load};
use cuguard::{Module, Stream, TrackingLevel};

use crate::adaptor::{Allocator, Driver, Own, block, context};
use crate::figures::{figure, note};
use crate::timing::median;
use crate::{Options, Outcome};

const CASE: &str = "1.5 s kernel on another stream";
const SPIN: u64 = 1_500_000_000;

pub fn free(_: &Options) -> Outcome {
    one::<Own>()?;
    one::<Driver>()
}

fn one<A: Allocator>() -> Outcome {
    if load()?.kind() == DriverKind::Simulated {
        note("free", CASE, A::NAME, "not run: needs a real GPU");
        return Ok(());
    }
    let context = context(TrackingLevel::Counts)?;
    let _current = context.make_current()?;
    let module = Module::from_ptx(&context, include_str!("../../kernels/spin.ptx"))?;
    let spin = module.function("spin")?;
    let (own, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let pool = A::new(&context)?;
    let source = pool.on(&own);
    let sizes = [[1 << 20; 64].as_slice(), &[64 << 20; 4]].concat();
    let mut blocks: Vec<_> = sizes
        .iter()
        .map(|bytes| block(&source, *bytes).map(Some))
        .collect::<Result<_, _>>()?;
    own.synchronize()?;

    let (mut frees, mut reuses) = (Vec::new(), Vec::new());
    let microseconds = |begin: Instant| begin.elapsed().as_nanos() as f64 / 1e3;
    let (busy, still_busy) = other.scope(|s| {
        // SAFETY: spin(nanoseconds) accesses no memory.
        unsafe { s.launch(&spin, (1, 1), &[&SPIN])? };
        for block in &mut blocks {
            let begin = Instant::now();
            *block = None;
            frees.push(microseconds(begin));
        }
        let busy = !other.is_idle()?;
        for (block, bytes) in blocks.iter_mut().zip(&sizes) {
            let begin = Instant::now();
            *block = Some(crate::adaptor::block(&source, *bytes)?);
            reuses.push(microseconds(begin));
        }
        Ok((busy, !other.is_idle()?))
    })?;
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    figure("free", CASE, A::NAME, "us, longest", longest(&frees));
    figure("free", CASE, A::NAME, "us, median", median(frees));
    figure("free", CASE, A::NAME, "reuse us, longest", longest(&reuses));
    if !busy {
        note("free", CASE, A::NAME, "the frees waited for the kernel");
    } else if !still_busy {
        let text = "the allocations after the frees waited for the kernel";
        note("free", CASE, A::NAME, text);
    }
    Ok(())
}
