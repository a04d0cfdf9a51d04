//! `cuguard doctor` as a child process.
//!
//! Most tests run on the simulated GPU. Those that need a real GPU, or a machine without one, print
//! `NOT RUN` elsewhere.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use cuguard_testing::{Requirement, not_run};
use serde_json::Value;

use crate::support::cuguard;

fn run(driver: &str, arguments: &[&str]) -> Output {
    output(&mut cuguard(driver, arguments))
}

fn output(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert_no_panic(&output.stderr);
    output
}

#[track_caller]
fn assert_no_panic(stderr: &[u8]) {
    let stderr = String::from_utf8_lossy(stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("reports are UTF-8")
}

fn json(output: &Output) -> Value {
    let text = text(output);
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    serde_json::from_str(&text).expect("it is JSON")
}

#[track_caller]
fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_simulated_gpu_is_healthy() {
    let output = run("sim", &["doctor", "--probe"]);
    assert_eq!(output.status.code(), Some(0));
    assert_parts(
        &text(&output),
        &[
            "simulated GPU",
            "GPU 0: cuguard simulated GPU at 0000:01:00.0",
            "4 GiB in all: 4 GiB free, 0 B used;",
            "not known: NVML is not asked",
            "costs 32 MiB here, measured",
            "3.97 GiB, 100 % of the 3.97 GiB",
            "in one piece",
            "verdict        healthy",
            "verdict        the GPU can be used",
        ],
    );
    // The line that announces the simulation, and no report of leaks.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_simulated_gpu_as_json() {
    let output = run("sim", &["doctor", "--json", "--probe"]);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    assert_eq!(report["version"], 1);
    assert_eq!(report["healthy"], true);
    assert_eq!(report["driver"]["simulated"], true);
    let gpu = &report["gpus"][0];
    assert_eq!(gpu["memory"]["total_bytes"], 4_u64 << 30);
    assert_eq!(gpu["memory"]["free_bytes"], 4_u64 << 30);
    assert_eq!(gpu["memory"]["own_context"], false);
    assert_eq!(gpu["processes"], Value::Null);
    assert_eq!(gpu["probe"]["context_cost_bytes"], 32 << 20);
    assert_eq!(
        gpu["probe"]["largest_block_bytes"],
        (4_u64 << 30) - (32 << 20)
    );
    assert_eq!(gpu["probe"]["in_one_piece"], true);
    assert_eq!(gpu["findings"], serde_json::json!([]));
}

#[test]
fn two_gpus_and_one_of_them() {
    let two = |arguments| {
        let mut command = cuguard("sim", arguments);
        output(command.env("CUGUARD_SIM", "devices=2,memory=1GiB,context=100MiB"))
    };
    let both = two(&["doctor", "--json", "--probe"]);
    let report = json(&both);
    assert_eq!(report["summary"], "all 2 GPUs can be used");
    let gpus = report["gpus"].as_array().expect("a list");
    assert_eq!(gpus.len(), 2);
    for (ordinal, gpu) in gpus.iter().enumerate() {
        assert_eq!(gpu["ordinal"], ordinal);
        assert_eq!(gpu["memory"]["total_bytes"], 1 << 30);
        assert_eq!(gpu["probe"]["context_cost_bytes"], 100 << 20);
    }
    assert_ne!(gpus[0]["pci_bus_id"], gpus[1]["pci_bus_id"]);

    let second = text(&two(&["doctor", "--device", "1"]));
    assert_parts(&second, &["GPU 1: ", "0000:02:00.0"]);
    assert!(!second.contains("GPU 0: "), "{second}");

    let third = two(&["doctor", "--device", "2"]);
    assert_eq!(third.status.code(), Some(2));
    assert_parts(&text(&third), &["there is no GPU 2; CUDA has 2"]);
}

#[test]
fn a_gpu_without_room_for_a_context() {
    let mut command = cuguard("sim", &["doctor", "--json"]);
    let output = output(command.env("CUGUARD_SIM", "memory=64MiB,context=100MiB"));
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["healthy"], false);
    let gpu = &report["gpus"][0];
    assert_eq!(gpu["probe"]["code"], 2);
    assert_eq!(gpu["findings"][0]["code"], "refused");
    assert_eq!(gpu["findings"][0]["severity"], "problem");
}

#[test]
fn nothing_is_measured_unless_asked_for() {
    let output = run("sim", &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    let gpu = &report["gpus"][0];
    assert_eq!(gpu["probe"], Value::Null);
    assert_eq!(gpu["memory"]["total_bytes"], 4_u64 << 30);
    assert_eq!(
        gpu["memory"]["free_bytes"],
        (4_u64 << 30) - (32 << 20),
        "beside the context that asked"
    );
    assert_eq!(gpu["memory"]["own_context"], true);
    assert_eq!(gpu["findings"][0]["code"], "not_probed");
    let output = run("sim", &["doctor"]);
    assert_eq!(output.status.code(), Some(0));
    assert_parts(
        &text(&output),
        &[
            "4 GiB in all: 3.97 GiB free, 32 MiB used with a context of this command;",
            "a context      not measured (--probe measures it)",
            "largest block  not measured (--probe measures it)",
            "note           the largest block was not measured: free memory may be fragmented",
            "verdict        no problem was found: 3.97 GiB are free",
            "machine\n    verdict        no problem was found\n",
        ],
    );
}

#[test]
fn without_a_driver() {
    let output = run("real", &["doctor"]);
    if output.status.code() != Some(3) {
        return not_run(Requirement::NoDriver, "");
    }
    assert_parts(
        &text(&output),
        &[
            "libcuda.so.1",
            "what to do",
            "--gpus all",
            "CUGUARD_DRIVER=sim",
        ],
    );
    let output = run("real", &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let report = json(&output);
    assert_eq!(report["healthy"], false);
    assert!(report["failure"]["text"].is_string());
    // `--watch` ends.
    assert_eq!(run("real", &["doctor", "--watch"]).status.code(), Some(3));
}

/// On a real GPU only the presence of the figures is certain.
#[test]
fn a_real_gpu() {
    let output = run("real", &["doctor", "--json", "--probe"]);
    if output.status.code() == Some(3) {
        return not_run(Requirement::RealGpu, "");
    }
    let report = json(&output);
    assert_eq!(report["driver"]["simulated"], false);
    let gpu = &report["gpus"][0];
    let total = gpu["memory"]["total_bytes"].as_u64().expect("a number");
    assert!(total > 1 << 30, "{report}");
    if output.status.code() == Some(0) {
        let probe = &gpu["probe"];
        assert!(
            probe["largest_block_bytes"].as_u64().expect("a number") < total,
            "{report}"
        );
        let cost = probe["context_cost_bytes"].as_u64();
        assert!(
            cost.is_none_or(|cost| (1 << 20..8 << 30).contains(&cost)),
            "{report}"
        );
    }
    for arguments in [&["doctor"][..], &["doctor", "--probe"]] {
        let output = run("real", arguments);
        assert_parts(&text(&output), &["NVIDIA driver", "GPU 0: ", "machine\n"]);
        println!("{}", text(&output));
    }
    let output = run("real", &["doctor", "--json"]);
    assert_eq!(json(&output)["gpus"][0]["probe"], Value::Null);
}

#[test]
fn a_driver_that_does_not_exist() {
    for (driver, words) in [
        ("/no/such/libcuda.so.1", "/no/such/libcuda.so.1"),
        ("nonsense", "names no driver"),
    ] {
        let output = run(driver, &["doctor"]);
        assert_eq!(output.status.code(), Some(2));
        assert_parts(&text(&output), &[words, "what to do"]);
    }
    let mut command = cuguard("sim", &["doctor", "--json"]);
    let output = output(command.env("CUGUARD_SIM", "colour=red"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json(&output)["failure"]["code"], "simulated");
    // It starts, and has no device.
    let mut command = cuguard("sim", &["doctor", "--json"]);
    let output = self::output(command.env("CUGUARD_SIM", "devices=0"));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn help_tells_the_exit_codes() {
    let output = run("sim", &["doctor", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert_parts(
        &text(&output),
        &[
            "--json",
            "--watch",
            "--device",
            "--probe",
            "allocates all free memory for a moment",
            "Exit codes:",
            "\n  3  no driver",
        ],
    );
    let output = run("sim", &["--help"]);
    assert_parts(&text(&output), &["doctor"]);
    let output = run("sim", &["--version"]);
    assert_eq!(
        text(&output),
        format!("cuguard {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn bad_options_are_usage_errors() {
    for arguments in [
        &["doctor", "--colour"][..],
        &["doctor", "--device", "first"],
        &["doctor", "--device", "-1"],
        &["doctor", "--watch", "0"],
        &["doctor", "--no-probe"],
        &["physician"],
        &[],
    ] {
        let output = run("sim", arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

/// `--no-probe` was an option once: the error names the one that there is.
#[test]
fn the_error_for_no_probe_names_probe() {
    let output = run("sim", &["doctor", "--no-probe"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_parts(&stderr, &["'--no-probe'", "'--probe'"]);
}

/// The code is that of the last report, and a problem stays one while it is there.
#[test]
fn a_problem_stays_one_while_watching() {
    let mut command = cuguard("sim", &["doctor", "--json", "--watch", "0.1"]);
    command.env("CUGUARD_SIM", "memory=64MiB,context=100MiB");
    let mut child = Child::spawn(&mut command);
    let lines = BufReader::new(child.0.stdout.take().expect("it is a pipe")).lines();
    for line in lines.take(3) {
        let report: Value = serde_json::from_str(&line.expect("a line")).expect("it is JSON");
        assert_eq!(report["gpus"][0]["findings"][0]["code"], "refused");
    }
    assert_eq!(child.ended().0, Some(1));
}

/// Ends the child if a test fails before it does.
struct Child(std::process::Child);

impl Child {
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut cuguard("sim", arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program starts"))
    }

    /// Waits for it to end by itself; answers its code and what it wrote to standard error.
    fn ended(mut self) -> (Option<i32>, Vec<u8>) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut stderr = Vec::new();
        let mut pipe = self.0.stderr.take().expect("it is a pipe");
        pipe.read_to_end(&mut stderr).expect("it can be read");
        (status.code(), stderr)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_reader_that_goes_is_no_panic() {
    for arguments in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["doctor", "--watch", "0.1"],
    ] {
        let mut child = Child::start(arguments);
        drop(child.0.stdout.take());
        let (code, stderr) = child.ended();
        assert_no_panic(&stderr);
        // What the report would have said.
        assert_eq!(code, Some(0), "{arguments:?}");
    }
}

/// Writes fail: the device is full, or the file is open for reading alone.
#[test]
fn output_that_cannot_be_written() {
    for arguments in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["doctor", "--watch", "0.1"],
    ] {
        let full = File::options().write(true).open("/dev/full");
        // Open for reading alone.
        let null = File::open("/dev/null");
        for file in [full.expect("it is there"), null.expect("it is there")] {
            let output = output(cuguard("sim", arguments).stdout(file));
            assert_eq!(output.status.code(), Some(4), "{arguments:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("cannot write"), "{stderr}");
        }
    }
}

#[test]
fn watching_reports_again_and_measures_once() {
    let mut child = Child::start(&["doctor", "--json", "--watch", "0.1", "--probe"]);
    let reports: Vec<Value> = BufReader::new(child.0.stdout.take().expect("it is a pipe"))
        .lines()
        .take(3)
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("it is JSON"))
        .collect();
    let (code, stderr) = child.ended();
    assert_no_panic(&stderr);
    assert_eq!(code, Some(0));
    let ages = reports.iter().map(|report| {
        let probe = &report["gpus"][0]["probe"];
        assert_eq!(probe["context_cost_bytes"], 32 << 20);
        probe["age_seconds"].as_f64().expect("a number")
    });
    let ages: Vec<f64> = ages.collect();
    // Free memory is read each time.
    for report in &reports {
        assert_eq!(report["gpus"][0]["memory"]["free_bytes"], 4_u64 << 30);
    }
    assert_eq!(ages[0], 0.0);
    assert!(ages[0] < ages[1] && ages[1] < ages[2], "{ages:?}");
}

#[test]
fn watching_measures_nothing_unless_asked_to() {
    let mut child = Child::start(&["doctor", "--json", "--watch", "0.1"]);
    let lines = BufReader::new(child.0.stdout.take().expect("it is a pipe")).lines();
    for line in lines.take(3) {
        let report: Value = serde_json::from_str(&line.expect("a line")).expect("it is JSON");
        assert_eq!(report["gpus"][0]["probe"], Value::Null);
        let free = &report["gpus"][0]["memory"]["free_bytes"];
        assert_eq!(*free, (4_u64 << 30) - (32 << 20));
    }
    assert_eq!(child.ended().0, Some(0));
}

#[test]
fn reports_into_a_pipe_are_parted_by_an_empty_line() {
    let mut child = Child::start(&["doctor", "--watch", "0.1"]);
    let lines = BufReader::new(child.0.stdout.take().expect("it is a pipe")).lines();
    let lines: Vec<String> = lines.map(|line| line.expect("a line")).take(40).collect();
    let second = lines
        .iter()
        .rposition(|line| line.starts_with("simulated GPU"));
    let second = second.expect("there is a second report");
    assert!(second > 0 && lines[second - 1].is_empty(), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
    child.ended();
}
