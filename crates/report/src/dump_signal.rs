//! The signal that requests a report of a running process.

use std::fmt;
use std::str::FromStr;

/// The signal that requests a report of a running process. All end a process by default, and a program that handles one of them
/// itself keeps its handler.
///
/// ```
/// use cuguard::report::DumpSignal;
///
/// assert_eq!(DumpSignal::default(), DumpSignal::Usr2);
/// assert_eq!("SIGUSR1".parse(), Ok(DumpSignal::Usr1));
/// assert_eq!("none".parse::<DumpSignal>().unwrap().to_string(), "none");
/// assert!("KILL".parse::<DumpSignal>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DumpSignal {
    /// No signal.
    None,
    /// `SIGUSR1`.
    Usr1,
    /// `SIGUSR2`.
    #[default]
    Usr2,
    /// `SIGHUP`.
    Hup,
    /// `SIGIO`.
    Io,
    /// `SIGPWR`.
    Pwr,
}

impl DumpSignal {
    const ALL: [Self; 6] = [
        Self::None,
        Self::Usr1,
        Self::Usr2,
        Self::Hup,
        Self::Io,
        Self::Pwr,
    ];
}

impl fmt::Display for DumpSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Hup => "HUP",
            Self::Io => "IO",
            Self::Pwr => "PWR",
        })
    }
}

/// A name that is not a [`DumpSignal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of USR1, USR2, HUP, IO, PWR, none")]
pub struct ParseDumpSignalError;

impl FromStr for DumpSignal {
    type Err = ParseDumpSignalError;

    /// With or without `SIG`, in any case.
    fn from_str(name: &str) -> Result<Self, ParseDumpSignalError> {
        let name = name.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let mut all = Self::ALL.into_iter();
        all.find(|signal| signal.to_string().eq_ignore_ascii_case(name))
            .ok_or(ParseDumpSignalError)
    }
}
