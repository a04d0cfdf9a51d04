//! Requests to a running process, or to the processes that it started.

use std::fs;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use cuguard_live::{AskError, Request, ask};

/// So long a process is asked again that has no reports: it may be starting.
const STARTING: Duration = Duration::from_secs(1);

/// How many descendants are asked at most.
const MOST: usize = 1024;

/// The replies of one process.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) process: u32,
    /// One of each library that records: the crate in the program, and the audit library.
    pub(crate) texts: Vec<String>,
}

/// The replies of a process, once it has reports: one that a shell has just started may not be `cuguard run` yet, and what
/// `cuguard run` has started has reports from its first call of the driver on. `command` waits for them.
pub(crate) fn ask_when_ready(
    command: &str,
    process: u32,
    request: Request,
) -> Result<Vec<Reply>, AskError> {
    let started = Instant::now();
    let mut is_told = false;
    loop {
        match ask_with_descendants(process, request) {
            Err(AskError::NoServer { .. }) if started.elapsed() < STARTING => {}
            Err(AskError::NoServer { .. }) if is_run(process) => {
                if !is_told {
                    let _ = writeln!(
                        io::stderr(),
                        "cuguard {command}: waiting for the first call of the CUDA driver in process {process} (cuguard run)"
                    );
                    is_told = true;
                }
            }
            result => return result,
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the process is this command as `cuguard run`, whose program has not ended.
fn is_run(process: u32) -> bool {
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe"));
    let same = match (program(&process.to_string()), program("self")) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    same && words.split(|byte| *byte == 0).nth(1) == Some(b"run")
}

/// The replies of a process. Where it has no server, as `cuguard run` itself and a shell, those of the processes that it started.
pub(crate) fn ask_with_descendants(process: u32, request: Request) -> Result<Vec<Reply>, AskError> {
    let missing = match ask(process, request) {
        Ok(texts) => return Ok(vec![Reply { process, texts }]),
        Err(missing @ AskError::NoServer { .. }) => missing,
        Err(error) => return Err(error),
    };
    let replies = descendants(process).into_iter().filter_map(|process| {
        let texts = ask(process, request).ok()?;
        Some(Reply { process, texts })
    });
    let replies: Vec<_> = replies.collect();
    match replies.is_empty() {
        true => Err(missing),
        false => Ok(replies),
    }
}

/// The children of a process and theirs, the nearest first.
pub(crate) fn descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied()
        && found.len() < MOST
    {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|id| id.parse::<u32>().ok());
            found.extend(children);
        }
    }
    found.split_off(1)
}

/// Whether a process has a thread that has not ended: its parent may not have waited for it.
pub(crate) fn is_running(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Behind the name, which may have any characters.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
        state.is_some_and(|state| !matches!(state.first(), None | Some(b'Z' | b'X')))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_a_descendant() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = super::descendants(std::process::id());
        drop(child.stdin.take());
        child.wait().unwrap();
        if !std::path::Path::new("/proc/self/task/self/children").exists()
            && !std::path::Path::new(&format!("/proc/self/task/{}/children", std::process::id()))
                .exists()
        {
            cuguard_testing::not_run(cuguard_testing::Requirement::ProcChildren, "");
            return;
        }
        assert!(found.contains(&child.id()), "{found:?}");
    }

    #[test]
    fn a_process_that_is_not_waited_for_has_ended() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(super::is_running(child.id()) && super::is_running(std::process::id()));
        drop(child.stdin.take());
        while super::is_running(child.id()) {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait().unwrap();
        assert!(!super::is_running(child.id()));
    }
}
