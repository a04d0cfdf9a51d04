//! What `/proc` says about a process, as far as it is readable.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::process::Process;

/// How many characters of a command line are kept.
pub const COMMAND_LENGTH: usize = 160;

/// How many bytes of a command line are read: it may be megabytes long.
const COMMAND_BYTES: u64 = 4096;

/// Fills in what `/proc` knows about these processes: whether they exist, name, command line, user. What
/// cannot be read stays unknown.
pub(crate) fn describe(processes: &mut [Process]) {
    describe_in(Path::new("/proc"), Path::new("/etc/passwd"), processes);
}

fn describe_in(proc: &Path, passwd: &Path, processes: &mut [Process]) {
    // Read once for all, and only when there is a user id to look up.
    let mut users = None;
    for process in processes {
        // NVML's value for a process that it may not reveal; no process has that id.
        if process.pid == 0 {
            continue;
        }
        let folder = proc.join(process.pid.to_string());
        process.visible = folder.is_dir();
        if !process.visible {
            continue;
        }
        if let Ok(status) = fs::read(folder.join("status")) {
            let status = String::from_utf8_lossy(&status);
            process.name = field(&status, "Name").map(|name| clean(name.as_bytes()));
            process.zombie = field(&status, "State").is_some_and(|state| state.starts_with('Z'));
            process.uid =
                field(&status, "Uid").and_then(|ids| ids.split('\t').next()?.parse().ok());
        }
        process.command = read_start(&folder.join("cmdline"))
            .map(|bytes| clean(&bytes))
            .filter(|command| !command.is_empty());
        process.user = process.uid.and_then(|uid| {
            let users = users.get_or_insert_with(|| fs::read_to_string(passwd).unwrap_or_default());
            user(users, uid)
        });
    }
}

/// The value of a line `Name:\tvalue`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim_start())
    })
}

fn read_start(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(COMMAND_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The name of a user in the text of `/etc/passwd`.
fn user(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid && !name.is_empty()).then(|| clean(name.as_bytes()))
    })
}

/// A command line that is safe to print: arguments separated by spaces, on one line, without terminal
/// control sequences, not longer than [`COMMAND_LENGTH`]. A process can set its command line to anything.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches(['\0', '\n', ' ']);
    let mut shown: String = text
        .chars()
        .take(COMMAND_LENGTH)
        .map(|character| match character {
            '\0' => ' ',
            character if character.is_control() || turns_text(character) => {
                char::REPLACEMENT_CHARACTER
            }
            character => character,
        })
        .collect();
    if text.chars().nth(COMMAND_LENGTH).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// Invisible characters that break lines or change the direction of the text around them.
fn turns_text(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns whether this process sees every process of the machine: it is in the initial pid namespace, not in
/// a container's, and `/proc` hides none. `None` where `/proc` does not say.
///
/// ```
/// if cuguard_nvml::sees_all_processes() == Some(false) {
///     println!("other processes may hold memory unseen");
/// }
/// ```
#[must_use]
pub fn sees_all_processes() -> Option<bool> {
    // The inode of the initial namespace on every machine (PROC_PID_INIT_INO).
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let first = namespace.to_str()? == "pid:[4026531836]";
    // Mounted with hidepid=2, it hides processes of other users, process 1 among them.
    Some(first && Path::new("/proc/1").is_dir())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A folder that imitates `/proc`, removed on drop.
    struct Pretend(PathBuf);

    impl Pretend {
        fn new(name: &str) -> Self {
            let name = format!("cuguard-nvml-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn process(&self, pid: u32, status: &str, command: &[u8]) {
            let folder = self.0.join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("status"), status).unwrap();
            fs::write(folder.join("cmdline"), command).unwrap();
        }

        fn describe(&self, pids: &[u32]) -> Vec<Process> {
            let mut processes: Vec<_> = pids.iter().copied().map(Process::new).collect();
            describe_in(&self.0, &self.0.join("passwd"), &mut processes);
            processes
        }
    }

    impl Drop for Pretend {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_process_is_described() {
        let proc = Pretend::new("described");
        let status = "Name:\tpython3\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n";
        proc.process(42, status, b"python3\0train.py\0--batch=1\0");
        fs::write(
            proc.0.join("passwd"),
            "root:x:0:0::/:\nada:x:1000:1000::/:\n",
        )
        .unwrap();
        let process = &proc.describe(&[42])[0];
        assert!(process.visible && !process.zombie);
        assert_eq!(process.name.as_deref(), Some("python3"));
        assert_eq!(
            process.command.as_deref(),
            Some("python3 train.py --batch=1")
        );
        assert_eq!(process.uid, Some(1000));
        assert_eq!(process.user.as_deref(), Some("ada"));
    }

    #[test]
    fn a_process_that_is_not_here_is_not_visible() {
        let proc = Pretend::new("elsewhere");
        // Even if there were such a folder, pid 0 is no process.
        proc.process(0, "Name:\tnobody\n", b"nobody\0");
        for process in proc.describe(&[0, 43, u32::MAX]) {
            assert!(!process.visible, "{process:?}");
            assert_eq!((process.name, process.command), (None, None));
        }
    }

    #[test]
    fn a_zombie_has_a_name_and_no_command_line() {
        let proc = Pretend::new("zombie");
        proc.process(44, "Name:\tdone\nState:\tZ (zombie)\nUid:\tx\n", b"");
        let process = &proc.describe(&[44])[0];
        assert!(process.visible && process.zombie);
        assert_eq!((&process.command, process.uid), (&None, None));
    }

    #[test]
    fn this_process_is_visible() {
        let mut processes = [Process::new(std::process::id())];
        describe(&mut processes);
        let [process] = processes;
        assert!(process.visible && process.own && !process.zombie);
        assert!(process.command.is_some() && process.uid.is_some());
    }

    #[test]
    fn command_lines_are_made_harmless() {
        for (bytes, text) in [
            (&b"a\0b\0\0"[..], "a b"),
            (b"a\0\0b\0", "a  b"),
            (b"x\x1b[2J\ny\n", "x\u{fffd}[2J\u{fffd}y"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
            ("evil\u{202e}txt".as_bytes(), "evil\u{fffd}txt"),
            ("Übung\0".as_bytes(), "Übung"),
            (b"", ""),
        ] {
            assert_eq!(clean(bytes), text);
        }
    }

    #[test]
    fn long_command_lines_are_cut_between_characters() {
        let exact = "ü".repeat(COMMAND_LENGTH);
        assert_eq!(clean(exact.as_bytes()), exact);
        let cut = clean("ü".repeat(COMMAND_LENGTH + 1).as_bytes());
        assert_eq!(cut.chars().count(), COMMAND_LENGTH);
        assert!(cut.ends_with("ü…"));
        let proc = Pretend::new("long");
        proc.process(45, "Name:\tlong\n", &vec![b'a'; 1 << 20]);
        let command = proc.describe(&[45])[0].command.clone().unwrap();
        assert_eq!(command.chars().count(), COMMAND_LENGTH);
    }

    #[test]
    fn users_by_number() {
        let passwd = "# comment\nroot:x:0:0\n:x:7:7\nada:x:1000:1000:A:/home:/bin/sh\nbad:x:no\n";
        assert_eq!(user(passwd, 1000).as_deref(), Some("ada"));
        assert_eq!(user(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user(passwd, 7), None);
        assert_eq!(user(passwd, 8), None);
    }
}
