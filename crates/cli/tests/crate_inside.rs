//! A program that uses the cuguard crate, under `cuguard run`: the crate's server and its report, and no second ones of the audit library.
//! The program is this test program.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::audited::{cuguard_run, live_program, output, program, subfolder, text};
use crate::support::running::{Running, json};
use cuguard::prelude::*;
use cuguard_recording::{Recording, What};

const CHILD: &str = "CUGUARD_TEST_CHILD";

/// The program. Without the variable this is not a test.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let weights = DeviceBuffer::<u8>::zeroed(&context, 3 << 20).unwrap();
    let _weights = weights.with_label("weights");
    std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 1 << 20).unwrap());
    println!("\nready {}", std::process::id());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The line below which a program forgets a buffer of `cust`.
const FORGETS: u32 = line!() + 4;

fn forget_buffer_of_cust() {
    let _context = std::mem::ManuallyDrop::new(cust::quick_init().unwrap());
    let buffer = cust::memory::DeviceBuffer::from_slice(&[0_u8; 1 << 20]).unwrap();
    std::mem::forget(buffer);
}

/// A program that uses `cust`, and links this crate for its loader alone.
#[test]
fn forgets_with_cust() {
    if std::env::var_os(CHILD).is_some() {
        forget_buffer_of_cust();
    }
}

/// A program that uses both. A guard frees what `cust` has allocated.
#[test]
fn forgets_with_cust_and_guards() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 3 << 20).unwrap();
    forget_buffer_of_cust();
    let other = cust::memory::DeviceBuffer::from_slice(&[0_u8; 5 << 20]).unwrap();
    let address = other.as_device_ptr().as_raw();
    std::mem::forget(other);
    // SAFETY: allocated above, and forgotten.
    drop(unsafe { DeviceBuffer::<u8>::from_raw(&context, address, 5 << 20) });
    drop(buffer);
}

/// Runs a program of this file. The exit code is 23 if anything is lost or still reachable.
fn run_child(child: &str, driver: &str) -> Output {
    let options = ["--exitcode", "23", "--fail-on", "lost,reachable"];
    run_with(&options, child, driver)
}

/// Runs a program of this file.
fn run_with(options: &[&str], child: &str, driver: &str) -> Output {
    let mut command = cuguard_run(options);
    command
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &cuguard_testing::test_path(child),
            "--test-threads=1",
        ])
        .env(CHILD, "1")
        .env("CUGUARD_DRIVER", driver);
    output(&mut command)
}

/// A guard is leaked. The context is closed, so the report is made before the end of the process.
fn leak_guard() {
    let context = Context::new(0).unwrap();
    std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 7 << 20).unwrap());
    drop(context.close());
}

#[test]
fn leaks_a_guard() {
    if std::env::var_os(CHILD).is_some() {
        leak_guard();
    }
}

/// No exit handler of the crate runs.
#[test]
fn leaks_a_guard_and_ends_at_once() {
    if std::env::var_os(CHILD).is_some() {
        leak_guard();
        // SAFETY: ends the process.
        unsafe { libc::_exit(5) };
    }
}

/// The program that `cuguard run` starts uses no CUDA, and its child leaks.
#[test]
fn starts_a_child_that_leaks_a_guard() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let status = cuguard_testing::test_command("leaks_a_guard").status();
    // The child's exit code is its own, as without `cuguard run`.
    assert_eq!(status.unwrap().code(), Some(0));
}

/// What guards leak is lost, in any process, however it ends.
#[test]
fn a_leaked_guard_sets_the_exit_code() {
    if live_program().is_none() {
        return;
    }
    for driver in ["real", "sim"] {
        for (child, own) in [
            ("leaks_a_guard", 0),
            ("leaks_a_guard_and_ends_at_once", 5),
            ("starts_a_child_that_leaks_a_guard", 0),
        ] {
            for (options, code) in [
                (&["--exitcode", "23"][..], 23),
                (&["--fail-on", "lost"], 1),
                (&["--exitcode", "23", "--fail-on", "reachable,growth"], own),
                (&[], own),
            ] {
                let ended = run_with(options, child, driver);
                let stderr = text(&ended.stderr);
                let what = format!("{driver} {child} {options:?}: {stderr}");
                assert_eq!(ended.status.code(), Some(code), "{what}");
                assert_eq!(stderr.matches("cuguard: leaked 7 MiB").count(), 1, "{what}");
            }
        }
    }
}

/// Runs a program of this file by a script, in which `"$@"` is its command line.
fn run_script(options: &[&str], script: &str, child: &str) -> Output {
    let mut command = cuguard_run(options);
    command
        .args(["--", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &cuguard_testing::test_path(child)])
        .env(CHILD, "1")
        .env("CUGUARD_DRIVER", "sim");
    output(&mut command)
}

/// Reports may be off in the process that leaks: the exit code is the command's.
#[test]
fn a_leaked_guard_sets_the_exit_code_without_a_report() {
    let Some(program) = program() else {
        return;
    };
    for unset in ["env -u LEAK_REPORT", "env LEAK_REPORT=0"] {
        let script = format!("{unset} \"$@\"");
        let ended = run_script(&["--exitcode", "23"], &script, "leaks_a_guard");
        let stderr = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(23), "{unset}: {stderr}");
        // As a program without the crate.
        let script = format!("{unset} {} leak", program.display());
        let mut command = cuguard_run(&["--exitcode", "23", "--", "sh", "-c", &script]);
        let ended = output(&mut command);
        let stderr = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(23), "{unset}: {stderr}");
    }
}

/// A script asks for an exit code of one process. The command applies its own besides.
#[test]
fn an_exit_code_that_a_script_asks_for_is_the_processes() {
    let Some(program) = program() else {
        return;
    };
    for (options, code) in [(&[][..], 0), (&["--exitcode", "23"], 23)] {
        let script = "LEAK_REPORT=1,exitcode=5 \"$@\" >&2; echo code $?";
        let ended = run_script(options, script, "leaks_a_guard");
        let stderr = text(&ended.stderr);
        assert_eq!(text(&ended.stdout), "code 5\n", "{options:?}: {stderr}");
        assert_eq!(ended.status.code(), Some(code), "{options:?}: {stderr}");
        let script = format!(
            "LEAK_REPORT=1,exitcode=5 {} leak; echo code $?",
            program.display()
        );
        let ended = output(cuguard_run(options).args(["--", "sh", "-c", &script]));
        let stderr = text(&ended.stderr);
        assert_eq!(text(&ended.stdout), "code 5\n", "{options:?}: {stderr}");
        assert_eq!(ended.status.code(), Some(code), "{options:?}: {stderr}");
    }
}

/// What others than guards allocate is recorded, whichever driver the crate has loaded.
#[test]
fn a_forgotten_buffer_of_cust_is_reported() {
    if live_program().is_none() {
        return;
    }
    for driver in ["real", "sim"] {
        for child in ["forgets_with_cust", "forgets_with_cust_and_guards"] {
            let ended = run_child(child, driver);
            let stderr = text(&ended.stderr);
            assert_eq!(ended.status.code(), Some(23), "{driver} {child}: {stderr}");
            assert!(
                stderr.contains("1 MiB in 1 allocation"),
                "{driver} {child}: {stderr}"
            );
            let line = format!("crate_inside.rs:{FORGETS}");
            assert!(stderr.contains(&line), "{driver} {child}: {stderr}");
            assert!(
                !stderr.contains("5 MiB in 1 allocation"),
                "{driver} {child}: {stderr}"
            );
        }
    }
}

/// A guard owns the context that `cust` allocates in.
#[test]
fn ends_context_of_guard() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let current = context.make_current().unwrap();
    std::mem::forget(cust::memory::DeviceBuffer::from_slice(&[0_u8; 5 << 20]).unwrap());
    drop(current);
    drop(context);
}

/// The same, and `cust` has retained the context, too, and releases it first.
#[test]
fn ends_context_of_guard_and_cust() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let guard = Context::new(0).unwrap();
    let context = cust::quick_init().unwrap();
    std::mem::forget(cust::memory::DeviceBuffer::from_slice(&[0_u8; 5 << 20]).unwrap());
    drop(context);
    drop(guard);
}

/// Memory that the driver has freed with a context is not lost, whoever has released the context.
#[test]
fn what_ends_with_the_context_of_a_guard_is_not_lost() {
    if live_program().is_none() {
        return;
    }
    for driver in ["real", "sim"] {
        for child in ["ends_context_of_guard", "ends_context_of_guard_and_cust"] {
            let ended = run_child(child, driver);
            let stderr = text(&ended.stderr);
            assert_eq!(ended.status.code(), Some(0), "{driver} {child}: {stderr}");
            assert!(
                stderr.contains(": 5 MiB in 1 allocation")
                    && stderr.contains(" not freed before their context was destroyed"),
                "{driver} {child}: {stderr}"
            );
        }
    }
}

/// All resources are of guards. `cust` makes one call, which creates none.
#[test]
fn synchronizes_with_cust() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let current = context.make_current().unwrap();
    std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 3 << 20).unwrap());
    cust::context::CurrentContext::synchronize().unwrap();
    drop(current);
}

/// The crate has reported what its guards leak: a report of the audit library, which knows of none, would contradict it.
#[test]
fn a_program_that_only_synchronizes_with_cust_has_one_report() {
    if live_program().is_none() {
        return;
    }
    for driver in ["real", "sim"] {
        let ended = run_child("synchronizes_with_cust", driver);
        let stderr = text(&ended.stderr);
        assert!(stderr.contains("leaked 3 MiB"), "{driver}: {stderr}");
        assert!(!stderr.contains("nothing is lost"), "{driver}: {stderr}");
        assert!(!stderr.contains("cuguard run: "), "{driver}: {stderr}");
    }
}

/// Another library allocates while a guard captures its stream. The graph is never launched.
#[test]
fn allocates_in_capture_of_guard() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let stream = cuguard::Stream::new(&context).unwrap();
    let (graph, ()) = stream
        .capture(|stream| {
            let mut address = 0;
            let allocate = |raw| {
                // SAFETY: the address can be written to, and the stream is valid.
                unsafe { cuguard::driver::api::cuMemAllocAsync(&mut address, 5 << 20, raw) }
            };
            // SAFETY: the call only adds a node to the graph.
            let code = unsafe { stream.call_library(allocate)? };
            assert!(code.is_success(), "{code:?}");
            Ok(())
        })
        .unwrap();
    drop(graph);
}

/// A node of a graph allocates nothing before the graph is launched.
#[test]
fn allocations_in_a_capture_of_a_guard_are_not_lost() {
    if live_program().is_none() {
        return;
    }
    for driver in ["real", "sim"] {
        let ended = run_child("allocates_in_capture_of_guard", driver);
        let stderr = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{driver}: {stderr}");
        assert!(!stderr.contains("5 MiB"), "{driver}: {stderr}");
    }
}

/// Starts it with further arguments of `cuguard run`. `None` without a C compiler, which the folder of the driver needs.
fn start(arguments: &[&str]) -> Option<Running> {
    live_program()?;
    let own = std::env::current_exe().unwrap();
    Some(Running::start_with(
        &own,
        &cuguard_testing::test_path("child"),
        |command: &mut Command| {
            // The crate finds the driver by its name, as it does on a machine with a GPU.
            command
                .args(arguments)
                .env(CHILD, "1")
                .env("CUGUARD_DRIVER", "real")
                .env("RUST_TEST_NOCAPTURE", "1");
        },
    ))
}

#[test]
fn one_server_and_one_report() {
    let Some(running) = start(&[]) else {
        return;
    };
    assert_eq!(running.sockets().len(), 1);
    // One report, the crate's: labels are its own.
    let report = json(&running.dump(&["--json"]));
    assert_eq!(report["reason"], "requested");
    let dumped = text(&running.dump(&[]).stdout);
    assert!(dumped.contains("\"weights\""), "{dumped}");
    assert_eq!(
        dumped.matches("cuguard: what is live").count(),
        1,
        "{dumped}"
    );
    let process = running.process.to_string();
    let arguments = ["watch", "--once", "--interval", "0.1", &process];
    let watched = output(&mut running.cuguard(&arguments));
    assert!(watched.status.success(), "{}", text(&watched.stderr));
    let frame = text(&watched.stdout);
    let device = "device memory: 4 MiB in 2 allocations, +0 B/s, 0 allocations/s\n";
    assert!(frame.contains(device), "{frame}");
    assert!(frame.contains("weights"), "{frame}");
    // Through `cuguard run` itself, too.
    let command = running.command.id().to_string();
    let dumped = output(&mut running.cuguard(&["dump", "--json", &command]));
    assert_eq!(json(&dumped)["reason"], "requested");
    let ended = running.end();
    let stderr = text(&ended.stderr);
    assert!(ended.status.success(), "{stderr}");
    assert_eq!(
        stderr.matches("cuguard: leak report for").count(),
        1,
        "{stderr}"
    );
    assert!(stderr.contains("leaked 1 MiB"), "{stderr}");
    assert!(!stderr.contains("cuguard: process "), "{stderr}");
}

#[test]
fn one_recording() {
    let folder = subfolder("crate-recorded");
    let file = folder.join("run.cgr");
    let Some(running) = start(&["--record", file.to_str().unwrap()]) else {
        return;
    };
    let ended = running.end();
    let stderr = text(&ended.stderr);
    assert!(ended.status.success(), "{stderr}");
    let line = format!("cuguard run: recording in {}\n", file.display());
    assert!(stderr.ends_with(&line), "{stderr}");
    let names = std::fs::read_dir(&folder).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["run.cgr"]);
    assert_eq!(allocated(&file), [3 << 20, 1 << 20]);
}

/// Bytes of device memory in order.
fn allocated(file: &Path) -> Vec<u64> {
    let recording = Recording::open(file).unwrap_or_else(|error| panic!("{error}"));
    let events = recording.events.iter();
    let bytes = events.filter_map(|event| match event.what {
        What::Allocated { kind, bytes, .. } => {
            let is_device = recording.kinds[usize::from(kind)].name == "device";
            is_device.then_some(bytes)
        }
        _ => None,
    });
    bytes.collect()
}
