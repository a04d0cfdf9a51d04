//! An allocation that runs short makes pools release idle memory: in other contexts of the process, and in other processes of the
//! user. The other process is a child, which is this test program.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::support::pool_blocks::{MIB, take};
use crate::support::*;
use cuguard::oom::{OomPolicy, RecoveryStep};
use cuguard::{Context, DeviceBuffer, Error, Pool, ResourceKind, Result};
use cuguard_live::{Request, ask};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Memory in use, and idle memory, in a pool that releases nothing by itself.
fn hold(context: &Context) -> Result<(Pool, DeviceBuffer<u8>)> {
    let pool = Pool::builder().decay(Duration::MAX).build(context)?;
    let live = DeviceBuffer::from_slice(&pool, &vec![7; 4 * MIB])?;
    drop(take(&pool, 60 * MIB)?);
    assert_eq!((pool.stats().used, pool.stats().held), (4 << 20, 64 << 20));
    Ok((pool, live))
}

#[test]
fn an_allocation_in_another_context_has_what_a_pool_does_not_use() -> Result<()> {
    const TEST: &str = "an_allocation_in_another_context_has_what_a_pool_does_not_use";
    if part().is_none() {
        let variables = [("CUGUARD_DRIVER", "sim"), ("CUGUARD_SIM", "memory=256MiB")];
        succeeded(&child(TEST, "short", &variables));
        return Ok(());
    }
    let context = Context::builder().dedicated().build()?;
    let (pool, live) = hold(&context)?;
    let other = Context::builder().dedicated().build()?;
    let free = other.memory()?.free as usize;
    let more = DeviceBuffer::<u8>::zeroed(&other, free + 32 * MIB)?;
    assert_eq!(pool.stats().held, 4 << 20);
    assert_eq!(live.to_vec()?, vec![7; 4 * MIB]);
    drop(more);
    Ok(())
}

/// A child with idle memory in a pool.
struct Other {
    child: Child,
    stdout: BufReader<ChildStdout>,
    folder: PathBuf,
    /// Whether the folder was created for it, and is removed with it.
    owns_folder: bool,
}

impl Other {
    fn start(name: &str, report: Option<&str>) -> Self {
        let folder = env::temp_dir().join(format!("cuguard-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut other = Self::start_in(&folder, report);
        other.owns_folder = true;
        other
    }

    /// With its socket in this folder.
    fn start_in(folder: &Path, report: Option<&str>) -> Self {
        let mut command = cuguard_testing::test_command("the_other_process");
        command
            .env("CHILD", "other")
            .env("CUGUARD_DRIVER", "sim")
            .env("XDG_RUNTIME_DIR", folder)
            .env_remove("LEAK_REPORT")
            .envs(report.map(|words| ("LEAK_REPORT", words)));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self {
            child,
            stdout,
            folder: folder.to_owned(),
            owns_folder: false,
        };
        other.wait_for("ready");
        other
    }

    /// The rest of the next line that starts with these characters.
    fn wait_for(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the child ended");
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Ends its input, and returns what its pool holds then, in MiB.
    fn held(&mut self) -> String {
        drop(self.child.stdin.take());
        self.wait_for("held ")
    }

    /// Runs a part of a test as a process beside it.
    fn beside(&self, test: &str) -> (String, String) {
        let folder = self.folder.to_str().unwrap();
        let variables = [("CUGUARD_DRIVER", "sim"), ("XDG_RUNTIME_DIR", folder)];
        succeeded(&child(test, "short", &variables))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.owns_folder {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The child. Without the variable this is not a test.
#[test]
fn the_other_process() -> Result<()> {
    if part().as_deref() != Some("other") {
        return Ok(());
    }
    let context = context()?;
    let (pool, live) = hold(&context)?;
    println!("\nready");
    let _ = std::io::stdin().read_line(&mut String::new());
    assert_eq!(live.to_vec()?, vec![7; 4 * MIB]);
    println!("\nheld {}", pool.stats().held >> 20);
    Ok(())
}

/// An allocation that no device has, and the last recovery step in its error.
fn runs_short(policy: OomPolicy) -> Option<RecoveryStep> {
    let context = Context::builder().oom_policy(policy).build().unwrap();
    match DeviceBuffer::<u8>::zeroed(&context, 1 << 50) {
        Err(Error::OutOfMemory(why)) => {
            assert_eq!(context.totals(ResourceKind::Device).count, 0);
            why.recovery.last().map(|result| result.step)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn pools_of_another_process_release_what_is_idle() {
    const TEST: &str = "pools_of_another_process_release_what_is_idle";
    if part().is_some() {
        // The other process has a quarter of a second to reply, which it may miss on a busy machine.
        let begin = Instant::now();
        while runs_short(OomPolicy::new().other_processes(true))
            != Some(RecoveryStep::OtherProcesses)
        {
            assert!(begin.elapsed() < LIMIT, "the other process is not reached");
        }
        return;
    }
    let mut other = Other::start("processes-on", Some("1"));
    other.beside(TEST);
    assert_eq!(other.held(), "4");
}

#[test]
fn the_step_is_off_by_default() {
    const TEST: &str = "the_step_is_off_by_default";
    if part().is_some() {
        let last = runs_short(OomPolicy::new());
        assert_eq!(last, Some(RecoveryStep::Trim));
        return;
    }
    let mut other = Other::start("processes-off", Some("1"));
    other.beside(TEST);
    assert_eq!(other.held(), "64");
}

#[test]
fn a_process_without_reports_is_not_reached() {
    const TEST: &str = "a_process_without_reports_is_not_reached";
    if part().is_some() {
        // Another process of this machine may be reached.
        runs_short(OomPolicy::new().other_processes(true));
        return;
    }
    let mut other = Other::start("processes-none", None);
    other.beside(TEST);
    assert_eq!(other.held(), "64");
}

/// A test that is run beside this one by the same user, and checks what its pools hold, must not be disturbed.
#[test]
fn a_process_of_another_test_is_not_reached() {
    const TEST: &str = "a_process_of_another_test_is_not_reached";
    if part().is_some() {
        runs_short(OomPolicy::new().other_processes(true));
        return;
    }
    // As a child that is started without a folder of its own.
    let folder = PathBuf::from(env::var_os("XDG_RUNTIME_DIR").unwrap_or_default());
    // That of this module alone: the process that runs the modules has created it, and named it after itself.
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let start = format!("cuguard-{}-", std::os::unix::process::parent_id());
    assert!(name.starts_with(&start), "{folder:?}");
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
    let mut other = Other::start_in(&folder, Some("1"));
    let own = env::temp_dir().join(format!("cuguard-processes-own-{}", std::process::id()));
    fs::create_dir_all(&own).unwrap();
    let variables = [
        ("CUGUARD_DRIVER", "sim"),
        ("XDG_RUNTIME_DIR", own.to_str().unwrap()),
    ];
    succeeded(&child(TEST, "short", &variables));
    fs::remove_dir_all(&own).unwrap();
    assert_eq!(other.held(), "64");
    // It removes its socket, which is in the folder of the module.
    assert!(other.child.wait().unwrap().success());
}

#[test]
fn a_process_that_is_stopped_is_not_waited_for() {
    const TEST: &str = "a_process_that_is_stopped_is_not_waited_for";
    if part().is_some() {
        runs_short(OomPolicy::new().other_processes(true));
        return;
    }
    let mut other = Other::start("processes-stopped", Some("1"));
    let process = other.child.id().cast_signed();
    // SAFETY: a child of this test.
    assert_eq!(unsafe { libc::kill(process, libc::SIGSTOP) }, 0);
    let folder = other.folder.to_str().unwrap().to_owned();
    let variables = [("CUGUARD_DRIVER", "sim"), ("XDG_RUNTIME_DIR", &*folder)];
    succeeded(&child_within(LIMIT, TEST, "short", &variables));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(process, libc::SIGCONT) }, 0);
    // What was asked for meanwhile may be done before or after it ends.
    assert!(["4", "64"].contains(&&*other.held()));
}

#[test]
fn only_the_memory_of_the_device_is_released() {
    let mut other = Other::start("processes-device", Some("1"));
    let process = other.child.id();
    let begin = Instant::now();
    let request = Request::Trim { device: [0xff; 16] };
    assert_eq!(ask(process, request).unwrap(), ["0\n"]);
    if !simulated("only_the_memory_of_the_device_is_released") {
        return;
    }
    let device = cuguard::driver::result::init()
        .and_then(|()| cuguard::driver::result::device::uuid(0))
        .expect("the first device has a UUID");
    // A request while another is served releases nothing by itself.
    let mut released = 0;
    while released == 0 && begin.elapsed() < LIMIT {
        let replies = ask(process, Request::Trim { device }).unwrap();
        released = replies[0].trim().parse::<u64>().unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(released, 60 << 20);
    assert_eq!(other.held(), "4");
}
