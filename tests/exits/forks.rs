//! Children that fork: what the fork has of its parent's guards is inert, and only the parent
//! reports.

use std::process::ExitCode;

use cuguard::{Context, DeviceBuffer};

use super::endings::leaky_alone;

/// Forks with guards around: the child ends as it is told to, in time and with its own code; the
/// parent goes on as if nothing had been.
fn fork(code: i32, in_child: fn(Context, DeviceBuffer<u8>) -> ExitCode) -> ExitCode {
    let context = leaky_alone();
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 100).unwrap();
    // SAFETY: this process has only one thread that does anything, and the child only does what is
    // under test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        return in_child(context, buffer);
    }
    let mut status = 0;
    // SAFETY: our own child, and the variable can be written to.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), code, "the child's own code");
    assert_eq!(buffer.to_vec().unwrap(), [0; 100]);
    drop(buffer);
    std::mem::forget(context);
    ExitCode::SUCCESS
}

pub fn exits() -> ExitCode {
    fork(5, |_context, _buffer| std::process::exit(5))
}

pub fn exits_at_once() -> ExitCode {
    // SAFETY: may be called at any time.
    fork(5, |_context, _buffer| unsafe { libc::_exit(5) })
}

pub fn returns() -> ExitCode {
    fork(5, |context, buffer| {
        std::mem::forget((context, buffer));
        ExitCode::from(5)
    })
}

pub fn panics() -> ExitCode {
    fork(101, |_context, _buffer| {
        std::panic::set_hook(Box::new(|_| {}));
        panic!("on purpose")
    })
}

pub fn drops_all() -> ExitCode {
    fork(5, |context, buffer| {
        let used = buffer.to_vec().is_err() && context.memory().is_err();
        let made = Context::new(0).is_err();
        drop((context, buffer));
        ExitCode::from(if used && made { 5 } else { 6 })
    })
}
