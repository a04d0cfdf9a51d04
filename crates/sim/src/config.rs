//! The configuration of the simulated GPU.

#[cfg(doc)]
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use crate::misuse::Misuse;
use crate::process::{is_running, lock_unless_forked};

mod text;
mod units;

use units::{format_size, format_value, microseconds};

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
    pub(crate) order: Order,
    pub(crate) steps: Option<u64>,
}

/// The order in which the blocks of a kernel execute, and the warps of a block.
///
/// ```
/// let config = cuguard_sim::Config::new().order(cuguard_sim::Order::Random { seed: 7 });
/// assert!(config.to_string().ends_with(",order=random,seed=7"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// By their indices. Each run of a program has the same results: blocks that may communicate execute in turn on one
    /// thread, all others on all processors.
    #[default]
    Sequential,
    /// Shuffled, which exposes races between threads. Each run with the same seed has the same order.
    Random {
        /// Any number.
        seed: u64,
    },
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
            order: Order::Sequential,
            steps: None,
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
    /// what it would write stays as it was. By default kernels run, if their module has PTX.
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

    /// The order of the blocks and warps of kernels.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The instructions that each warp of a kernel may execute; a kernel with more, such as one that never ends, fails with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`. By default there is no limit.
    ///
    /// ```
    /// let config = cuguard_sim::Config::new().steps(1_000_000);
    /// assert!(config.to_string().ends_with(",steps=1000000"));
    /// ```
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Whether the simulation supports as much memory and as many devices.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
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
         kernels=run|skip, \
         order=sequential|random, seed=N, steps=N"
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
