//! Processes that execute other programs, and processes that have children.

use super::program::{assert_end, code, program, run};

/// The report is made before, as the memory that it is about does not survive. A failed exec leaves the process as it is:
/// it is reported once more at its end.
#[test]
fn an_exec_is_an_end() {
    let Some(program) = program() else { return };
    for (end, status, reasons) in [
        ("exec", 3, &["exec"][..]),
        ("exec of a user", 3, &["exec", "exit"]),
        ("execlp", 12, &["exec"]),
        ("execle", 13, &["exec"]),
        ("execvp", 14, &["exec"]),
        ("exec of nothing", 15, &["exit"]),
        ("exec of no program", 16, &["exec", "exit"]),
        ("exec of a folder", 15, &["exit"]),
        ("unused exec", 3, &["exit"]),
    ] {
        eprintln!("{end}");
        assert_end(&run(program, end), code(status), reasons);
    }
}

#[test]
fn each_process_has_its_own_report() {
    let Some(program) = program() else { return };
    for (end, status, reasons) in [
        ("fork", 17, &["exit"][..]),
        ("unused fork", 3, &["_exit"]),
        ("vfork", 18, &["exit"]),
        ("children", 19, &["SIGTERM", "_exit", "exit"]),
        ("forked use", 26, &["exit"]),
        ("unused _Fork", 3, &["exit"]),
        ("unused clone", 3, &["exit"]),
        ("_Fork", 31, &["exit"]),
        ("clone", 31, &["exit"]),
        ("_Fork with threads", 32, &["exit"]),
        ("unused exec of many", 0, &["exit", "exit", "exit"]),
    ] {
        eprintln!("{end}");
        assert_end(&run(program, end), code(status), reasons);
    }
}
