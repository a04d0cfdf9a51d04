//! Where a report goes, and the words of `LEAK_REPORT`.

use super::program::{SIMULATED, assert_end, code, command, folder, program, run, text};

#[test]
fn closed_descriptors_and_other_files_are_left_alone() {
    let Some(program) = program() else { return };
    assert_end(&run(program, "close all"), code(20), &[]);

    // A file that happens to be descriptor 2.
    let file = folder().join("data");
    std::fs::write(&file, "data").expect("a file can be written");
    let mut other = command(program, "other file as stderr");
    let output = other.arg(&file).output().expect("it runs");
    assert_end(&output, code(21), &[]);
    assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), Some("data"));

    // A log that the program writes its standard error to.
    let file = folder().join("log");
    let mut log = command(program, "log as stderr");
    let output = log.arg(&file).output().expect("it runs");
    assert_end(&output, code(22), &[]);
    let log = std::fs::read_to_string(&file).expect("the log can be read");
    assert_eq!(log.matches("\"reason\":\"exit\"").count(), 1, "{log}");
}

#[test]
fn a_report_goes_to_the_file_of_the_folder_that_the_program_started_in() {
    let Some(program) = program() else { return };
    let folder = folder().join("start");
    std::fs::create_dir_all(&folder).expect("a folder can be created");
    let output = command(program, "chdir")
        .current_dir(&folder)
        .env("LEAK_REPORT", "1,file=report-%p.txt")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(23));
    let files = std::fs::read_dir(&folder).expect("the folder can be read");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    let report = std::fs::read_to_string(file).expect("the report can be read");
    assert!(report.starts_with("cuguard: process "), "{report}");
    let stderr = text(&output.stderr);
    let ending = format!("; report in {}", file.display());
    let lines = stderr
        .lines()
        .filter(|line| line.starts_with("cuguard: process "));
    let lines: Vec<_> = lines.collect();
    assert!(
        matches!(lines[..], [line] if line.ends_with(&ending)),
        "{stderr}"
    );
}

#[test]
fn the_words_of_leak_report_apply() {
    let Some(program) = program() else { return };
    let run = |words: &str, end: &str| {
        let output = command(program, end).env("LEAK_REPORT", words).output();
        output.expect("it runs")
    };
    let output = run("0", "return");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), SIMULATED);
    let text_report = text(&run("", "return").stderr);
    assert!(text_report.contains("\ncuguard: process "), "{text_report}");
    let output = run("json,colour=purple", "return");
    let stderr = text(&output.stderr);
    let problem = "cuguard: LEAK_REPORT: cannot use \"colour=purple\": \"purple\" is none of auto, always, never\n";
    assert_eq!(stderr.matches(problem).count(), 1, "{stderr}");
    assert_end(&output, code(3), &["exit"]);
    // Without `cuguard run`, the library sets the exit code.
    assert_end(&run("json,exitcode=44", "leak"), code(44), &["exit"]);
    assert_end(&run("json,exitcode=44", "return"), code(3), &["exit"]);
    assert_end(
        &run("json,exitcode=44,fail_on=growth", "leak"),
        code(3),
        &["exit"],
    );
    // What the process started with holds.
    assert_end(&run("json", "setenv"), code(25), &["exit"]);
    // Nothing is printed about words in a process that does not use the driver.
    let output = run("bogus", "unused");
    assert_eq!(text(&output.stderr), "");
    // The program's own output is not lost.
    assert_eq!(text(&run("json", "stdio").stdout), "printed");
    assert_eq!(
        text(&run("json,exitcode=44", "leak after output").stdout),
        "printed"
    );
}

/// A pipe without a reader blocks whoever opens it.
#[test]
fn a_report_that_hangs_does_not_keep_the_process() {
    let Some(program) = program() else { return };
    let pipe = folder().join("pipe");
    let _ = std::fs::remove_file(&pipe);
    let name = std::ffi::CString::new(pipe.to_str().expect("Unicode")).expect("no null byte");
    // SAFETY: the name ends in a null byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let ends = [
        ("return", code(3)),
        ("_exit", code(5)),
        ("SIGTERM", libc::SIGTERM),
    ];
    for (end, status) in ends {
        let output = command(program, end)
            .env("LEAK_REPORT", format!("text,file={}", pipe.display()))
            .env("CUGUARD_REPORT_LIMIT", "1")
            .output()
            .expect("it runs");
        assert_end(&output, status, &[]);
        let stderr = text(&output.stderr);
        assert!(
            stderr.ends_with("no report: it was not complete after 1 s (CUGUARD_REPORT_LIMIT)\n"),
            "{stderr}"
        );
    }
}
