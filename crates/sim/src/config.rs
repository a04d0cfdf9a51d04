//! The configuration of the simulated GPU.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use crate::misuse::Misuse;
use crate::process::{is_running, lock_unless_forked};

/// The page of physical memory, as measured on a real GPU: device memory is allocated in whole
/// pages.
///
/// ```
/// assert_eq!(cuguard_sim::PAGE, 2 << 20);
/// ```
pub const PAGE: u64 = 2 << 20;

/// The limits of memory per device, in bytes, and of devices: beyond them, simulated addresses run
/// out.
pub(crate) const MAX_MEMORY: u64 = 1 << 46;
pub(crate) const MAX_DEVICES: u32 = 64;
/// The longest latency: a program would never end with more.
const MAX_LATENCY: Duration = Duration::from_secs(60);

/// The configuration of the simulated GPU. It is set once per process, before the first `cuInit`,
/// with [`configure`](crate::configure), or by the environment variable `CUGUARD_SIM` in the form
/// that [`Config::from_str`] parses. Tests that need different configurations run in processes of their
/// own, such as one test binary for each.
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
    pub(crate) trace: bool,
    pub(crate) skip_kernels: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            devices: 1,
            context_cost: 32 << 20,
            misuse: Misuse::Abort,
            latency: Duration::ZERO,
            trace: false,
            skip_kernels: false,
        }
    }
}

impl Config {
    /// One device of 4 GiB; a context uses 32 MiB of it; misuse aborts the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// The memory of each device in bytes, rounded down to whole pages, at most 2^46. Host memory is
    /// used only for what the program touches.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes / PAGE * PAGE;
        self
    }

    /// The number of devices, at most 64. With 0, `cuInit` fails with `CUDA_ERROR_NO_DEVICE`.
    pub fn devices(mut self, count: u32) -> Self {
        self.devices = count;
        self
    }

    /// The device memory that each context uses for itself, rounded up to whole pages. (Measured on
    /// an H200: 523 MiB of 140 GiB.)
    pub fn context_cost(mut self, bytes: u64) -> Self {
        let max = u64::MAX / PAGE * PAGE;
        self.context_cost = bytes.checked_next_multiple_of(PAGE).unwrap_or(max);
        self
    }

    /// What happens when the program does something that a real driver leaves undefined.
    pub fn misuse(mut self, misuse: Misuse) -> Self {
        self.misuse = misuse;
        self
    }

    /// The minimum duration of each asynchronous operation on a stream. More than zero widens the
    /// window in which a copy is in flight, and so exposes races. Synchronous functions are not
    /// slowed down. At most a minute.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Whether a call that fails because it is not simulated is named on stderr, once for each function. Off by
    /// default.
    pub fn trace(mut self, trace: bool) -> Self {
        self.trace = trace;
        self
    }

    /// Whether kernel launches are checked and skipped: the launch succeeds and the kernel does not run, so that
    /// what it would write stays as it was. By default a launch fails with `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// The dimensions and the shared memory are checked against the limits of the device and of the kernel, and
    /// each argument of 8 bytes that is a device address must be that of live memory. The first launch prints one line
    /// on standard error.
    ///
    /// ```
    /// let config = cuguard_sim::Config::new().skip_kernels(true);
    /// assert!(config.to_string().ends_with(",kernels=skip"));
    /// ```
    pub fn skip_kernels(mut self, skip: bool) -> Self {
        self.skip_kernels = skip;
        self
    }

    /// Whether the simulation supports as much memory and as many devices.
    fn check(&self) -> Result<(), ConfigError> {
        for (setting, value, max) in [
            ("memory", self.memory, MAX_MEMORY),
            ("context", self.context_cost, MAX_MEMORY),
            ("devices", self.devices.into(), MAX_DEVICES.into()),
            (
                "latency",
                microseconds(self.latency),
                microseconds(MAX_LATENCY),
            ),
        ] {
            if value > max {
                return Err(ConfigError::TooLarge {
                    setting,
                    value,
                    max,
                });
            }
        }
        Ok(())
    }

    /// The configuration in the environment variable `CUGUARD_SIM`, or the default if it is not
    /// set.
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

/// An invalid configuration of the simulated GPU.
///
/// ```
/// let error = "memory=plenty".parse::<cuguard_sim::Config>().unwrap_err();
/// assert!(error.to_string().contains("plenty"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no setting of this name.
    #[error(
        "unknown setting `{0}` of the simulated GPU; the settings are \
         memory=SIZE, devices=N, context=SIZE, misuse=abort|error, latency=N(us|ms), trace, \
         kernels=refuse|skip"
    )]
    UnknownSetting(String),
    /// The value is not valid for the setting.
    #[error(
        "`{value}` is not valid for the simulated GPU's setting `{setting}`; it accepts {accepted}"
    )]
    BadValue {
        /// The setting.
        setting: &'static str,
        /// The value.
        value: String,
        /// What the setting accepts.
        accepted: &'static str,
    },
    /// More than the simulation supports.
    #[error(
        "{} is too large for the simulated GPU's setting `{setting}`; the maximum is {}",
        format_value(setting, *value),
        format_value(setting, *max)
    )]
    TooLarge {
        /// The setting.
        setting: &'static str,
        /// The value.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// Too little memory for a context. Only where `context` is not set too: with it, a context that
    /// does not fit is intended.
    #[error(
        "`{value}` is too small for the simulated GPU's setting `memory`: a context uses {} \
         (setting `context`), and memory has whole pages of {}; the minimum is {}",
        format_size(*context),
        format_size(PAGE),
        format_size(*context + PAGE)
    )]
    TooSmall {
        /// The value of `memory`.
        value: String,
        /// The memory that a context uses, in bytes.
        context: u64,
    },
    /// The simulated GPU is already running.
    #[error(
        "the simulated GPU is already running, and its configuration is that of the whole process; \
         configure it before the first call of cuInit, with CUGUARD_SIM, or in a test binary of its own"
    )]
    Running,
}

/// What the settings of a size accept.
const SIZE: &str =
    "a number of bytes, or one with KiB, MiB, GiB or TiB, such as 512MiB, up to 64TiB";

/// The settings of `CUGUARD_SIM`, and what each accepts.
const SETTINGS: [(&str, &str); 7] = [
    ("memory", SIZE),
    ("context", SIZE),
    ("devices", "a number from 0 to 64"),
    ("misuse", "`abort` or `error`"),
    (
        "latency",
        "a number with us or ms, such as 200us, up to 60000ms",
    ),
    ("trace", "no value"),
    ("kernels", "`refuse` or `skip`"),
];

/// A number and its unit.
fn split_unit(value: &str) -> Option<(u64, &str)> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    Some((digits.trim().parse().ok()?, &value[digits.len()..]))
}

fn parse_size(value: &str) -> Option<u64> {
    let (number, unit) = split_unit(value)?;
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn parse_latency(value: &str) -> Option<Duration> {
    match split_unit(value)? {
        (number, "us") => Some(Duration::from_micros(number)),
        (number, "ms") => Some(Duration::from_millis(number)),
        _ => None,
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    /// Parses a comma-separated list such as `memory=8GiB,devices=2,misuse=error`. Settings that
    /// are not listed keep their defaults. A size without a unit is in bytes.
    ///
    /// # Errors
    ///
    /// For a setting or value that is not known, more than the simulation supports, or less memory than
    /// a context uses. With `context` in the list too, less memory is accepted: creating a context then
    /// fails with `CUDA_ERROR_OUT_OF_MEMORY`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let (mut memory, mut is_context_set) = (None, false);
        let words = text.split(',').map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let known = SETTINGS.iter().find(|(setting, _)| *setting == name);
            let Some(&(setting, accepted)) = known else {
                return Err(ConfigError::UnknownSetting(word.to_owned()));
            };
            let parsed = match (setting, value) {
                ("memory", _) => parse_size(value).map(|bytes| config.memory(bytes)),
                ("context", _) => parse_size(value).map(|bytes| config.context_cost(bytes)),
                ("devices", _) => value.parse().ok().map(|count| config.devices(count)),
                ("misuse", "abort") => Some(config.misuse(Misuse::Abort)),
                ("misuse", "error") => Some(config.misuse(Misuse::Error)),
                ("latency", _) => parse_latency(value).map(|latency| config.latency(latency)),
                ("kernels", "refuse") => Some(config.skip_kernels(false)),
                ("kernels", "skip") => Some(config.skip_kernels(true)),
                ("trace", _) => (word == setting).then(|| config.trace(true)),
                _ => None,
            };
            config = parsed.ok_or_else(|| ConfigError::BadValue {
                setting,
                value: value.to_owned(),
                accepted,
            })?;
            match setting {
                "memory" => memory = Some(value),
                "context" => is_context_set = true,
                _ => {}
            }
        }
        config.check()?;
        match memory {
            Some(value) if !is_context_set && config.memory < config.context_cost + PAGE => {
                Err(ConfigError::TooSmall {
                    value: value.to_owned(),
                    context: config.context_cost,
                })
            }
            _ => Ok(config),
        }
    }
}

/// Bytes in the largest unit that divides them.
fn format_size(bytes: u64) -> String {
    let mut units = [(40, "TiB"), (30, "GiB"), (20, "MiB")].into_iter();
    let unit = units.find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    let (shift, unit) = unit.unwrap_or((0, "B"));
    format!("{}{unit}", bytes >> shift)
}

fn microseconds(duration: Duration) -> u64 {
    // Rounded up: a nanosecond above the maximum is too much.
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// The value of a setting with a maximum: a number of devices, a duration, or a size.
fn format_value(setting: &str, value: u64) -> String {
    match setting {
        "devices" => value.to_string(),
        "latency" => format!("{value}us"),
        _ => format_size(value),
    }
}

impl fmt::Display for Config {
    /// The form that [`Config::from_str`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let misuse = match self.misuse {
            Misuse::Abort => "abort",
            Misuse::Error => "error",
        };
        write!(
            f,
            "memory={},devices={},context={},misuse={misuse},latency={}us{}{}",
            format_size(self.memory),
            self.devices,
            format_size(self.context_cost),
            self.latency.as_micros(),
            if self.trace { ",trace" } else { "" },
            if self.skip_kernels {
                ",kernels=skip"
            } else {
                ""
            }
        )
    }
}

/// The argument of [`configure`]; `None` for the environment variable.
static CONFIGURED: Mutex<Option<Config>> = Mutex::new(None);

/// Configures the simulated GPU. Call it before the first `cuInit`.
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
/// [`ConfigError::Running`] after `cuInit`, [`ConfigError::TooLarge`] for more memory or devices
/// than the simulation supports.
pub fn configure(config: Config) -> Result<(), ConfigError> {
    // Held during the check, so that a concurrent start on another thread is seen.
    let mut configured = lock_unless_forked(&CONFIGURED).ok_or(ConfigError::Running)?;
    config.check()?;
    if is_running() {
        return Err(ConfigError::Running);
    }
    *configured = Some(config);
    Ok(())
}

/// Runs `start` with what [`configure`] was given, or else with the environment's configuration.
pub(crate) fn with_configured<R>(start: impl FnOnce(Config) -> R) -> Result<R, ConfigError> {
    let configured = lock_unless_forked(&CONFIGURED).ok_or(ConfigError::Running)?;
    let config = configured.clone().map_or_else(Config::from_env, Ok)?;
    Ok(start(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_value_is_named_with_what_is_accepted() {
        for (text, words) in [
            ("memory=12XB", ["12XB", "MiB"]),
            ("memory=99999GiB", ["99999GiB", "maximum is 64TiB"]),
            ("context=65TiB", ["65TiB", "maximum is 64TiB"]),
            ("memory=99999999999TiB", ["99999999999TiB", "up to 64TiB"]),
            ("memory=99999", ["`99999`", "34MiB"]),
            ("memory=32MiB", ["`32MiB`", "uses 32MiB"]),
            ("memory=33MiB,devices=2", ["`33MiB`", "34MiB"]),
            ("devices=many", ["many", "0 to 64"]),
            ("devices=65", ["65", "maximum is 64"]),
            ("misuse=shout", ["shout", "`abort` or `error`"]),
            ("latency=3h", ["3h", "us or ms"]),
            ("latency=60001ms", ["60001000us", "maximum is 60000000us"]),
            (
                "latency=18446744073709551615ms",
                ["is too large", "maximum is 60000000us"],
            ),
            ("trace=on", ["`on`", "no value"]),
            ("kernels=run", ["`run`", "`skip`"]),
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
            .latency(Duration::from_millis(2))
            .trace(true)
            .skip_kernels(true);
        assert_eq!(config.to_string().parse(), Ok(config));
    }

    #[test]
    fn sizes_have_units_up_to_tebibytes_or_are_in_bytes() {
        let memory = |text: &str| text.parse::<Config>().unwrap().memory;
        assert_eq!(memory("memory=2TiB"), 2 << 40);
        assert_eq!(memory("memory=64TiB"), MAX_MEMORY);
        assert_eq!(memory("memory=34MiB"), 34 << 20);
        assert_eq!(memory("memory=1073741824"), 1 << 30);
        // A context that does not fit, on purpose.
        assert_eq!(memory("memory=64MiB,context=100MiB"), 64 << 20);
        assert_eq!(memory("context=0,memory=0"), 0);
        let config = Config::new().memory(3 << 40);
        assert!(config.to_string().starts_with("memory=3TiB,"), "{config}");
    }

    #[test]
    fn an_error_for_a_late_configuration_names_what_works() {
        let message = ConfigError::Running.to_string();
        for words in ["whole process", "CUGUARD_SIM", "test binary of its own"] {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn what_the_builder_takes_is_checked_when_it_is_used() {
        let most = || Config::new().memory(MAX_MEMORY).devices(MAX_DEVICES);
        assert_eq!(most().context_cost(MAX_MEMORY).check(), Ok(()));
        for (config, words) in [
            (most().devices(65), "65 is too large"),
            (most().memory(MAX_MEMORY + PAGE), "`memory`"),
            (most().context_cost(u64::MAX), "`context`"),
            (most().latency(Duration::MAX), "`latency`"),
        ] {
            let error = config.check().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(configure(config), Err(error));
        }
    }
}
