//! The configuration as text: `CUGUARD_SIM`.

use std::fmt;
use std::str::FromStr;

use super::units::{format_size, parse_latency, parse_size};
use super::{Config, ConfigError, Order, PAGE};
use crate::misuse::Misuse;

/// What the settings of a size accept.
const SIZE: &str =
    "a number of bytes, or one with KiB, MiB, GiB or TiB, such as 512MiB, up to 64TiB";

/// The settings of `CUGUARD_SIM`, and what each accepts.
const SETTINGS: [(&str, &str); 10] = [
    ("memory", SIZE),
    ("context", SIZE),
    ("devices", "a number from 0 to 64"),
    ("misuse", "`abort` or `error`"),
    (
        "latency",
        "a number with us or ms, such as 200us, up to 60000ms",
    ),
    ("trace", "no value"),
    ("kernels", "`run` or `skip`"),
    ("order", "`sequential` or `random`"),
    ("seed", "a number, beside `order=random`"),
    ("steps", "a number from 1"),
];

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
        let (mut memory, mut seed, mut is_context_set) = (None, None, false);
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
                ("kernels", "run") => Some(config.skip_kernels(false)),
                ("kernels", "skip") => Some(config.skip_kernels(true)),
                ("trace", _) => (word == setting).then(|| config.trace(true)),
                ("order", "sequential") => Some(config.order(Order::Sequential)),
                ("order", "random") => Some(config.order(Order::Random { seed: 0 })),
                ("seed", _) => value.parse::<u64>().is_ok().then_some(config),
                ("steps", _) => {
                    let steps = value.parse().ok().filter(|steps| *steps > 0);
                    steps.map(|steps| config.steps(steps))
                }
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
                "seed" => seed = Some((setting, value, accepted)),
                _ => {}
            }
        }
        if let Some((setting, value, accepted)) = seed {
            config.order = match (config.order, value.parse()) {
                (Order::Random { .. }, Ok(seed)) => Order::Random { seed },
                _ => {
                    return Err(ConfigError::BadValue {
                        setting,
                        value: value.to_owned(),
                        accepted,
                    });
                }
            };
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
        )?;
        if let Order::Random { seed } = self.order {
            write!(f, ",order=random,seed={seed}")?;
        }
        match self.steps {
            Some(steps) => write!(f, ",steps={steps}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::MAX_MEMORY;
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
            ("kernels=refuse", ["`refuse`", "`run` or `skip`"]),
            ("order=any", ["`any`", "`sequential` or `random`"]),
            ("seed=7", ["`7`", "beside `order=random`"]),
            ("order=random,seed=x", ["`x`", "a number"]),
            ("steps=0", ["`0`", "a number from 1"]),
            ("steps=many", ["`many`", "a number from 1"]),
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
            .skip_kernels(true)
            .order(Order::Random { seed: 99 })
            .steps(12);
        assert_eq!(config.to_string().parse(), Ok(config));
        let random = "order=random,seed=5,order=random"
            .parse::<Config>()
            .unwrap();
        assert_eq!(random.order, Order::Random { seed: 5 });
        assert_eq!("order=sequential,kernels=run".parse(), Ok(Config::new()));
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
}
