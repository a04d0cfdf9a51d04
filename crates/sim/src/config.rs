//! How large the simulated GPU is, how many there are, and what happens on misuse.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use crate::misuse::Misuse;

/// The page of physical memory, as measured on a real GPU: memory is taken and returned in whole
/// pages.
///
/// ```
/// assert_eq!(cuguard_sim::PAGE, 2 << 20);
/// ```
pub const PAGE: u64 = 2 << 20;

/// The most memory of a device, in bytes, and the most devices: beyond, simulated addresses would
/// run out.
pub(crate) const MOST_BYTES: u64 = 1 << 46;
pub(crate) const MOST_DEVICES: u32 = 64;

/// What the simulated machine looks like. It is set once per process, before the first call of
/// `cuInit`, with [`configure`](crate::configure); a program in another language sets the
/// environment variable `CUGUARD_SIM` instead, in the form that [`Config::from_str`] takes.
///
/// ```
/// use cuguard_sim::Config;
///
/// let config = Config::new().memory(256 << 20).devices(2);
/// assert_eq!(config.to_string(), "memory=256MiB,devices=2,context=32MiB,misuse=abort,latency=0us");
/// assert_eq!(config.to_string().parse::<Config>().unwrap(), config);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until `configure` is called with it"]
pub struct Config {
    pub(crate) memory: u64,
    pub(crate) devices: u32,
    pub(crate) context_cost: u64,
    pub(crate) misuse: Misuse,
    pub(crate) latency: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            devices: 1,
            context_cost: 32 << 20,
            misuse: Misuse::Abort,
            latency: Duration::ZERO,
        }
    }
}

impl Config {
    /// One device of 4 GiB, on which a context costs 32 MiB; misuse aborts the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// The memory of each device in bytes, rounded down to whole pages, at most 2^46. The host
    /// memory behind it is taken only as far as the program touches it.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes / PAGE * PAGE;
        self
    }

    /// The number of devices, at most 64. With 0, `cuInit` answers `CUDA_ERROR_NO_DEVICE`.
    pub fn devices(mut self, count: u32) -> Self {
        self.devices = count;
        self
    }

    /// The device memory that a context costs, rounded up to whole pages. (A real one was
    /// measured to cost 523 MiB on a card of 140 GiB.)
    pub fn context_cost(mut self, bytes: u64) -> Self {
        let most = u64::MAX / PAGE * PAGE;
        self.context_cost = bytes.checked_next_multiple_of(PAGE).unwrap_or(most);
        self
    }

    /// What happens when the program does something that a real driver leaves undefined.
    pub fn misuse(mut self, misuse: Misuse) -> Self {
        self.misuse = misuse;
        self
    }

    /// How long each piece of asynchronous work on a stream takes at least. More than zero widens
    /// the gap in which a copy is in flight, and so brings races out. What synchronous functions do
    /// themselves takes no longer by it.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Whether there are simulated addresses for as much, and numbers for as many.
    fn check(&self) -> Result<(), ConfigError> {
        for (setting, value, most) in [
            ("memory", self.memory, MOST_BYTES),
            ("context", self.context_cost, MOST_BYTES),
            ("devices", self.devices.into(), MOST_DEVICES.into()),
        ] {
            if value > most {
                return Err(ConfigError::TooMuch {
                    setting,
                    value,
                    most,
                });
            }
        }
        Ok(())
    }

    /// The configuration that the environment variable `CUGUARD_SIM` describes, or the default
    /// where it is not set.
    ///
    /// ```
    /// let config = cuguard_sim::Config::from_env()?;
    /// # Ok::<(), cuguard_sim::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Config::from_str`].
    pub fn from_env() -> Result<Self, ConfigError> {
        match std::env::var_os("CUGUARD_SIM") {
            None => Ok(Self::default()),
            Some(text) => text.to_string_lossy().parse(),
        }
    }
}

/// A description of the simulated machine that cannot be understood.
///
/// ```
/// let error = "memory=plenty".parse::<cuguard_sim::Config>().unwrap_err();
/// assert!(error.to_string().contains("plenty"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A word before the `=` that is not a setting.
    #[error(
        "unknown setting `{0}` of the simulated GPU; known are \
         memory=SIZE, devices=N, context=SIZE, misuse=abort|error, latency=N(us|ms)"
    )]
    UnknownSetting(String),
    /// A setting with a value it does not take.
    #[error(
        "`{value}` is no value for the simulated GPU's setting `{setting}`; it takes {accepted}"
    )]
    BadValue {
        /// The setting.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// More than the simulated machine can have.
    #[error(
        "{value} is too much for the simulated GPU's setting `{setting}`; it takes {most} at most"
    )]
    TooMuch {
        /// The setting.
        setting: &'static str,
        /// What was given.
        value: u64,
        /// The most that it takes.
        most: u64,
    },
    /// The simulated GPU is running already: it is configured before the first `cuInit`.
    #[error("the simulated GPU is running already; configure it before the first call of cuInit")]
    Running,
}

const SIZES: &str = "a number with B, KiB, MiB or GiB, such as 512MiB";

fn parse_size(setting: &'static str, value: &str) -> Result<u64, ConfigError> {
    let bad = || ConfigError::BadValue {
        setting,
        value: value.to_owned(),
        accepted: SIZES,
    };
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &value[digits.len()..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(bad()),
    };
    let number: u64 = digits.trim().parse().map_err(|_| bad())?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= MOST_BYTES)
        .ok_or_else(bad)
}

fn parse_latency(value: &str) -> Result<Duration, ConfigError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits.parse::<u64>().ok();
    match (number, &value[digits.len()..]) {
        (Some(number), "us") => Ok(Duration::from_micros(number)),
        (Some(number), "ms") => Ok(Duration::from_millis(number)),
        _ => Err(ConfigError::BadValue {
            setting: "latency",
            value: value.to_owned(),
            accepted: "a number with us or ms, such as 200us",
        }),
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    /// Reads a comma-separated list such as `memory=8GiB,devices=2,misuse=error`. What is not
    /// named keeps its default.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            let (setting, value) = word.split_once('=').unwrap_or((word, ""));
            config = match setting {
                "memory" => config.memory(parse_size("memory", value)?),
                "context" => config.context_cost(parse_size("context", value)?),
                "devices" => match value.parse() {
                    Ok(count) if count <= MOST_DEVICES => config.devices(count),
                    _ => {
                        return Err(ConfigError::BadValue {
                            setting: "devices",
                            value: value.to_owned(),
                            accepted: "a number from 0 to 64",
                        });
                    }
                },
                "misuse" => match value {
                    "abort" => config.misuse(Misuse::Abort),
                    "error" => config.misuse(Misuse::Error),
                    _ => {
                        return Err(ConfigError::BadValue {
                            setting: "misuse",
                            value: value.to_owned(),
                            accepted: "`abort` or `error`",
                        });
                    }
                },
                "latency" => config.latency(parse_latency(value)?),
                _ => return Err(ConfigError::UnknownSetting(word.to_owned())),
            };
        }
        Ok(config)
    }
}

fn write_size(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    match bytes {
        0 => f.write_str("0B"),
        _ if bytes.is_multiple_of(1 << 30) => write!(f, "{}GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => write!(f, "{}MiB", bytes >> 20),
        _ => write!(f, "{bytes}B"),
    }
}

impl fmt::Display for Config {
    /// The form that [`Config::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory=")?;
        write_size(f, self.memory)?;
        write!(f, ",devices={},context=", self.devices)?;
        write_size(f, self.context_cost)?;
        let misuse = match self.misuse {
            Misuse::Abort => "abort",
            Misuse::Error => "error",
        };
        write!(f, ",misuse={misuse},latency={}us", self.latency.as_micros())
    }
}

/// What `configure` left for the machine to start with. `None`: ask the environment.
static CHOSEN: Mutex<Option<Config>> = Mutex::new(None);

/// Sets what the simulated machine looks like. To be called before the first `cuInit`.
///
/// ```
/// use cuguard_sim::{Config, configure};
///
/// configure(Config::new().memory(1 << 30).devices(2))?;
/// # Ok::<(), cuguard_sim::ConfigError>(())
/// ```
///
/// # Errors
///
/// [`ConfigError::Running`] once the simulated machine has started, [`ConfigError::TooMuch`] for
/// more memory or devices than it can have.
pub fn configure(config: Config) -> Result<(), ConfigError> {
    // A forked child must not wait for a lock that a thread of its parent may have held.
    if crate::machine::is_forked() {
        return Err(ConfigError::Running);
    }
    config.check()?;
    // The lock is held over the check, so that a start under way on another thread is seen.
    let mut chosen = CHOSEN.lock().unwrap_or_else(|e| e.into_inner());
    if crate::machine::is_running() {
        return Err(ConfigError::Running);
    }
    *chosen = Some(config);
    Ok(())
}

/// Starts the machine with what was chosen, or with what the environment says.
pub(crate) fn with_chosen<R>(start: impl FnOnce(Config) -> R) -> Result<R, ConfigError> {
    let chosen = CHOSEN.lock().unwrap_or_else(|e| e.into_inner());
    let config = match &*chosen {
        Some(config) => config.clone(),
        None => Config::from_env()?,
    };
    Ok(start(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_value_is_named_with_what_is_accepted() {
        for (text, words) in [
            ("memory=12XB", ["12XB", "MiB"]),
            ("memory=99999999GiB", ["99999999GiB", "MiB"]),
            ("devices=many", ["many", "0 to 64"]),
            ("misuse=shout", ["shout", "`abort` or `error`"]),
            ("latency=3h", ["3h", "us or ms"]),
            ("colour=red", ["colour=red", "latency=N"]),
        ] {
            let message = text.parse::<Config>().unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "{text}: {message}");
            }
        }
    }

    #[test]
    fn a_description_reads_back() {
        let config = Config::new()
            .memory(3 << 30)
            .context_cost(0)
            .misuse(Misuse::Error)
            .latency(Duration::from_millis(2));
        assert_eq!(config.to_string().parse(), Ok(config));
    }

    #[test]
    fn what_the_builder_takes_is_checked_when_it_is_used() {
        let most = || Config::new().memory(MOST_BYTES).devices(MOST_DEVICES);
        assert_eq!(most().context_cost(MOST_BYTES).check(), Ok(()));
        for (config, words) in [
            (most().devices(65), "65 is too much"),
            (most().memory(MOST_BYTES + PAGE), "`memory`"),
            (most().context_cost(u64::MAX), "`context`"),
        ] {
            let error = config.check().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(configure(config), Err(error));
        }
    }
}
