//! Whole scenarios on a driver that refuses: the first call fails, then the second, and so on until
//! the scenario passes; once, and from then on for good; with several errors.
//!
//! Whatever happens: no panic, no use of what is gone (the simulation looks), an error that names
//! the operation, and nothing lost: what is still in the driver afterwards is in the report.

mod pool_scenarios;
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::report::ReportSettings;
use cuguard::sim::{self, Counters, Fault};
use cuguard::{Context, DeviceBuffer, Stream};
use pool_scenarios::POOL_SCENARIOS;
use scenarios::{SCENARIOS, Scenario};

/// Whether there is more in the driver than before.
fn left(before: &Counters, after: &Counters) -> bool {
    after.contexts > before.contexts
        || after.streams > before.streams
        || after.events > before.events
        || after.pools > before.pools
        || after.allocations().count > before.allocations().count
        || after.registered.count > before.registered.count
        || after.reserved.count > before.reserved.count
}

/// One attempt, with a fault in it. Answers whether the fault was met.
fn attempt(name: &str, scenario: Scenario, fault: Fault, file: &Path) -> bool {
    let _ = std::fs::remove_file(file);
    let settings = ReportSettings::text()
        .file(file.to_str().expect("text"))
        .expect("a path");
    let before = sim::live_counters();
    let what = format!("{name}: {fault:?}");
    let injected = sim::inject(fault).unwrap();
    // On a thread of its own: what a refused pop leaves current goes with it.
    let result = std::thread::scope(|scope| {
        let run = || catch_unwind(AssertUnwindSafe(|| scenario(&settings)));
        scope.spawn(run).join()
    });
    sim::clear_faults();
    let result = result
        .unwrap()
        .unwrap_or_else(|_| panic!("{what}: a panic"));
    if let Err(error) = &result {
        assert!(error.to_string().contains("::"), "{what}: {error}");
    }
    // Work that was in flight when the fault was cleared ends, and holds memory until then.
    settle(if name == "two devices" { 2 } else { 1 });
    let after = sim::live_counters();
    assert_eq!(
        after.misuses,
        before.misuses,
        "{what}: {:?}",
        sim::misuses()
    );
    if left(&before, &after) {
        let report = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            report.contains("could not free") || report.contains("not released"),
            "{what}: {before:#?}\n{after:#?}\n{report}\n{result:?}"
        );
    }
    if injected.fired() == 0 {
        result.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(!left(&before, &after), "{what}: {before:?} {after:?}");
    }
    injected.fired() != 0
}

/// Waits for all that the driver has under way, in whatever context; and again, as host functions may
/// have dropped what is freed at the next call.
fn settle(devices: u32) {
    for device in 0..devices {
        let builder = Context::builder().device(device);
        if let Ok(context) = builder.report(ReportSettings::off()).build() {
            let _ = context.synchronize();
            let _ = context.synchronize();
        }
    }
}

/// The scenarios, with their number, whose name begins with `CUGUARD_TEST_SCENARIO`, or all of them.
fn scenarios() -> impl Iterator<Item = (u64, &'static str, Scenario)> {
    let wanted = std::env::var("CUGUARD_TEST_SCENARIO").unwrap_or_default();
    let all = SCENARIOS.into_iter().chain(POOL_SCENARIOS).zip(0..);
    all.filter(move |((name, _), _)| name.starts_with(&wanted))
        .map(|((name, scenario), number)| (number, name, scenario))
}

/// Whether each call is to fail with every code.
fn all_faults() -> bool {
    std::env::var("CUGUARD_TEST_FAULTS").is_ok_and(|value| value == "all")
}

/// Whether only some scenarios or codes are wanted.
fn is_selected() -> bool {
    let variables = ["CUGUARD_TEST_SCENARIO", "CUGUARD_TEST_CODE"];
    variables
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

fn scratch(name: &str) -> PathBuf {
    temporary(&format!("{name}.txt"))
}

/// A device on which contexts are cheap, and which is large: what is refused stays taken. Before
/// anything else, as the simulated machine must not run yet.
fn large_device() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = sim::Config::new()
            .devices(2)
            // Pools reserve as many addresses, which stay reserved where that is refused.
            .memory(1 << 36)
            .context_cost(1 << 20);
        sim::configure(config).expect("it does not run yet");
    });
}

/// Every call fails with each of the codes `always`, and with one of the `others` in turn: all of them for each call take
/// many minutes, and run with `CUGUARD_TEST_FAULTS=all`. `CUGUARD_TEST_CODE` selects one of the codes.
fn every_call(
    mode: &str,
    always: &[CUresult],
    others: &[CUresult],
    fault: impl Fn(u64, CUresult) -> Fault,
) {
    let file = scratch(mode);
    let all = all_faults();
    let count = others.len() as u64;
    let always = always.iter().map(|code| (code, None));
    let others = others
        .iter()
        .zip(0..)
        .map(|(code, turn)| (code, Some(turn)));
    let mut codes: Vec<_> = always.chain(others).collect();
    if let Ok(code) = std::env::var("CUGUARD_TEST_CODE") {
        codes = vec![codes[code.parse::<usize>().expect("a number")]];
    }
    let mut faults = 0_u64;
    for (number, name, scenario) in scenarios() {
        for (code, turn) in &codes {
            // The first code is enough where scenarios are long; the others have their turns.
            if turn.is_none() && *code != codes[0].0 && name.starts_with("a pool") && !all {
                continue;
            }
            for call in 1.. {
                assert!(call < 1000, "{name} never ends");
                if turn.is_some_and(|turn| !all && (call + number) % count != turn) {
                    continue;
                }
                // Pools make many calls that are alike: a sixth of them is refused with the first code, and another sixth
                // with one of the others.
                let sixth = match turn {
                    None => (call + number) % 6 == 0,
                    Some(_) => (call + number) / count % 6 == 1,
                };
                if !all && name.starts_with("a pool") && !sixth {
                    continue;
                }
                if !attempt(name, scenario, fault(call, **code), &file) {
                    break;
                }
                faults += 1;
            }
        }
    }
    let _ = std::fs::remove_file(file);
    injected(mode, faults);
}

/// Printed past the harness, which keeps the output of a test that passes to itself.
fn injected(mode: &str, faults: u64) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{mode}: {faults} faults injected");
}

/// Runs a test in a process of its own for each scenario, some at a time, and returns how many faults they injected; at
/// least `least` each. In one process the attempts would become slower, as what is refused stays taken, and the simulated GPU
/// has addresses for about 1,000 pools that stay reserved. `codes` are those of a scenario that has a process for each.
fn apart(
    test: &str,
    mode: &str,
    least: u64,
    codes: impl Fn(&str) -> &'static [&'static str] + Sync,
) -> u64 {
    let next = Mutex::new(scenarios());
    let child_of = |name: &str| {
        let faults = codes(name).iter().map(|code| {
            let code = ("CUGUARD_TEST_CODE", *code);
            let code = (!code.1.is_empty()).then_some(code);
            let scenario = ("CUGUARD_TEST_SCENARIO", name);
            let variables: Vec<_> = code.into_iter().chain([scenario]).collect();
            let (_, err) = succeeded(&child(test, "child", &variables));
            let line = err.lines().find_map(|line| line.strip_prefix(mode));
            let count = line.and_then(|line| line.strip_prefix(": ")?.split(' ').next());
            let count: Option<u64> = count.and_then(|count| count.parse().ok());
            let count = count.unwrap_or_else(|| panic!("{name}: no count in\n{err}"));
            assert!(count >= least || is_selected(), "{name}: {count} faults");
            count
        });
        faults.sum::<u64>()
    };
    let worker = || {
        let mut faults = 0;
        loop {
            let scenario = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((_, name, _)) = scenario else {
                return faults;
            };
            faults += child_of(name);
        }
    };
    std::thread::scope(|scope| {
        // Those that stop the device wait most of the time.
        let workers = [(); 8].map(|()| scope.spawn(worker));
        workers.map(|worker| worker.join().unwrap()).iter().sum()
    })
}

#[test]
fn each_call_refused_once() {
    const TEST: &str = "each_call_refused_once";
    if !simulated(TEST) {
        return;
    }
    if part().is_none() {
        let faults = apart(TEST, "once", 3, |_| &[""]);
        assert!(faults > 5000 || is_selected(), "{faults} faults");
        return;
    }
    large_device();
    let _turn = turn();
    let always = [CUresult::UNKNOWN, CUresult::OUT_OF_MEMORY];
    let others = [
        CUresult::INVALID_VALUE,
        CUresult::ILLEGAL_ADDRESS,
        CUresult::NOT_READY,
        // A capture of other code prohibits the call.
        CUresult::STREAM_CAPTURE_UNSUPPORTED,
        CUresult(54_321),
    ];
    every_call("once", &always, &others, |call, code| {
        Fault::nth_call(call).returning(code)
    });
}

/// From one call on nothing works any more, as on a device that is lost.
#[test]
fn each_call_refused_and_all_after_it() {
    const TEST: &str = "each_call_refused_and_all_after_it";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        large_device();
        let _turn = turn();
        for_good();
        return;
    }
    // All codes of one pool scenario would reserve too many addresses; the first is enough by default.
    let codes = |name: &str| -> &[&str] {
        match (name.starts_with("a pool"), all_faults()) {
            (false, _) => &[""],
            (true, false) => &["0"],
            (true, true) => &["0", "1", "2"],
        }
    };
    let faults = apart(TEST, "for good", 3, codes);
    assert!(faults > 1000 || is_selected(), "{faults} faults");
}

fn for_good() {
    // Not `UNKNOWN`, which does not mean that the device has stopped: a scope aborts the process after 20 seconds of it.
    let (always, others) = (
        [CUresult::LAUNCH_FAILED],
        [CUresult::ILLEGAL_ADDRESS, CUresult::CONTEXT_IS_DESTROYED],
    );
    every_call("for good", &always, &others, |call, code| {
        Fault::nth_call(call).returning(code).sticky()
    })
}

/// Memory runs out at every allocation in turn, once and for good.
#[test]
fn out_of_memory_at_every_allocation() {
    const TEST: &str = "out_of_memory_at_every_allocation";
    if !simulated(TEST) {
        return;
    }
    if part().is_none() {
        // One is out of memory however much there is, the other allocates nothing.
        let codes = |name: &str| -> &[&str] {
            match name {
                "out of memory" | "the device heap" => &[],
                _ => &[""],
            }
        };
        let faults = apart(TEST, "memory", 1, codes);
        assert!(faults > 100 || is_selected(), "{faults} faults");
        return;
    }
    large_device();
    let _turn = turn();
    let file = scratch("memory");
    let mut faults = 0;
    for (_, name, scenario) in scenarios() {
        for number in 1.. {
            assert!(number < 1000, "{name} never ends");
            let once = Fault::nth_allocation(number);
            let for_good = once.clone().sticky();
            if !attempt(name, scenario, once, &file) {
                break;
            }
            attempt(name, scenario, for_good, &file);
            faults += 2;
        }
        // Smaller blocks still fit where a large one does not.
        let mut bytes = 0;
        while attempt(name, scenario, Fault::after_bytes(bytes).sticky(), &file) {
            bytes = bytes * 3 / 2 + 100;
            faults += 1;
        }
    }
    let _ = std::fs::remove_file(file);
    injected("memory", faults);
}

/// The device stops in the middle of its work: guards still drop, nothing that was refused counts
/// as freed, and the report says what happened and that only a new process helps.
#[test]
fn a_device_that_breaks_in_the_middle() {
    const TEST: &str = "a_device_that_breaks_in_the_middle";
    if !simulated(TEST) {
        return;
    }
    if part().is_some() {
        let context = Context::new(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let result = stream.scope(|s| {
            s.fill(&mut s.bind_mut(&mut buffer)?, 1)?;
            sim::set_sticky_error(CUresult::ILLEGAL_ADDRESS);
            Ok(())
        });
        let code = result.unwrap_err().code();
        assert_eq!(code, Some(CUresult::ILLEGAL_ADDRESS));
        drop((buffer, stream));
        assert!(context.close().is_err());
        let again = Context::new(0).unwrap_err();
        assert_eq!(again.code(), Some(CUresult::ILLEGAL_ADDRESS));
        return;
    }
    let output = child(TEST, "child", &[("LEAK_REPORT", "1,exitcode=23")]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{err}");
    for words in [
        "CUDA_ERROR_ILLEGAL_ADDRESS (700), first returned by cuStreamSynchronize in Stream::scope",
        "only a new process helps",
        "could not free 1000 B in 1 allocation of device memory",
        "could not free 1 stream",
        "2 frees failed",
    ] {
        assert!(err.contains(words), "{words}\n{err}");
    }
}
