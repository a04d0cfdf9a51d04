//! Threads: the signals of the server's, and the end of all others.

use std::fs;

use cuguard_sync::own_thread;

/// Blocks all signals on the calling thread. Threads that it creates inherit that.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: sets are plain data, for which zero is valid, and both can be written to.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}

pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that the system returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

/// Whether the main thread has ended (`pthread_exit`), and all others but those of these libraries: the process would have ended
/// without them.
pub(crate) fn is_only_own() -> bool {
    let main = fs::read_to_string(format!("/proc/self/task/{}/stat", std::process::id()));
    let has_ended = |stat: &str| {
        // The name is in parentheses and may have any characters.
        let state = stat.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
        state.starts_with(['Z', 'X'])
    };
    if !main.is_ok_and(|stat| has_ended(&stat)) {
        return false;
    }
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return false;
    };
    threads.flatten().all(|thread| {
        let id = thread.file_name();
        let id = id.to_str().and_then(|id| id.parse().ok());
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        id.is_some_and(own_thread::is_own) || has_ended(&stat)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_whose_main_thread_runs_does_not_end() {
        assert!(!super::is_only_own());
    }
}
