//! `cuguard doctor` shows the pools of running processes. The process is a child, which is this test program.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::support::cuguard;
use cuguard::{Context, DeviceBuffer, Pool};
use serde_json::Value;

/// Set in the child.
const ROLE: &str = "CUGUARD_TEST_DOCTOR_POOLS";

/// The child. Without the variable this is not a test.
#[test]
fn child() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let pool = Pool::builder()
        .with_label("activations")
        .decay(std::time::Duration::MAX)
        .build(&context)
        .unwrap();
    let _empty = Pool::new(&context).unwrap();
    let _live = DeviceBuffer::<u8>::zeroed(&pool, 3 << 20).unwrap();
    drop(DeviceBuffer::<u8>::zeroed(&pool, 60 << 20).unwrap());
    println!("\nready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A child that waits, and the folder of its socket.
struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    fn start(report: Option<&str>) -> Self {
        let name = format!(
            "cuguard-doctor-pools-{}-{}",
            std::process::id(),
            report.is_some()
        );
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut command = cuguard_testing::test_command("child");
        command
            .env(ROLE, "1")
            .env("CUGUARD_DRIVER", "sim")
            .env("XDG_RUNTIME_DIR", &folder)
            .env_remove("LEAK_REPORT")
            .envs(report.map(|words| ("LEAK_REPORT", words)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the child ended");
        Self { child, folder }
    }

    fn doctor(&self, arguments: &[&str]) -> String {
        let mut command = cuguard("sim", &["doctor"]);
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.folder);
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).expect("reports are UTF-8")
    }

    /// The first report that has the process: a process that does not reply in half a second is left out.
    fn doctor_with(&self, arguments: &[&str], has_it: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let report = self.doctor(arguments);
            if has_it(&report) || begin.elapsed() > Duration::from_secs(60) {
                return report;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The pools of one process in the JSON report: other tests may run processes at the same time.
fn pools_of(report: &str, process: u32) -> Vec<Value> {
    let value: Value = serde_json::from_str(report).expect("it is JSON");
    let pools = value["pools"].as_array().expect("an array");
    let own = pools.iter().filter(|pool| pool["process"] == process);
    own.cloned().collect()
}

#[test]
fn the_pools_of_a_process_that_can_be_asked_are_shown() {
    let running = Running::start(Some("1"));
    let process = running.child.id();
    let has_it = |report: &str| !pools_of(report, process).is_empty();
    let pools = pools_of(&running.doctor_with(&["--json"], has_it), process);
    assert_eq!(pools.len(), 1, "{pools:?}");
    let pool = &pools[0];
    assert_eq!(pool["label"], "activations");
    assert_eq!(
        (&pool["used_bytes"], &pool["held_bytes"]),
        (&(3 << 20).into(), &(64 << 20).into())
    );
    assert_eq!(pool["idle_bytes"], 61 << 20);
    assert_eq!(
        (&pool["page_count"], &pool["pinned_page_count"]),
        (&32.into(), &0.into())
    );
    assert!(pool["command"].as_str().unwrap().contains("--exact"));
    let text = running.doctor_with(&[], |text| text.contains("\"activations\""));
    let line = format!(
        "{process:>7}  pool \"activations\" on its GPU 0: 64 MiB held, 3 MiB in live blocks, 61 MiB idle"
    );
    assert!(text.contains(&line), "{text}");
}

#[test]
fn a_process_without_reports_has_no_socket() {
    let running = Running::start(None);
    let pools = pools_of(&running.doctor(&["--json"]), running.child.id());
    assert!(pools.is_empty(), "{pools:?}");
}
