//! The server: one thread that waits for connections and for the signal.
//!
//! It blocks all signals and ends with the process. Connections are in `clients`.

use std::env;
use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cuguard_sync::own_thread;

use crate::clients::Clients;
use crate::running::{LISTENER, OWNER, WAKE, WOKEN, in_child, is_running, own_process};
use crate::{Source, client, folder, signal, threads};

/// What a server does.
pub struct Options {
    /// What it reports.
    pub source: &'static dyn Source,
    /// The signal for which a handler is installed, if the program has none.
    pub signal: Option<c_int>,
    /// Whether the server ends the process when the main thread has ended and only threads of these libraries are left. Without
    /// them the process would have ended.
    pub ends_process: bool,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signal = &self.signal;
        f.debug_struct("Options").field("signal", signal).finish()
    }
}

/// How often it is checked whether only threads of these libraries are left.
const GLANCE: Duration = Duration::from_secs(1);

/// The process ends: no report is begun.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// The socket's file.
static SOCKET: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Starts the server, once a process. A later call does nothing.
///
/// # Errors
///
/// No folder for the socket can be used, or the thread cannot be started. The program then runs without a server.
pub fn start(options: Options) -> io::Result<()> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let (listener, socket) = bind()?;
    let (woken, wake) = pipe()?;
    LISTENER.set(listener.into_raw_fd());
    WOKEN.set(woken.into_raw_fd());
    WAKE.set(wake.into_raw_fd());
    // SAFETY: the function is async-signal-safe.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    let own = socket.clone();
    *cuguard_sync::lock(&SOCKET) = Some(socket);
    OWNER.store(own_process(), Ordering::Release);
    let wanted = options.signal;
    // The thread inherits this mask: the program's signals are for the program's threads.
    let before = threads::block_signals();
    let spawned = thread::Builder::new()
        .name("cuguard-live".to_owned())
        .spawn(move || run(&options, &own));
    threads::restore_signals(&before);
    match spawned {
        Ok(_) => {
            if let Some(signal) = wanted {
                signal::install(signal);
            }
            Ok(())
        }
        Err(error) => {
            stop();
            Err(error)
        }
    }
}

/// Removes the socket, because the process ends. A report that is being made is not waited for, and none is begun.
pub fn stop() {
    if !is_running() {
        return;
    }
    STOPPED.store(true, Ordering::Release);
    // At exit another thread may hold it and never release it.
    if let Ok(mut socket) = SOCKET.try_lock()
        && let Some(path) = socket.take()
    {
        let _ = std::fs::remove_file(path);
    }
}

/// A pipe that neither blocks nor survives an exec.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: two numbers can be written to.
    let code = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors that nothing else owns.
    Ok(ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }).into())
}

/// Binds the socket in the first folder that can be used.
fn bind() -> io::Result<(UnixListener, PathBuf)> {
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    let mut refused = None;
    let runtime = folder::own_runtime(env::var_os("XDG_RUNTIME_DIR"), user);
    for path in folder::candidates(runtime, user) {
        match folder::prepare(&path, user).and_then(|()| bind_in(&path, user)) {
            Ok(bound) => {
                folder::sweep(&path);
                return Ok(bound);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn bind_in(folder: &Path, user: u32) -> io::Result<(UnixListener, PathBuf)> {
    for server in 0..folder::SERVERS {
        let path = folder.join(folder::socket_name(std::process::id(), server));
        let bound = UnixListener::bind(&path).or_else(|error| {
            // Left over from a process with the same id, or from the program before an exec.
            if error.kind() == io::ErrorKind::AddrInUse && folder::is_stale(&path) {
                std::fs::remove_file(&path)?;
                return UnixListener::bind(&path);
            }
            Err(error)
        });
        match bound {
            Ok(listener) => {
                // No other user can open its folder: without /proc it stays as the umask makes it.
                let _ = folder::set_mode(&path, user, 0o600);
                listener.set_nonblocking(true)?;
                return Ok((listener, path));
            }
            // Another library of this process serves it.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The thread. It ends when the program has closed its descriptors.
fn run(options: &Options, socket: &Path) {
    let _own = match options.ends_process {
        true => own_thread::enter_shared(),
        // Another thread of the same library ends the process. This one never waits for the dynamic linker.
        false => own_thread::enter(),
    };
    let mut clients = Clients::default();
    let mut glanced = Instant::now();
    loop {
        let (Some(listener), Some(woken)) = (LISTENER.get(), WOKEN.get()) else {
            // The signal still does not end the process, which has asked for reports.
            return;
        };
        let now = Instant::now();
        let wanted = |fd, is_wanted| libc::pollfd {
            // A negative number is skipped.
            fd: if is_wanted { fd } else { -1 },
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled = vec![wanted(listener, clients.accepts(now)), wanted(woken, true)];
        clients.add_to(&mut polled);
        let patience = clients.patience(now, GLANCE).as_millis() as c_int;
        let count = polled.len() as libc::nfds_t;
        // SAFETY: so many descriptors, which may be invalid.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, patience) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // The program has limited its descriptors to fewer than these.
            thread::sleep(GLANCE);
        }
        if STOPPED.load(Ordering::Acquire) {
            // The process exits, and has closed nothing.
            return;
        }
        if options.ends_process && glanced.elapsed() >= GLANCE {
            glanced = Instant::now();
            if threads::is_only_own() {
                // As the C library does when the last thread ends.
                // SAFETY: handlers of the program may run on any thread.
                unsafe { libc::exit(0) };
            }
        }
        let is_ready = |one: &libc::pollfd| one.revents & libc::POLLIN != 0;
        // Checked again: the program may have closed them while this thread waited.
        if is_ready(&polled[1]) && drain() {
            let _ = catch_unwind(AssertUnwindSafe(|| options.source.write_report()));
            client::request_from_others(socket);
        }
        clients.go_on(&polled[2..], options.source);
        if is_ready(&polled[0])
            && let Some(listener) = LISTENER.get()
        {
            clients.accept(listener);
        }
    }
}

/// Reads all requests of the signal: they are one. Returns whether there was any.
fn drain() -> bool {
    let mut any = false;
    let mut bytes = [0_u8; 64];
    while let Some(pipe) = WOKEN.get() {
        // SAFETY: the bytes can be written to; the pipe does not block.
        let read = unsafe { libc::read(pipe, bytes.as_mut_ptr().cast(), bytes.len()) };
        if read <= 0 {
            break;
        }
        any = true;
    }
    any
}
