//! Why a report is made.

use std::fmt;

/// Why a report is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// `exit`, or the return from `main`.
    Exit,
    /// No end yet: exit handlers are about to run.
    ExitBegins,
    /// `quick_exit`.
    QuickExit,
    /// `_exit` or `_Exit`.
    UnderscoreExit,
    /// A signal whose disposition is the default.
    Signal(i32),
    /// One of the exec functions. The process goes on with another program, or with this one if that fails.
    Exec,
}

impl Reason {
    /// As a number, for an atomic variable.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Exit => 1,
            Self::QuickExit => 2,
            Self::UnderscoreExit => 3,
            Self::Exec => 4,
            Self::ExitBegins => 5,
            Self::Signal(signal) => 0x100 | signal.unsigned_abs(),
        }
    }

    /// From [`code`](Self::code).
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            2 => Self::QuickExit,
            3 => Self::UnderscoreExit,
            4 => Self::Exec,
            5 => Self::ExitBegins,
            signal if signal & 0x100 != 0 => Self::Signal((signal & 0xff).cast_signed()),
            _ => Self::Exit,
        }
    }
}

/// The name of a signal that ends a process.
pub(crate) fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGABRT => "SIGABRT",
        libc::SIGUSR1 => "SIGUSR1",
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
        _ => return None,
    })
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit | Self::ExitBegins => f.write_str("exit"),
            Self::QuickExit => f.write_str("quick_exit"),
            Self::UnderscoreExit => f.write_str("_exit"),
            Self::Exec => f.write_str("exec"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => f.write_str(name),
                None => match signal - libc::SIGRTMIN() {
                    0 => f.write_str("SIGRTMIN"),
                    above @ 1.. => write!(f, "SIGRTMIN+{above}"),
                    _ => write!(f, "signal {signal}"),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn a_reason_survives_its_code() {
        for reason in [
            Reason::Exit,
            Reason::QuickExit,
            Reason::UnderscoreExit,
            Reason::Exec,
            Reason::ExitBegins,
            Reason::Signal(libc::SIGTERM),
            Reason::Signal(64),
        ] {
            assert_eq!(Reason::from_code(reason.code()), reason);
        }
        assert_eq!(Reason::Signal(libc::SIGTERM).to_string(), "SIGTERM");
        let first = libc::SIGRTMIN();
        assert_eq!(Reason::Signal(first).to_string(), "SIGRTMIN");
        assert_eq!(Reason::Signal(first + 2).to_string(), "SIGRTMIN+2");
        assert_eq!(Reason::Signal(first - 1).to_string(), "signal 33");
    }
}
