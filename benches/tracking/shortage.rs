//! An allocation that fails, with its report, at many live allocations: alone, with NVML, and with
//! the report as text.

use std::time::Instant;

use cuguard::{Context, DeviceBuffer, Error, TrackingLevel};

use cuguard::oom::OomPolicy;
use cust::memory::DeviceBuffer as CustBuffer;

use crate::Outcome;
use crate::timing::median;

/// Milliseconds for an allocation that is refused, and for its text.
fn refused(context: &Context, bytes: usize) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let start = Instant::now();
    // SAFETY: never read: the allocation fails.
    let result = unsafe { DeviceBuffer::<u8>::uninitialized(context, bytes) };
    let failed = start.elapsed().as_secs_f64() * 1e3;
    let Err(Error::OutOfMemory(why)) = result else {
        return Err("the device is not full".into());
    };
    let text = why.to_text();
    let all = start.elapsed().as_secs_f64() * 1e3;
    assert!(text.len() > 100);
    Ok((failed, all - failed))
}

/// Milliseconds for the same by `cust`, which returns a code only.
fn refused_plainly(context: &Context, bytes: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let _bound = context.make_current()?;
    let start = Instant::now();
    // SAFETY: never read: the allocation fails.
    let result = unsafe { CustBuffer::<u8>::uninitialized(bytes) };
    let failed = start.elapsed().as_secs_f64() * 1e3;
    assert!(result.is_err(), "the device is not full");
    Ok(failed)
}

pub fn shortage(short: bool) -> Outcome {
    let counts: &[usize] = if short {
        &[100]
    } else {
        &[1_000, 10_000, 100_000]
    };
    for (name, ask) in [("alone", false), ("nvml", true)] {
        let settings = OomPolicy::new().ask_processes(ask);
        for level in [TrackingLevel::Sites, TrackingLevel::Stacks] {
            let context = Context::builder()
                .level(level)
                .oom_policy(settings.clone())
                .build()?;
            let mut live = Vec::new();
            for count in counts {
                while live.len() < *count {
                    // SAFETY: never read.
                    live.push(unsafe { DeviceBuffer::<u8>::uninitialized(&context, 4096)? });
                }
                // The rest of the device is one block; an eighth of it is asked for.
                let memory = context.memory()?;
                let rest = memory.free as usize - (64 << 20);
                // SAFETY: never read.
                let rest = unsafe { DeviceBuffer::<u8>::uninitialized(&context, rest)? };
                let bytes = memory.total as usize / 8;
                // The first time, NVML is loaded.
                let (first, _) = refused(&context, bytes)?;
                let times = (0..21)
                    .map(|_| refused(&context, bytes))
                    .collect::<Result<Vec<_>, _>>()?;
                let plain = (0..21)
                    .map(|_| refused_plainly(&context, bytes))
                    .collect::<Result<Vec<_>, _>>()?;
                drop(rest);
                let failed = median(times.iter().map(|time| time.0).collect());
                let text = median(times.iter().map(|time| time.1).collect());
                println!(
                    "shortage live={count} way={name} level={level} ms={failed:.3} \
                     first_ms={first:.3} text_ms={text:.3} cust_ms={:.3}",
                    median(plain)
                );
            }
        }
    }
    Ok(())
}
