//! `cuguard doctor` and `cuguard run` in a pseudo-terminal, with a screen that implements the few escape sequences that the
//! program may use.

use crate::support::audited;
use std::os::unix::process::ExitStatusExt;

use crate::support::cuguard;
use crate::support::pty::Pty;

/// Reads until this many reports of `--watch` have ended, or the program has.
fn read_reports(pty: &mut Pty, count: usize) {
    pty.read_until(|text| text.matches("\x1b[J").count() >= count);
}

/// What a terminal shows after this output. Other escape sequences fail: the cursor is never hidden, and
/// the alternate screen not used.
fn screen(output: &str) -> Vec<String> {
    let mut lines = vec![String::new(); 100];
    let (mut row, mut column) = (0, 0);
    let mut rest = output;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("\x1b[H") {
            (row, column, rest) = (0, 0, after);
        } else if let Some(after) = rest.strip_prefix("\x1b[2J") {
            lines.iter_mut().for_each(String::clear);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\x1b[K") {
            lines[row].truncate(column);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\x1b[J") {
            lines[row].truncate(column);
            lines[row + 1..].iter_mut().for_each(String::clear);
            rest = after;
        } else {
            match character {
                '\r' => column = 0,
                '\n' => row += 1,
                '\x1b' => panic!("a sequence that is not known: {rest:?}"),
                _ => {
                    let mut characters: Vec<char> = lines[row].chars().collect();
                    characters.resize(characters.len().max(column + 1), ' ');
                    characters[column] = character;
                    lines[row] = characters.into_iter().collect();
                    column += 1;
                }
            }
            rest = &rest[character.len_utf8()..];
        }
    }
    let used = lines.iter().rposition(|line| !line.is_empty());
    lines.truncate(used.map_or(0, |last| last + 1));
    lines
}

#[track_caller]
fn assert_narrow(lines: &[String], columns: usize) {
    for line in lines {
        assert!(line.chars().count() <= columns, "{line:?} of {lines:#?}");
    }
}

#[test]
fn lines_are_as_wide_as_the_terminal() {
    let mut command = cuguard("sim", &["doctor"]);
    let mut pty = Pty::start(command.env_remove("COLUMNS"), 60, 24);
    assert_eq!(pty.end().code(), Some(0));
    let text = pty.text();
    // It scrolls as any other output.
    assert!(!text.contains('\x1b'), "{text}");
    let (_, report) = text
        .split_once("\r\n")
        .expect("the first line is another's");
    let lines: Vec<String> = report.lines().map(str::to_owned).collect();
    assert!(lines.len() > 10, "{text}");
    assert_narrow(&lines, 60);

    // COLUMNS overrides that.
    let mut command = cuguard("sim", &["doctor"]);
    let mut pty = Pty::start(command.env("COLUMNS", "200"), 60, 24);
    pty.end();
    let text = pty.text();
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!((81..=200).contains(&longest.unwrap_or(0)), "{text}");
}

#[test]
fn watching_leaves_no_residue_and_ends_by_ctrl_c() {
    let mut command = cuguard("sim", &["doctor", "--watch", "1"]);
    let mut pty = Pty::start(command.env_remove("COLUMNS"), 60, 50);
    read_reports(&mut pty, 2);
    pty.resize(120, 50);
    // Some reports of the old width may be in the terminal.
    pty.read_until(|text| {
        if text.matches("\x1b[J").count() >= 30 {
            return true;
        }
        let (complete, _) = text.rsplit_once("\x1b[J").unwrap_or_default();
        let (first, _) = text.split_once("\x1b[J").unwrap_or_default();
        screen(complete).len() < screen(first).len()
    });
    // While it waits: Ctrl-C also discards pending output.
    pty.press("\x03");
    let status = pty.end();
    assert_eq!(status.signal(), Some(libc::SIGINT));

    let text = pty.text();
    assert_eq!(text.matches("\x1b[2J").count(), 1, "{text:?}");
    // The first reports were narrower, and longer: nothing of them is left.
    let (first, _) = text.split_once("\x1b[J").expect("there is a first report");
    let first = screen(first);
    assert_narrow(&first, 60);
    let last = screen(&text);
    assert_narrow(&last, 120);
    assert!(last.len() < first.len(), "{last:#?}");
    assert_eq!(last[0], "simulated GPU, for CUDA up to 13.0");
    let verdicts = |lines: &[String]| lines.iter().filter(|l| l.contains("verdict")).count();
    assert_eq!((verdicts(&first), verdicts(&last)), (2, 2), "{last:#?}");
    // The cursor is below the report, where the terminal echoes the key.
    assert_eq!(last[last.len() - 1], "^C");
    assert!(
        last[last.len() - 2].contains("no problem was found"),
        "{last:#?}"
    );
}

#[test]
fn a_report_that_is_longer_than_the_screen_is_cut() {
    let mut command = cuguard("sim", &["doctor", "--watch", "1"]);
    command
        .env_remove("COLUMNS")
        .env("CUGUARD_SIM", "devices=4");
    let mut pty = Pty::start(&mut command, 80, 24);
    read_reports(&mut pty, 2);
    pty.press("\x03");
    pty.end();
    let lines = screen(&pty.text());
    assert!(lines.len() <= 24, "{lines:#?}");
    assert!(lines[22].starts_with("… and "), "{lines:#?}");
}

/// Ctrl-C reaches the command and the program: the program reports once, and both end by the signal.
#[test]
fn ctrl_c_ends_a_program_that_the_command_runs() {
    let Some(program) = audited::program() else {
        return;
    };
    let program = program.to_str().expect("Unicode");
    let mut pty = Pty::start(&mut audited::cuguard_run(&["--", program, "wait"]), 200, 50);
    pty.read_until(|text| text.contains("ready"));
    pty.press("\x03");
    let status = pty.end();
    let text = pty.text();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{text}");
    let reports = text.matches("cuguard: process ").count();
    assert_eq!(reports, 1, "{text}");
    assert!(text.contains("ended by SIGINT"), "{text}");
}
