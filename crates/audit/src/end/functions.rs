//! The functions that end a process or replace its program, exported in front of those of the C library.
//!
//! They are async-signal-safe and may run in a child of `vfork`, which shares the memory of its parent: nothing is changed
//! there, and the C library's functions are looked up when the library is loaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Reason, finish, is_used, output, reporter};
use crate::real::call_dlsym;
use crate::search::Entered;

type Arguments = *const *const c_char;

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

/// Marks where the program entered this library. Not in a child of `vfork`, whose thread is its parent's.
#[inline(always)]
fn enter() -> Option<Entered> {
    is_used().then(Entered::here)
}

/// Ends the process at once.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn _exit(status: c_int) -> ! {
    let _entered = enter();
    finish(Reason::UnderscoreExit);
    output::exit_now(status)
}

/// Ends the process at once.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "the name is that of the C library")]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
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
        let letters = parts.into_iter().flatten();
        file.iter_mut()
            .zip(letters)
            .for_each(|(to, from)| *to = *from);
        // SAFETY: the rest of the array is null bytes.
        if unsafe { is_executable(file.as_ptr().cast()) } {
            return finish(Reason::Exec);
        }
    }
}

/// Exports a function that reports and then calls the C library's.
macro_rules! exec {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $real:ident, $before:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As for the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            {
                let _entered = enter();
                // SAFETY: the arguments are the caller's.
                unsafe { $before };
            }
            let address = $real.get();
            if address.is_null() {
                return not_found();
            }
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            // SAFETY: the function has this type; its arguments are the caller's.
            unsafe { std::mem::transmute::<*mut c_void, Function>(address)($($argument),*) }
        }
    };
}

exec! {
    /// Replaces the program.
    execve(file: *const c_char, arguments: Arguments, environment: Arguments)
    EXECVE, before_exec(file)
}
exec! {
    /// Replaces the program.
    execv(file: *const c_char, arguments: Arguments)
    EXECV, before_exec(file)
}
exec! {
    /// Replaces the program, which is searched in `PATH`.
    execvp(file: *const c_char, arguments: Arguments)
    EXECVP, before_exec_in_path(file)
}
exec! {
    /// Replaces the program, which is searched in `PATH`.
    execvpe(file: *const c_char, arguments: Arguments, environment: Arguments)
    EXECVPE, before_exec_in_path(file)
}
exec! {
    /// Replaces the program by that of a descriptor.
    fexecve(file: c_int, arguments: Arguments, environment: Arguments)
    FEXECVE, if libc::fcntl(file, libc::F_GETFD) >= 0 { finish(Reason::Exec) }
}
exec! {
    /// Replaces the program by one in a folder.
    execveat(folder: c_int, file: *const c_char, arguments: Arguments, environment: Arguments, flags: c_int)
    EXECVEAT, if !file.is_null() && (*file == 0 || libc::faccessat(folder, file, libc::X_OK, 0) == 0) {
        finish(Reason::Exec)
    }
}

/// What the functions with a variable number of arguments call first. Returns the C library's function.
///
/// # Safety
///
/// The name is null or ends in a null byte.
unsafe extern "C" fn before_variadic(file: *const c_char, function: u32) -> *const c_void {
    let real = match function {
        0 => &EXECL,
        1 => &EXECLP,
        _ => &EXECLE,
    };
    let _entered = enter();
    // SAFETY: as for the caller.
    unsafe {
        match function {
            1 => before_exec_in_path(file),
            _ => before_exec(file),
        }
    }
    let address = real.get();
    match address.is_null() {
        true => not_found as *const c_void,
        false => address,
    }
}

/// What `pthread_exit` calls first. Returns the C library's function.
unsafe extern "C" fn before_pthread_exit(_: *const c_char, _: u32) -> *const c_void {
    reporter::note_thread_end();
    let address = PTHREAD_EXIT.get();
    match address.is_null() {
        true => not_found as *const c_void,
        false => address,
    }
}

/// What `pthread_cancel` calls first, with the thread as a pointer. Returns the C library's function.
unsafe extern "C" fn before_pthread_cancel(thread: *const c_char, _: u32) -> *const c_void {
    reporter::note_thread_cancelled(thread as libc::pthread_t);
    let address = PTHREAD_CANCEL.get();
    match address.is_null() {
        true => not_found as *const c_void,
        false => address,
    }
}

/// Exports a function that calls another with its first argument and a number, and then jumps to the function that this
/// returns, with all registers and the stack as its caller left them.
macro_rules! hooked {
    ($(#[$doc:meta])* $name:ident, $before:ident, $number:literal) => {
        $(#[$doc])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                concat!("mov esi, ", $number),
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                before = sym $before,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                concat!("mov w1, #", $number),
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                "br x16",
                before = sym $before,
            );
        }
    };
}

hooked! {
    /// Replaces the program.
    execl, before_variadic, 0
}
hooked! {
    /// Replaces the program, which is searched in `PATH`.
    execlp, before_variadic, 1
}
hooked! {
    /// Replaces the program.
    execle, before_variadic, 2
}
hooked! {
    /// Ends the thread. Frames of its callers are unwound, so this must not be one of them.
    pthread_exit, before_pthread_exit, 0
}
hooked! {
    /// Cancels a thread. It may be the calling one, whose frames are unwound then.
    pthread_cancel, before_pthread_cancel, 0
}
