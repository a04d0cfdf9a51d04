//! The client: finds the sockets of a process, and sends a request.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::connect::{connect, send};
use crate::credentials::credentials;
use crate::folder;
use crate::protocol::{LONGEST_ERROR, Request, parse_reply, printable};

/// How long a report may take: a search, and the names of a large library.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a report of another server of the same process is waited for.
const OTHERS: Duration = Duration::from_secs(20);

/// The longest reply, in bytes: a report of a million call sites is shorter.
const LONGEST_REPLY: usize = 256 << 20;

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no such process.
    #[error("there is no process {process}")]
    NoProcess {
        /// Its id.
        process: u32,
    },
    /// The process belongs to another user.
    #[error(
        "process {process} belongs to another user (user id {user}): only the same user and root can ask it"
    )]
    OtherUser {
        /// Its id.
        process: u32,
        /// The user's id.
        user: u32,
    },
    /// The process has no server.
    #[error(
        "process {process}{} has no reports that can be requested: start it with LEAK_REPORT=1 or under `cuguard run`. A process \
         has them from its first CUDA context, or under `cuguard run` from its first call of the CUDA driver (looked in {})",
        of(command),
        folders(looked)
    )]
    NoServer {
        /// Its id.
        process: u32,
        /// Its command line.
        command: String,
        /// Where its socket would be.
        looked: Vec<PathBuf>,
    },
    /// The folder of the socket can be opened by others, so the socket is not used.
    #[error("the socket of process {process} is not used: {why}")]
    Unsafe {
        /// Its id.
        process: u32,
        /// What is wrong.
        why: String,
    },
    /// The process returned an error.
    #[error("process {process}: {why}")]
    Refused {
        /// Its id.
        process: u32,
        /// The error.
        why: String,
    },
    /// The connection failed.
    #[error("process {process} does not reply: {error}")]
    Connection {
        /// Its id.
        process: u32,
        /// The system's error.
        error: io::Error,
    },
}

fn of(command: &str) -> String {
    match command {
        "" => String::new(),
        command => format!(" ({command})"),
    }
}

fn folders(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        // Out of the environment of the process.
        .map(|path| printable(&path.display().to_string(), LONGEST_ERROR))
        .collect();
    paths.join(" and ")
}

/// Sends a request to each server of a process, and returns their replies.
///
/// # Errors
///
/// An [`AskError`] with the process: there is none, it belongs to another user, it has no server, or does not reply.
///
/// ```
/// use cuguard_live::{Request, ask};
///
/// let error = ask(99_999_999, Request::Stats { sites: 3 }).unwrap_err();
/// assert_eq!(error.to_string(), "there is no process 99999999");
/// ```
pub fn ask(process: u32, request: Request) -> Result<Vec<String>, AskError> {
    ask_within(process, request, PATIENCE)
}

/// As [`ask`], with a limit for the time that it takes.
///
/// # Errors
///
/// As [`ask`].
pub fn ask_within(
    process: u32,
    request: Request,
    within: Duration,
) -> Result<Vec<String>, AskError> {
    let until = Instant::now() + within;
    let user = user_of(process)?;
    // SAFETY: always succeeds.
    let own = unsafe { libc::geteuid() };
    if own != 0 && own != user {
        return Err(AskError::OtherUser { process, user });
    }
    let mut looked = Vec::new();
    for runtime in [runtime_of(process), env::var_os("XDG_RUNTIME_DIR")] {
        for path in folder::candidates(runtime, user) {
            if !looked.contains(&path) {
                looked.push(path);
            }
        }
    }
    let (mut replies, mut problem) = (Vec::new(), None);
    for path in &looked {
        if fs::symlink_metadata(path).is_err() {
            continue;
        }
        if let Err(error) = folder::check(path, user) {
            let why = printable(&error.to_string(), LONGEST_ERROR);
            problem.get_or_insert(AskError::Unsafe { process, why });
            continue;
        }
        for server in 0..folder::SERVERS {
            let socket = path.join(folder::socket_name(process, server));
            match ask_one(&socket, process, user, request, until) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if !replies.is_empty() {
            return Ok(replies);
        }
    }
    let command = command_of(process);
    Err(problem.unwrap_or(AskError::NoServer {
        process,
        command,
        looked,
    }))
}

/// The other processes of this user that have a server, or had one and did not remove it: those whose socket is where this
/// process would have its own.
#[must_use]
pub fn processes() -> Vec<u32> {
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    let folders = folder::candidates(env::var_os("XDG_RUNTIME_DIR"), user);
    let safe = folders
        .iter()
        .filter(|path| folder::check(path, user).is_ok());
    let mut found: Vec<u32> = safe.flat_map(|path| folder::processes(path)).collect();
    found.sort_unstable();
    found.dedup();
    found.retain(|process| *process != std::process::id());
    found
}

/// Sends a request to the [other processes](processes) of this user, one after the other until the time is over, and returns
/// the replies with their processes. What does not reply is left out.
///
/// ```
/// use std::time::Duration;
/// use cuguard_live::{Request, ask_others};
///
/// for (process, replies) in ask_others(Request::Stats { sites: 0 }, Duration::from_millis(100)) {
///     println!("{process}: {replies:?}");
/// }
/// ```
#[must_use]
pub fn ask_others(request: Request, within: Duration) -> Vec<(u32, Vec<String>)> {
    let until = Instant::now() + within;
    let mut replies = Vec::new();
    for process in processes() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // One that is stopped does not keep the others from being asked.
        let left = left.min(within / 4);
        if let Ok(texts) = ask_within(process, request, left) {
            replies.push((process, texts));
        }
    }
    replies
}

/// The user that a process runs as.
fn user_of(process: u32) -> Result<u32, AskError> {
    let missing = AskError::NoProcess { process };
    let Some(number) = i32::try_from(process).ok().filter(|number| *number > 0) else {
        return Err(missing);
    };
    match fs::metadata(format!("/proc/{process}")) {
        Ok(info) => Ok(info.uid()),
        Err(_) => {
            // Other users' processes may be hidden.
            // SAFETY: no signal is sent.
            let code = unsafe { libc::kill(number, 0) };
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EPERM) if code != 0 => {
                    let user = u32::MAX;
                    Err(AskError::OtherUser { process, user })
                }
                _ => Err(missing),
            }
        }
    }
}

/// `XDG_RUNTIME_DIR` as the process had it when it started.
fn runtime_of(process: u32) -> Option<OsString> {
    let environment = of_any_thread(process, "environ")?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"XDG_RUNTIME_DIR="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// A file of `/proc` about the process. That of the main thread is empty when it has ended and others have not.
fn of_any_thread(process: u32, name: &str) -> Option<Vec<u8>> {
    let read = |path: PathBuf| {
        fs::read(path.join(name))
            .ok()
            .filter(|text| !text.is_empty())
    };
    let folder = PathBuf::from(format!("/proc/{process}"));
    read(folder.clone()).or_else(|| {
        let mut threads = fs::read_dir(folder.join("task")).ok()?.flatten();
        threads.find_map(|thread| read(thread.path()))
    })
}

/// The first words of the command line of a process, without control characters.
fn command_of(process: u32) -> String {
    let bytes = of_any_thread(process, "cmdline").unwrap_or_default();
    printable(&words(&bytes), 60)
}

/// The command line of this process.
///
/// ```
/// assert!(!cuguard_live::command_line().is_empty());
/// ```
#[must_use]
pub fn command_line() -> String {
    // `/proc/self` is the main thread, which has none once it has ended.
    words(&fs::read("/proc/thread-self/cmdline").unwrap_or_default())
}

fn words(command_line: &[u8]) -> String {
    let words = command_line.split(|byte| *byte == 0);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    words.join(" ").trim_end().to_owned()
}

/// The reply of one server. `None` if none listens there, or one of another process does: of another PID namespace.
fn ask_one(
    socket: &Path,
    process: u32,
    user: u32,
    request: Request,
    until: Instant,
) -> Result<Option<String>, AskError> {
    let failed = |error| AskError::Connection { process, error };
    let left = || until.saturating_duration_since(Instant::now());
    let stream = match connect(socket, left()) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(failed(error)),
            };
        }
    };
    let peer = credentials(stream.as_raw_fd()).map_err(failed)?;
    if peer.uid != user || u32::try_from(peer.pid) != Ok(process) {
        return Ok(None);
    }
    match exchange(stream, request, left()).map_err(failed)? {
        Ok(body) => Ok(Some(body)),
        Err(why) => Err(AskError::Refused { process, why }),
    }
}

/// Sends the request and reads the reply: the body, or the error of the server. The peer is not trusted: a process of
/// another user, if root asks, may reply with any bytes, any number of them, and as slowly as it likes.
fn exchange(
    mut stream: UnixStream,
    request: Request,
    patience: Duration,
) -> io::Result<Result<String, String>> {
    let deadline = Instant::now() + patience;
    stream.set_write_timeout(Some(patience))?;
    send(&stream, format!("{request}\n").as_bytes())?;
    let reply = read_reply(&mut stream, deadline, LONGEST_REPLY)?;
    parse_reply(&reply).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Reads to the end of the connection, until the deadline.
fn read_reply(stream: &mut UnixStream, deadline: Instant, longest: usize) -> io::Result<Vec<u8>> {
    let mut reply = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(reply),
            Ok(count) => reply.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
        if reply.len() > longest {
            let why = format!("its reply has more than {longest} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
    }
}

/// Has the other servers of this process write their reports: the signal reached this one alone.
pub(crate) fn request_from_others(own: &Path) {
    let Some(folder) = own.parent() else {
        return;
    };
    for server in 0..folder::SERVERS {
        let socket = folder.join(folder::socket_name(std::process::id(), server));
        if socket == own {
            continue;
        }
        if let Ok(stream) = connect(&socket, OTHERS)
            && credentials(stream.as_raw_fd())
                .is_ok_and(|peer| u32::try_from(peer.pid) == Ok(std::process::id()))
        {
            let _ = exchange(stream, Request::Report, OTHERS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{exchange, read_reply};
    use crate::protocol::Request;

    fn reply(bytes: &'static [u8]) -> io::Result<Result<String, String>> {
        let (client, mut server) = UnixStream::pair()?;
        let server = thread::spawn(move || {
            // A socket that is closed with unread bytes resets the connection.
            server.read_exact(&mut [0; b"report\n".len()])?;
            server.write_all(bytes)
        });
        let reply = exchange(client, Request::Report, Duration::from_secs(60));
        server.join().expect("it does not panic")?;
        reply
    }

    #[test]
    fn errors_of_a_server_have_no_control_characters() -> io::Result<()> {
        let why = reply(b"error \x1b]0;title\x07busy\n")?.expect_err("it is an error");
        assert_eq!(why, "?]0;title?busy");
        assert_eq!(reply(b"ok\nbody\n")?, Ok("body\n".to_owned()));
        Ok(())
    }

    #[test]
    fn a_long_reply_is_refused() -> io::Result<()> {
        let (mut client, mut server) = UnixStream::pair()?;
        server.write_all(&[b'x'; 101])?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = read_reply(&mut client, deadline, 100).expect_err("it is too long");
        assert_eq!(error.to_string(), "its reply has more than 100 bytes");
        Ok(())
    }

    /// Each byte would begin a time limit of one read anew.
    #[test]
    fn a_slow_reply_ends_at_the_deadline() -> io::Result<()> {
        let (mut client, mut server) = UnixStream::pair()?;
        let server = thread::spawn(move || {
            while server.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let deadline = Instant::now() + Duration::from_millis(100);
        let error = read_reply(&mut client, deadline, 1 << 20).expect_err("it has no end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
        server.join().expect("it does not panic");
        Ok(())
    }

    #[test]
    fn a_process_has_a_command_line() {
        assert!(super::command_line().contains("cuguard_live"));
    }
}
