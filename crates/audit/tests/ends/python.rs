//! A Python interpreter's own teardown, its ways to end, and its ways to start other processes.

use std::path::Path;
use std::process::Command;

use super::program::{assert_end, code, command, program, without_core};
use cuguard_testing::{Requirement, not_run};

/// A Python interpreter's own teardown, its ways to end, and its ways to start other processes.
#[test]
fn python_ends_as_without_the_library() {
    let Some(_) = program() else { return };
    let python = Path::new("python3");
    let version = Command::new(python).arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        return not_run(Requirement::Python, "");
    }
    const USE: &str = "
import ctypes, os, signal, subprocess, sys, threading, time
def use():
    assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0
def fork(child):
    process = os.fork()
    if process == 0:
        child()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
";
    for (script, status, reasons) in [
        ("use()", code(0), &["exit"][..]),
        ("use(); sys.exit(3)", code(3), &["exit"]),
        ("use(); os._exit(4)", code(4), &["_exit"]),
        ("use(); raise ValueError", code(1), &["exit"]),
        ("use(); os.abort()", libc::SIGABRT, &["SIGABRT"]),
        // Python raises KeyboardInterrupt, and ends itself by the signal after its teardown.
        (
            "use(); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
            libc::SIGINT,
            &["SIGINT"],
        ),
        (
            "use(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
            libc::SIGTERM,
            &["SIGTERM"],
        ),
        // A daemon thread still runs at the end.
        (
            "use(); threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
            code(0),
            &["exit"],
        ),
        (
            "use(); os.execvp('sh', ['sh', '-c', 'exit 5'])",
            code(5),
            &["exec"],
        ),
        (
            "use(); assert subprocess.call(['sh', '-c', 'exit 6']) == 6",
            code(0),
            &["exit"],
        ),
        (
            "use(); assert fork(lambda: os._exit(7)) == 7",
            code(0),
            &["exit"],
        ),
        (
            "assert fork(lambda: (use(), os._exit(8))) == 8",
            code(0),
            &["_exit"],
        ),
        (
            "assert fork(lambda: (use(), sys.exit(9))) == 9",
            code(0),
            &["exit"],
        ),
        ("pass", code(0), &[]),
    ] {
        eprintln!("{script}");
        let mut command = command(python, "-c");
        let output = command
            .arg(format!("{USE}{script}"))
            .output()
            .expect("Python starts");
        assert_end(&without_core(&output), status, reasons);
    }
}
