//! `cuguard watch` in a pseudo-terminal: what it draws, and what it leaves behind.

use std::collections::BTreeMap;

use crate::support::audited::live_program;
use crate::support::pty::Pty;
use crate::support::running::Running;

const COLUMNS: usize = 120;
const ROWS: usize = 40;

/// What a terminal shows after this output, with the few sequences that are needed. Others fail.
struct Screen {
    /// The ordinary screen, and the other one that programs in full screen use.
    screens: [Vec<Vec<char>>; 2],
    /// Modes that were set or reset, such as `?25`, the cursor.
    modes: BTreeMap<String, bool>,
}

impl Screen {
    fn new(output: &str) -> Self {
        let blank = || vec![vec![' '; COLUMNS]; ROWS];
        let mut shown = Self {
            screens: [blank(), blank()],
            modes: BTreeMap::new(),
        };
        let (mut row, mut column) = (0, 0);
        let mut saved = (0, 0);
        let mut rest = output;
        while let Some(character) = rest.chars().next() {
            rest = &rest[character.len_utf8()..];
            match character {
                '\r' => column = 0,
                '\n' => row = (row + 1).min(ROWS - 1),
                '\x1b' => {
                    let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) else {
                        // The rest of the sequence comes later.
                        break;
                    };
                    let (parameters, kind) = (&rest[..end], &rest[end..=end]);
                    rest = &rest[end + 1..];
                    let parameters = parameters.strip_prefix('[').expect("a sequence");
                    let number = |index: usize| {
                        let number = parameters.split(';').nth(index);
                        number
                            .and_then(|number| number.parse::<usize>().ok())
                            .unwrap_or(1)
                    };
                    match kind {
                        "H" => (row, column) = (number(0) - 1, number(1) - 1),
                        "J" => *shown.current() = blank(),
                        // Colours.
                        "m" => {}
                        "h" | "l" => {
                            shown.modes.insert(parameters.to_owned(), kind == "h");
                            match (parameters, kind) {
                                ("?1049", "h") => saved = (row, column),
                                ("?1049", _) => (row, column) = saved,
                                _ => {}
                            }
                        }
                        _ => panic!("a sequence that is not known: {parameters:?} {kind}"),
                    }
                }
                _ => {
                    shown.current()[row][column.min(COLUMNS - 1)] = character;
                    column += 1;
                }
            }
        }
        shown
    }

    fn is_full(&self) -> bool {
        self.modes.get("?1049") == Some(&true)
    }

    fn current(&mut self) -> &mut Vec<Vec<char>> {
        let index = usize::from(self.is_full());
        &mut self.screens[index]
    }

    fn text(&self) -> String {
        let lines = self.screens[usize::from(self.is_full())].iter();
        let lines = lines.map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n");
        lines.collect()
    }
}

/// `cuguard watch` in a terminal, and the settings that the terminal had before.
fn watch(running: &Running) -> (Pty, [libc::tcflag_t; 4]) {
    let process = running.process.to_string();
    let mut command = running.cuguard(&["watch", "--interval", "0.1", &process]);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    let pty = Pty::start(&mut command, COLUMNS as u16, ROWS as u16);
    // Those of a new terminal: the program may have changed its own by now.
    let other = Pty::start(
        &mut std::process::Command::new("true"),
        COLUMNS as u16,
        ROWS as u16,
    );
    (pty, other.settings())
}

/// Reads until the screen has all of these.
#[track_caller]
fn wait_for(pty: &mut Pty, parts: &[&str]) -> String {
    let has_all = |output: &str| {
        let text = Screen::new(output).text();
        parts.iter().all(|part| text.contains(part))
    };
    pty.read_until(has_all);
    let text = Screen::new(&pty.text()).text();
    assert!(has_all(&pty.text()), "not all of {parts:?} in\n{text}");
    text
}

/// Waits for the end: the terminal is as it was before, and the ordinary screen shows again.
#[track_caller]
fn assert_restored(pty: &mut Pty, before: [libc::tcflag_t; 4]) -> String {
    let status = pty.end();
    let screen = Screen::new(&pty.text());
    assert_eq!(status.code(), Some(0), "{}", screen.text());
    assert_eq!(screen.modes.get("?1049"), Some(&false));
    assert_ne!(screen.modes.get("?25"), Some(&false), "the cursor shows");
    assert_eq!(pty.settings(), before);
    screen.text()
}

#[test]
fn the_screen_has_live_bytes_and_call_sites_until_a_key_ends_it() {
    let Some(program) = live_program() else {
        return;
    };
    for key in ["q", "\x1b", "\x03"] {
        let mut running = Running::start(program, "", &[]);
        let (mut pty, before) = watch(&running);
        let first = format!("process {} (", running.process);
        let shown = wait_for(
            &mut pty,
            &[
                &first,
                "device memory: 4 MiB in 2 allocations",
                "p pause   q quit",
            ],
        );
        assert!(Screen::new(&pty.text()).is_full());
        assert_ne!(
            pty.settings(),
            before,
            "keys come without Enter and are not shown"
        );
        let line = |function: &str| {
            let mut lines = shown.lines().filter(|line| line.contains(function));
            lines
                .next()
                .unwrap_or_else(|| panic!("{function} in\n{shown}"))
                .to_owned()
        };
        let (hold, lose) = (line("hold at "), line("lose at "));
        assert!(
            hold.contains(" 3 MiB ") && hold.contains("live.c:"),
            "{shown}"
        );
        assert!(
            lose.contains(" 1 MiB ") && lose.contains("live.c:"),
            "{shown}"
        );
        // The largest first.
        assert!(shown.find("hold at ") < shown.find("lose at "), "{shown}");
        // What the program allocates now.
        running.write("a");
        wait_for(
            &mut pty,
            &["device memory: 6 MiB in 3 allocations", "at most 6 MiB"],
        );
        pty.press("p");
        wait_for(&mut pty, &["paused   p resume"]);
        pty.press(key);
        let left = assert_restored(&mut pty, before);
        assert_eq!(left.trim(), "", "nothing is left on the screen");
        assert!(running.end().status.success(), "the program runs on");
    }
}

#[test]
fn the_terminal_is_restored_when_the_process_ends() {
    let Some(program) = live_program() else {
        return;
    };
    let running = Running::start(program, "", &[]);
    let process = running.process;
    let (mut pty, before) = watch(&running);
    wait_for(&mut pty, &["device memory: 4 MiB in 2 allocations"]);
    running.end();
    let left = assert_restored(&mut pty, before);
    // Its last figures stay.
    let last = left.lines().next().unwrap();
    assert!(last.starts_with(&format!("process {process} (")), "{left}");
    assert!(
        last.contains("device memory: 4 MiB in 2 allocations"),
        "{left}"
    );
    assert!(
        left.contains(&format!("there is no process {process}")),
        "{left}"
    );
}
