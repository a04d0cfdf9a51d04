//! The functions that end a process or replace its program, exported in front of those of the C library.
//!
//! They are async-signal-safe and may run in a child of `vfork`, which shares the memory of its parent: nothing is changed
//! there, and the C library's functions are looked up when the library is loaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::reporter::{self, finish};
use crate::output;
use crate::process::{Reason, is_used};
use crate::real::call_dlsym;
use crate::search::{Caller, Entered, entry_point};

unsafe extern "C" {
    pub(super) fn __cxa_atexit(
        function: unsafe extern "C" fn(),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

/// A function of the C library.
pub(super) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The address, or null.
    pub(super) fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if !address.is_null() {
            return address;
        }
        // Not `dlsym`, which may be that of a library before this one: it would find the functions of this library.
        // SAFETY: the name ends in a null byte.
        let address = unsafe { call_dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

static EXECVE: Real = Real::new(c"execve");
static EXECV: Real = Real::new(c"execv");
static EXECVP: Real = Real::new(c"execvp");
static EXECVPE: Real = Real::new(c"execvpe");
static FEXECVE: Real = Real::new(c"fexecve");
static EXECVEAT: Real = Real::new(c"execveat");
static EXECL: Real = Real::new(c"execl");
static EXECLP: Real = Real::new(c"execlp");
static EXECLE: Real = Real::new(c"execle");
static PTHREAD_EXIT: Real = Real::new(c"pthread_exit");
static PTHREAD_CANCEL: Real = Real::new(c"pthread_cancel");
pub(super) static SIGNAL: Real = Real::new(c"signal");
pub(super) static SSIGNAL: Real = Real::new(c"ssignal");
pub(super) static SYSV_SIGNAL: Real = Real::new(c"sysv_signal");
pub(super) static SIGSET: Real = Real::new(c"sigset");

/// Looks all of them up.
pub(super) fn resolve() {
    for real in [
        &EXECVE,
        &EXECV,
        &EXECVP,
        &EXECVPE,
        &FEXECVE,
        &EXECVEAT,
        &EXECL,
        &EXECLP,
        &EXECLE,
        &PTHREAD_EXIT,
        &PTHREAD_CANCEL,
        &SIGNAL,
        &SSIGNAL,
        &SYSV_SIGNAL,
        &SIGSET,
    ] {
        real.get();
    }
}

/// Calls a function of the C library like `signal`.
///
/// # Safety
///
/// As for that function.
pub(super) unsafe fn set_handler(
    real: &Real,
    signal: c_int,
    new: libc::sighandler_t,
) -> libc::sighandler_t {
    type Function = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
    let address = real.get();
    if address.is_null() {
        return not_found() as libc::sighandler_t;
    }
    // SAFETY: the function has this type; its arguments are the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Function>(address)(signal, new) }
}

/// Sets `errno`, and returns -1.
extern "C" fn not_found() -> c_int {
    // SAFETY: the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// What an entry point jumps to that has nothing more to do.
pub(super) extern "C" fn nothing() -> c_int {
    0
}

/// What an entry point jumps to that has failed.
pub(super) extern "C" fn failed() -> c_int {
    -1
}

/// Marks where the program entered this library. Not in a child of `vfork`, whose thread is its parent's.
fn enter(caller: &Caller) -> Option<Entered> {
    is_used().then(|| Entered::by(caller))
}

unsafe extern "C" fn exit_at_once(caller: &Caller, _: u32) -> *const c_void {
    let _entered = enter(caller);
    finish(Reason::UnderscoreExit);
    output::exit_now(caller.argument(0) as c_int)
}

entry_point! {
    /// Ends the process at once.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    _exit, exit_at_once, 0
}
entry_point! {
    /// Ends the process at once.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    #[allow(non_snake_case, reason = "the name is that of the C library")]
    _Exit, exit_at_once, 0
}

/// Whether this is a file that may be executed. Its format is not checked.
///
/// # Safety
///
/// The name is null or ends in a null byte.
unsafe fn is_executable(file: *const c_char) -> bool {
    // SAFETY: plain data, for which zero is valid. Null is an error; otherwise the name ends in a null byte.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        libc::stat(file, &mut status) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFREG
            && libc::access(file, libc::X_OK) == 0
    }
}

/// Reports before the program is replaced, if this file can be executed.
///
/// # Safety
///
/// The name is null or ends in a null byte.
unsafe fn before_exec(file: *const c_char) {
    // SAFETY: as for the caller.
    if is_used() && unsafe { is_executable(file) } {
        finish(Reason::Exec);
    }
}

/// Like [`before_exec`], for a name that is searched in `PATH`.
///
/// # Safety
///
/// The name is null or ends in a null byte.
unsafe fn before_exec_in_path(name: *const c_char) {
    if name.is_null() || !is_used() {
        return;
    }
    // SAFETY: ends in a null byte, says the caller.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.contains(&b'/') {
        // SAFETY: as for the caller.
        return unsafe { before_exec(name) };
    }
    // SAFETY: the program does not change its environment while it executes another.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let path = match path.is_null() {
        true => c"/bin:/usr/bin",
        // SAFETY: `getenv` returned a string.
        false => unsafe { CStr::from_ptr(path) },
    };
    for folder in path.to_bytes().split(|byte| *byte == b':') {
        let mut file = [0; libc::PATH_MAX as usize];
        let parts: [&[u8]; 3] = [folder, if folder.is_empty() { b"" } else { b"/" }, bytes];
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length >= file.len() {
            continue;
        }
        let characters = parts.into_iter().flatten();
        file.iter_mut()
            .zip(characters)
            .for_each(|(to, from)| *to = *from);
        // SAFETY: the rest of the array is null bytes.
        if unsafe { is_executable(file.as_ptr().cast()) } {
            return finish(Reason::Exec);
        }
    }
}

/// What a function that replaces the program is given.
#[derive(Clone, Copy)]
enum Given {
    File,
    FileInPath,
    Descriptor,
    FileInFolder,
}

impl Given {
    /// Reports, if there is something that can be executed.
    ///
    /// # Safety
    ///
    /// The arguments are those of such a function.
    unsafe fn before_exec(self, caller: &Caller) {
        let name = |number: usize| {
            std::ptr::with_exposed_provenance::<c_char>(caller.argument(number) as usize)
        };
        let descriptor = caller.argument(0) as c_int;
        // SAFETY: as for the caller.
        unsafe {
            match self {
                Self::File => before_exec(name(0)),
                Self::FileInPath => before_exec_in_path(name(0)),
                Self::Descriptor if libc::fcntl(descriptor, libc::F_GETFD) >= 0 => {
                    finish(Reason::Exec);
                }
                Self::FileInFolder
                    if !name(1).is_null()
                        && (*name(1) == 0
                            || libc::faccessat(descriptor, name(1), libc::X_OK, 0) == 0) =>
                {
                    finish(Reason::Exec);
                }
                Self::Descriptor | Self::FileInFolder => {}
            }
        }
    }
}

/// The functions that replace the program.
static EXEC: [(Given, &Real); 9] = [
    (Given::File, &EXECVE),
    (Given::File, &EXECV),
    (Given::FileInPath, &EXECVP),
    (Given::FileInPath, &EXECVPE),
    (Given::Descriptor, &FEXECVE),
    (Given::FileInFolder, &EXECVEAT),
    (Given::File, &EXECL),
    (Given::FileInPath, &EXECLP),
    (Given::File, &EXECLE),
];

/// The address of the C library's function.
fn next(real: &Real) -> *const c_void {
    let address = real.get();
    match address.is_null() {
        true => not_found as *const c_void,
        false => address,
    }
}

/// What the functions that replace the program call first. Returns the C library's function.
unsafe extern "C" fn before_replacing(caller: &Caller, function: u32) -> *const c_void {
    let (given, real) = EXEC[function as usize];
    {
        let _entered = enter(caller);
        // SAFETY: the arguments are the program's.
        unsafe { given.before_exec(caller) };
    }
    next(real)
}

/// What `pthread_exit` calls first. Returns the C library's function.
unsafe extern "C" fn before_pthread_exit(_: &Caller, _: u32) -> *const c_void {
    reporter::note_thread_end();
    next(&PTHREAD_EXIT)
}

/// What `pthread_cancel` calls first. Returns the C library's function.
unsafe extern "C" fn before_pthread_cancel(caller: &Caller, _: u32) -> *const c_void {
    reporter::note_thread_cancelled(caller.argument(0) as libc::pthread_t);
    next(&PTHREAD_CANCEL)
}

/// Exports functions with an entry point, which are jumped through: their arguments may be any number, and what they unwind
/// does not include them.
macro_rules! exported {
    ($($(#[$doc:meta])* $name:ident, $before:ident, $number:literal;)*) => {$(
        entry_point! {
            $(#[$doc])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            $name, $before, $number
        }
    )*};
}

exported! {
    /// Replaces the program.
    execve, before_replacing, 0;
    /// Replaces the program.
    execv, before_replacing, 1;
    /// Replaces the program, which is searched in `PATH`.
    execvp, before_replacing, 2;
    /// Replaces the program, which is searched in `PATH`.
    execvpe, before_replacing, 3;
    /// Replaces the program by that of a descriptor.
    fexecve, before_replacing, 4;
    /// Replaces the program by one in a folder.
    execveat, before_replacing, 5;
    /// Replaces the program.
    execl, before_replacing, 6;
    /// Replaces the program, which is searched in `PATH`.
    execlp, before_replacing, 7;
    /// Replaces the program.
    execle, before_replacing, 8;
    /// Ends the thread. Frames of its callers are unwound.
    pthread_exit, before_pthread_exit, 0;
    /// Cancels a thread. It may be the calling one, whose frames are unwound then.
    pthread_cancel, before_pthread_cancel, 0;
}
