//! The records of all processes of a run, summed up.
//!
//! `crates/audit/src/output/run_folder.rs` writes them, and describes their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use cuguard::snapshot::Amount;
use cuguard_live::SignalName;
use cuguard_report::phrase::count;
use cuguard_report::{ByteSize, FailOn};

/// The commands that print summaries.
pub(super) const RUN: &str = "cuguard run";
pub(super) const CARGO: &str = "cargo cuguard";

/// How many processes are listed.
const LISTED: usize = 20;

/// One report of a process. A process that executes another program has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Report {
    lost: Amount,
    reachable: Amount,
    /// Memory that was not freed before its context was destroyed.
    destroyed: Amount,
    growing: u64,
    /// Allocations that the driver refused for lack of memory.
    refused: u64,
    line: String,
}

/// A process that used the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Process {
    command: String,
    reports: Vec<Report>,
    /// How often a program in it started to use the driver.
    uses: usize,
    /// Whether it has outlived the program.
    is_running: bool,
}

impl Process {
    fn has_all_reports(&self) -> bool {
        self.reports.len() >= self.uses
    }
}

/// All records of a run.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// The command that the lines are from.
    command: &'static str,
    /// The processes of the program, or of the programs that cargo started, into which the library was loaded.
    started: BTreeSet<u32>,
    /// Processes in which the cuguard crate used the driver, which has a report of its own.
    with_crate: BTreeSet<u32>,
    /// Whether guards have leaked in any process.
    crate_leaks: bool,
    processes: BTreeMap<u32, Process>,
    /// The files of recordings.
    recordings: Vec<String>,
    /// Processes that used another driver than the simulated GPU, though the user asked for that, with the driver's file.
    other_drivers: Vec<(String, String)>,
    /// Whether the user asked for one.
    is_recorded: bool,
    /// Reports of processes whose standard error was closed.
    kept: Vec<(String, String)>,
}

impl Summary {
    /// Reads what the processes have written until now. `command` is the one that prints it.
    pub(super) fn read(folder: &Path, command: &'static str) -> Self {
        let records = fs::read(folder.join("records")).unwrap_or_default();
        let mut summary = Self::parse(&String::from_utf8_lossy(&records));
        summary.command = command;
        for (number, process) in &mut summary.processes {
            process.is_running = !process.has_all_reports() && is_running(*number);
        }
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if let Some(process) = name.strip_prefix("report-") {
                let text = fs::read(file.path()).unwrap_or_default();
                let text = String::from_utf8_lossy(&text).into_owned();
                summary.kept.push((process.to_owned(), text));
            }
        }
        summary.kept.sort();
        summary
    }

    /// Notes that the user asked for a recording.
    pub(super) fn set_recorded(&mut self) {
        self.is_recorded = true;
    }

    /// Adds a file that exists: a program with another version of the cuguard crate inside records by itself.
    pub(super) fn add_recording(&mut self, file: Option<&Path>) {
        let Some(file) = file.filter(|file| file.is_file()) else {
            return;
        };
        self.note_recording(file.display().to_string());
    }

    fn note_recording(&mut self, file: String) {
        if !self.recordings.contains(&file) {
            self.recordings.push(file);
        }
    }

    fn parse(records: &str) -> Self {
        let mut summary = Self {
            command: RUN,
            ..Self::default()
        };
        for record in records.lines() {
            let fields: Vec<&str> = record.split('\t').collect();
            match fields[..] {
                ["start", process] => summary.started.extend(process.parse::<u32>()),
                ["crate", process] => summary.with_crate.extend(process.parse::<u32>()),
                ["leak", _] => summary.crate_leaks = true,
                ["none", process] => summary.forget_use(process),
                ["driver", process, file] => {
                    let driver = (process.to_owned(), file.to_owned());
                    summary.other_drivers.push(driver);
                }
                ["recording", _, file] => summary.note_recording(file.to_owned()),
                ["use", process, command] => {
                    if let Some(process) = summary.process(process) {
                        process.command = command.to_owned();
                        process.uses += 1;
                    }
                }
                ["end", process, _, ref numbers @ .., line] if numbers.len() == 8 => {
                    let numbers: Vec<u64> =
                        numbers.iter().map(|n| n.parse().unwrap_or(0)).collect();
                    let amount = |at: usize| Amount {
                        bytes: numbers[at],
                        count: numbers[at + 1],
                    };
                    let report = Report {
                        lost: amount(0),
                        reachable: amount(2),
                        destroyed: amount(4),
                        growing: numbers[6],
                        refused: numbers[7],
                        line: line.to_owned(),
                    };
                    if let Some(process) = summary.process(process) {
                        // The last one was made before an exec, which failed: the process went on.
                        if process.uses != 0 && process.has_all_reports() {
                            process.reports.pop();
                        }
                        process.reports.push(report);
                    }
                }
                // A part of a record, of a process that was killed.
                _ => {}
            }
        }
        summary
    }

    fn process(&mut self, number: &str) -> Option<&mut Process> {
        let number = number.parse().ok()?;
        Some(self.processes.entry(number).or_default())
    }

    /// The report of a process is that of the cuguard crate in it.
    fn forget_use(&mut self, number: &str) {
        let Ok(number) = number.parse() else {
            return;
        };
        let Some(process) = self.processes.get_mut(&number) else {
            return;
        };
        process.uses = process.uses.saturating_sub(1);
        if process.uses == 0 && process.reports.is_empty() {
            self.processes.remove(&number);
        }
    }

    fn reports(&self) -> impl Iterator<Item = &Report> {
        self.processes.values().flat_map(|process| &process.reports)
    }

    /// Whether any process has a finding of this kind.
    pub(super) fn finds(&self, fail_on: FailOn) -> bool {
        if fail_on.lost && self.crate_leaks {
            return true;
        }
        self.reports().any(|report| {
            (fail_on.lost && report.lost.count != 0)
                || (fail_on.reachable && report.reachable.count != 0)
                || (fail_on.growth && report.growing != 0)
                || (fail_on.oom && report.refused != 0)
                || (fail_on.destroyed && report.destroyed.count != 0)
        })
    }

    /// What the command prints after the reports. Nothing, if there was one process that used CUDA, and it has a report and no
    /// recording.
    pub(super) fn text(&self, program: &OsStr, status: &ExitStatus) -> String {
        self.text_of_processes(program, status) + &self.text_of_recordings()
    }

    /// Which processes ran on another driver than the simulated GPU, though the user asked for that.
    pub(super) fn text_of_drivers(&self) -> String {
        let command = self.command;
        let mut text = String::new();
        for (process, file) in self.other_drivers.iter().take(LISTED) {
            let _ = writeln!(
                text,
                "{command}: process {process} ran on {file} and not on the simulated GPU (CUGUARD_DRIVER=sim)"
            );
        }
        text
    }

    /// The files of recordings.
    fn text_of_recordings(&self) -> String {
        let command = self.command;
        let mut text = String::new();
        for file in self.recordings.iter().take(LISTED) {
            let _ = writeln!(text, "{command}: recording in {file}");
        }
        if self.recordings.len() > LISTED {
            let more = self.recordings.len() - LISTED;
            let _ = writeln!(text, "{command}: and {more} more recordings");
        }
        text
    }

    fn text_of_processes(&self, program: &OsStr, status: &ExitStatus) -> String {
        let command = self.command;
        let mut text = String::new();
        for (process, report) in &self.kept {
            let _ = write!(
                text,
                "{command}: the standard error of process {process} was closed; its report:\n{report}"
            );
        }
        if self.started.is_empty() && self.processes.is_empty() {
            return text + &not_loaded(command, program);
        }
        if self.processes.is_empty() {
            if self.with_crate.is_empty() {
                let _ = writeln!(text, "{command}: no process used CUDA");
            }
            return text;
        }
        if self.processes.len() < 2 && self.processes.values().all(Process::has_all_reports) {
            return text;
        }
        let _ = writeln!(text, "{command}: {}", self.sentence());
        for (number, process) in self.processes.iter().take(LISTED) {
            for report in &process.reports {
                let command = &process.command;
                let _ = writeln!(text, "  process {number} ({command}): {}", report.line);
            }
            text.push_str(&self.text_without_report(*number, process, status));
        }
        if self.processes.len() > LISTED {
            let _ = writeln!(text, "  and {} more", self.processes.len() - LISTED);
        }
        if self.silent() != 0 && !self.is_recorded && self.recordings.is_empty() {
            let run = match command {
                CARGO => "cargo cuguard run",
                _ => RUN,
            };
            let _ = writeln!(
                text,
                "{command}: a recording survives that: {run} --record FILE … and cuguard report FILE"
            );
        }
        text
    }

    /// Why a process has no report, or not all of them. Empty if it has.
    fn text_without_report(&self, number: u32, process: &Process, status: &ExitStatus) -> String {
        let command = &process.command;
        if process.is_running {
            return format!(
                "  process {number} ({command}): still runs; its report will follow, and does not count\n"
            );
        }
        if process.has_all_reports() {
            return String::new();
        }
        let why = match status.signal() {
            Some(signal) if self.processes.len() == 1 => {
                format!("{} ended it", SignalName(signal))
            }
            _ => "it was killed, or crashed".to_owned(),
        };
        format!("  process {number} ({command}): no report: {why}\n")
    }

    /// How many processes have no report, or not all of them. Some of them may still run.
    pub(super) fn without_report(&self) -> usize {
        let processes = self.processes.values();
        processes
            .filter(|process| !process.has_all_reports())
            .count()
    }

    /// Which processes have no report.
    pub(super) fn text_of_silent(&self, status: &ExitStatus) -> String {
        let processes = self.processes.iter();
        processes
            .map(|(number, process)| self.text_without_report(*number, process, status))
            .collect()
    }

    /// The processes that used CUDA, also through the cuguard crate alone.
    pub(super) fn processes(&self) -> BTreeSet<u32> {
        let audited = self.processes.keys();
        audited.chain(&self.with_crate).copied().collect()
    }

    /// Into which of these programs, by their processes, the library was not loaded.
    pub(super) fn text_of_not_loaded<'p>(
        &self,
        programs: impl Iterator<Item = (&'p u32, &'p OsStr)>,
    ) -> String {
        let command = self.command;
        let missing = programs.filter(|(process, _)| !self.started.contains(process));
        missing
            .map(|(_, program)| not_loaded(command, program))
            .collect()
    }

    /// How many processes ended without a report.
    fn silent(&self) -> usize {
        let processes = self.processes.values();
        processes
            .filter(|process| !process.has_all_reports() && !process.is_running)
            .count()
    }

    /// The sums over all processes.
    fn sentence(&self) -> String {
        let processes = match self.processes.len() {
            1 => "1 process used CUDA".to_owned(),
            many => format!("{many} processes used CUDA"),
        };
        let sum = |part: fn(&Report) -> Amount, one: &str| {
            let mut sum = Amount::default();
            for amount in self.reports().map(part) {
                sum.bytes = sum.bytes.saturating_add(amount.bytes);
                sum.count = sum.count.saturating_add(amount.count);
            }
            let counted = match sum.count {
                0 => return None,
                many => count(many, one),
            };
            // Handles, such as streams, have no bytes.
            Some(match sum.bytes {
                0 => counted,
                bytes => format!("{} in {counted}", ByteSize(bytes)),
            })
        };
        let running = self.processes.values();
        let running = match running.filter(|process| process.is_running).count() {
            0 => String::new(),
            1 => "; 1 still runs".to_owned(),
            many => format!("; {many} still run"),
        };
        let silent = self.silent();
        if self.reports().next().is_none() {
            return format!("{processes}, without a report{running}");
        }
        let resources = |part| sum(part, "resource").unwrap_or_else(|| "nothing".to_owned());
        let mut sentence = format!("{processes}: lost {}", resources(|report| report.lost));
        if let Some(destroyed) = sum(|report| report.destroyed, "allocation") {
            let _ = write!(
                sentence,
                "; {destroyed} not freed before their context was destroyed"
            );
        }
        let _ = write!(
            sentence,
            "; reachable {}",
            resources(|report| report.reachable)
        );
        match self.reports().map(|report| report.growing).sum::<u64>() {
            0 => {}
            1 => sentence.push_str("; 1 call site growing"),
            many => {
                let _ = write!(sentence, "; {many} call sites growing");
            }
        }
        match self.reports().map(|report| report.refused).sum::<u64>() {
            0 => {}
            1 => sentence.push_str("; 1 allocation refused for lack of memory"),
            many => {
                let _ = write!(sentence, "; {many} allocations refused for lack of memory");
            }
        }
        if silent != 0 {
            let _ = write!(sentence, "; {silent} without a report");
        }
        sentence + &running
    }
}

fn not_loaded(command: &str, program: &OsStr) -> String {
    let program = program.to_string_lossy();
    format!("{command}: the audit library was not loaded into {program:?}: nothing was recorded\n")
}

/// Whether a process has not ended. It is not a child of this one.
pub(super) fn is_running(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name is in parentheses and may have any characters.
    let state = status.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use cuguard_report::FailOn;

    use super::Summary;

    fn text(records: &str, status: i32) -> String {
        Summary::parse(records).text(OsStr::new("program"), &ExitStatus::from_raw(status))
    }

    const USE: &str = "start\t7\nuse\t7\ta b\n";
    const END: &str = "end\t7\texit\t1024\t2\t0\t0\t12582912\t3\t1\t4\tlost 1 KiB\n";

    #[test]
    fn one_process_with_a_report_needs_no_summary() {
        assert_eq!(text(&format!("{USE}{END}"), 0), "");
    }

    #[test]
    fn a_run_without_cuda_is_named() {
        let line = "cuguard run: no process used CUDA\n";
        assert_eq!(text("start\t7\n", 0), line);
        assert_eq!(text("start\t7\n", 9), line);
        // The crate inside reports itself.
        assert_eq!(text("start\t7\ncrate\t7\n", 0), "");
        assert_eq!(text(&format!("{USE}crate\t7\nnone\t7\n"), 0), "");
    }

    #[test]
    fn processes_that_still_run_are_counted() {
        let mut summary = Summary::parse(&format!("{USE}{END}use\t8\tc\nuse\t9\td\n"));
        summary
            .processes
            .get_mut(&8)
            .expect("it is there")
            .is_running = true;
        let text = summary.text(OsStr::new("program"), &ExitStatus::from_raw(0));
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].ends_with("; 1 without a report; 1 still runs"),
            "{text}"
        );
        assert_eq!(
            lines[2..],
            [
                "  process 8 (c): still runs; its report will follow, and does not count",
                "  process 9 (d): no report: it was killed, or crashed",
                "cuguard run: a recording survives that: cuguard run --record FILE … and cuguard report FILE"
            ]
        );
        assert!(super::is_running(std::process::id()));
        assert!(!super::is_running(u32::MAX));
    }

    #[test]
    fn the_report_before_a_failed_exec_does_not_count() {
        let exec = END.replace("exit", "exec");
        let clean = "end\t7\texit\t0\t0\t0\t0\t0\t0\t0\t0\tnothing is lost\n";
        let lost: FailOn = "lost".parse().expect("a word");
        let failed = Summary::parse(&format!("{USE}{exec}{clean}"));
        assert!(!failed.finds(lost));
        assert_eq!(failed.reports().count(), 1);
        // After one that succeeds, the next program's report is another one.
        let succeeded = Summary::parse(&format!("{USE}{exec}use\t7\tc\n{clean}"));
        assert!(succeeded.finds(lost));
        assert_eq!(succeeded.reports().count(), 2);
    }

    #[test]
    fn several_processes_are_summed_up() {
        let records = format!(
            "{USE}use\t8\tc\n{END}end\t8\texit\t1024\t1\t5\t1\t0\t0\t0\t0\tlost 1 KiB too\n"
        );
        assert_eq!(
            text(&records, 0),
            "cuguard run: 2 processes used CUDA: lost 2 KiB in 3 resources; 12 MiB in 3 allocations not freed before their context was destroyed; reachable 5 B in 1 resource; 1 call site growing; 4 allocations refused for lack of memory
  process 7 (a b): lost 1 KiB
  process 8 (c): lost 1 KiB too
"
        );
    }

    #[test]
    fn a_process_without_a_report_is_named() {
        assert_eq!(
            text(USE, 9),
            "cuguard run: 1 process used CUDA, without a report
  process 7 (a b): no report: SIGKILL ended it
cuguard run: a recording survives that: cuguard run --record FILE … and cuguard report FILE
"
        );
        let crashed = text(USE, libc::SIGSEGV);
        assert!(
            crashed.contains(": no report: SIGSEGV ended it\n"),
            "{crashed}"
        );
        let recorded = text(&format!("{USE}recording\t7\tx.cgr\n"), 9);
        assert!(
            recorded.ends_with("cuguard run: recording in x.cgr\n")
                && !recorded.contains("survives")
        );
    }

    #[test]
    fn a_program_without_the_library_is_named() {
        let line = "cuguard run: the audit library was not loaded into \"program\": nothing was recorded\n";
        assert_eq!(text("", 0), line);
        assert_eq!(text("torn", 0), line);
    }

    #[test]
    fn another_driver_than_the_simulated_gpu_is_named() {
        let summary = Summary::parse(&format!("{USE}driver\t7\t/x/libcuda.so.1\n{END}"));
        assert_eq!(
            summary.text_of_drivers(),
            "cuguard run: process 7 ran on /x/libcuda.so.1 and not on the simulated GPU (CUGUARD_DRIVER=sim)\n"
        );
        assert_eq!(Summary::parse(USE).text_of_drivers(), "");
    }

    #[test]
    fn findings_of_any_process_count() {
        let summary = Summary::parse(&format!("{USE}{END}"));
        for (list, finds) in [
            ("lost", true),
            ("reachable", false),
            ("growth", true),
            ("oom", true),
            ("destroyed", true),
            ("reachable+lost", true),
        ] {
            let fail_on: FailOn = list.parse().expect("good findings");
            assert_eq!(summary.finds(fail_on), finds, "{list}");
        }
        assert!(!summary.finds(FailOn::NONE));
        let kept = "end\t7\texit\t0\t0\t0\t0\t0\t0\t0\t0\tnothing is lost\n";
        let destroyed: FailOn = "destroyed".parse().expect("a good finding");
        assert!(!Summary::parse(&format!("{USE}{kept}")).finds(destroyed));
        // What guards leak is in the crate's own report.
        let summary = Summary::parse("start\t7\ncrate\t8\nleak\t8\n");
        assert!(summary.finds(FailOn::default()) && !summary.finds(FailOn::NONE));
    }
}
