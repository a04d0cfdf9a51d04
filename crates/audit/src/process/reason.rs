//! Why a report is made.

use std::fmt;

use cuguard_live::SignalName;

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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit | Self::ExitBegins => f.write_str("exit"),
            Self::QuickExit => f.write_str("quick_exit"),
            Self::UnderscoreExit => f.write_str("_exit"),
            Self::Exec => f.write_str("exec"),
            Self::Signal(signal) => SignalName(*signal).fmt(f),
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
    }
}
