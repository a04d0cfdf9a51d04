//! The client: finds the sockets of a process, and sends a request.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::credentials::credentials;
use crate::folder;
use crate::protocol::Request;

/// How long a report may take: a search, and the names of a large library.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a report of another server of the same process is waited for.
const OTHERS: Duration = Duration::from_secs(20);

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
        .map(|path| path.display().to_string())
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
            let why = error.to_string();
            problem.get_or_insert(AskError::Unsafe { process, why });
            continue;
        }
        for server in 0..folder::SERVERS {
            let socket = path.join(folder::socket_name(process, server));
            match ask_one(&socket, process, user, request) {
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
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"XDG_RUNTIME_DIR="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// The first words of the command line of a process, without control characters.
fn command_of(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let words: Vec<_> = words.collect();
    let words = words.join(" ");
    let words = words.trim_end().chars().take(60);
    words
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

/// The reply of one server. `None` if none listens there, or one of another process does: of another PID namespace.
fn ask_one(
    socket: &Path,
    process: u32,
    user: u32,
    request: Request,
) -> Result<Option<String>, AskError> {
    let failed = |error| AskError::Connection { process, error };
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(failed(error)),
            };
        }
    };
    let peer = credentials(&stream).map_err(failed)?;
    if peer.uid != user || u32::try_from(peer.pid) != Ok(process) {
        return Ok(None);
    }
    match exchange(stream, request, PATIENCE).map_err(failed)? {
        Ok(body) => Ok(Some(body)),
        Err(why) => Err(AskError::Refused { process, why }),
    }
}

/// Sends the request and reads the reply: the body, or the error of the server.
fn exchange(
    mut stream: UnixStream,
    request: Request,
    patience: Duration,
) -> io::Result<Result<String, String>> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let reply = String::from_utf8_lossy(&reply);
    let (status, body) = reply.split_once('\n').unwrap_or_default();
    Ok(match status.strip_prefix("error ") {
        Some(why) => Err(why.to_owned()),
        None if status == "ok" => Ok(body.to_owned()),
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
    })
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
        if let Ok(stream) = UnixStream::connect(&socket)
            && credentials(&stream)
                .is_ok_and(|peer| u32::try_from(peer.pid) == Ok(std::process::id()))
        {
            let _ = exchange(stream, Request::Report, OTHERS);
        }
    }
}
