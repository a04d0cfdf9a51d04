//! What signals are called.

use std::fmt;

/// Displays a signal by its name, and a real-time signal by its distance from the first: reports and `cuguard run` name them alike.
/// Allocates nothing, so that signal handlers can use it.
///
/// ```
/// use cuguard_live::SignalName;
///
/// assert_eq!(SignalName(libc::SIGSEGV).to_string(), "SIGSEGV");
/// assert_eq!(SignalName(libc::SIGRTMIN() + 2).to_string(), "SIGRTMIN+2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalName(pub i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match standard(self.0) {
            Some(name) => f.write_str(name),
            None => match self.0 - libc::SIGRTMIN() {
                0 => f.write_str("SIGRTMIN"),
                above @ 1.. if self.0 <= libc::SIGRTMAX() => write!(f, "SIGRTMIN+{above}"),
                _ => write!(f, "signal {}", self.0),
            },
        }
    }
}

/// The name of a signal that ends a process by default.
fn standard(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSTKFLT => "SIGSTKFLT",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGIO => "SIGIO",
        libc::SIGPWR => "SIGPWR",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::SignalName;

    #[test]
    fn signals_have_their_names() {
        let first = libc::SIGRTMIN();
        for (signal, name) in [
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGKILL, "SIGKILL"),
            (first, "SIGRTMIN"),
            (first + 2, "SIGRTMIN+2"),
            // The C library keeps those below the first for itself.
            (first - 1, "signal 33"),
            (libc::SIGRTMAX() + 1, "signal 65"),
        ] {
            assert_eq!(SignalName(signal).to_string(), name);
        }
    }
}
