//! What a launch asks the driver for, and what it allocates.

use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Fault};
use cuguard::{DeviceBuffer, LaunchConfig, Result};

use super::{ALLOCATIONS, Setup, observed_turn};
use crate::support::*;

/// How often the simulated driver was called for what a launch could ask.
fn queries() -> Vec<(&'static str, u64)> {
    let counters = sim::counters();
    let calls = counters.calls.iter().filter(|(name, _)| {
        name.starts_with("cuFunc")
            || name.starts_with("cuDeviceGet")
            || name.starts_with("cuOccupancy")
    });
    let mut calls: Vec<_> = calls.map(|(name, count)| (*name, *count)).collect();
    calls.sort_unstable();
    calls
}

#[test]
fn a_launch_queries_nothing_after_the_first() -> Result<()> {
    let _turn = observed_turn();
    if !simulated("a_launch_queries_nothing_after_the_first") {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let before = queries();
    at.launch(&nothing, (1, 1))?;
    assert_ne!(queries(), before, "the first launch reads the limits");
    let before = queries();
    // The same kernel, looked up again.
    let again = at.module.function("nothing")?;
    for _ in 0..10 {
        at.launch(&nothing, (1, 1))?;
        at.launch(
            &again,
            LaunchConfig::new(2, 2).shared_bytes(48 << 10).cooperative(),
        )?;
    }
    assert_eq!(queries(), before);
    let first = LaunchConfig::for_elements(&nothing, 1000)?;
    let before = queries();
    assert_eq!(LaunchConfig::for_elements(&again, 1000)?, first);
    assert_eq!(queries(), before);
    Ok(())
}

#[test]
fn large_shared_memory_is_allowed_once() -> Result<()> {
    let _turn = observed_turn();
    if !simulated("large_shared_memory_is_allowed_once") {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let calls = || {
        let calls = sim::counters().calls;
        calls.get("cuFuncSetAttribute").copied().unwrap_or(0)
    };
    let launch = |bytes| at.launch(&nothing, LaunchConfig::new(1, 32).shared_bytes(bytes));
    launch(48 << 10)?;
    let before = calls();
    for bytes in [64 << 10, 64 << 10, 50_000, 64 << 10] {
        launch(bytes)?;
    }
    assert_eq!(calls(), before + 1);
    assert_eq!(nothing.attributes()?.max_dynamic_shared_bytes, 64 << 10);
    launch(100_000)?;
    launch(64 << 10)?;
    assert_eq!(calls(), before + 2);
    // A failure is not remembered as a success.
    let fault = Fault::nth_call_of("cuFuncSetAttribute", 1).returning(CUresult::UNKNOWN);
    let fault = sim::inject(fault).expect("there is such a function");
    assert_eq!(launch(120_000).unwrap_err().code(), Some(CUresult::UNKNOWN));
    assert_eq!(fault.fired(), 1);
    launch(120_000)?;
    assert_eq!(nothing.attributes()?.max_dynamic_shared_bytes, 120_000);
    Ok(())
}

/// Reading the limits loads the kernel's code, which may need memory: callbacks help there too.
#[test]
fn the_first_launch_recovers_where_its_limits_cannot_be_read() -> Result<()> {
    let _turn = observed_turn();
    if !simulated("the_first_launch_recovers_where_its_limits_cannot_be_read") {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let callback = at.context.release_on_oom(|_| ());
    let fault = Fault::nth_call_of("cuFuncGetAttribute", 1).returning(CUresult::OUT_OF_MEMORY);
    let fault = sim::inject(fault).expect("there is such a function");
    at.launch(&nothing, (1, 1))?;
    assert_eq!(fault.fired(), 1);
    drop(callback);
    Ok(())
}

#[test]
fn a_launch_allocates_nothing_on_the_host() -> Result<()> {
    let _turn = observed_turn();
    // The simulated driver is in this process, and allocates.
    if !real("a_launch_allocates_nothing_on_the_host") {
        return Ok(());
    }
    let at = Setup::new()?;
    let scale = at.module.function("scale")?;
    let input = DeviceBuffer::from_slice(&at.context, &[1.0_f32; 100])?;
    let mut output = DeviceBuffer::<f32>::zeroed(&at.context, 100)?;
    at.stream.scope(|s| {
        let (input, output) = (s.bind(&input)?, s.bind_mut(&mut output)?);
        let launch = || {
            // SAFETY: scale(input, output, count, factor) accesses `count` values of each.
            unsafe { s.launch(&scale, (1, 128), &[&input, &output, &100_u32, &2.0_f32]) }
        };
        launch()?;
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            launch()?;
        }
        assert_eq!(ALLOCATIONS.get(), before);
        Ok(())
    })?;
    assert_eq!(output.to_vec()?, [2.0; 100]);
    Ok(())
}
