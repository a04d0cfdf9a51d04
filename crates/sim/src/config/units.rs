//! Sizes and durations as text.

use std::time::Duration;

/// A number and its unit.
fn split_unit(value: &str) -> Option<(u64, &str)> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    Some((digits.trim().parse().ok()?, &value[digits.len()..]))
}

pub(super) fn parse_size(value: &str) -> Option<u64> {
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

pub(super) fn parse_latency(value: &str) -> Option<Duration> {
    match split_unit(value)? {
        (number, "us") => Some(Duration::from_micros(number)),
        (number, "ms") => Some(Duration::from_millis(number)),
        _ => None,
    }
}

/// Bytes in the largest unit that divides them.
pub(super) fn format_size(bytes: u64) -> String {
    let mut units = [(40, "TiB"), (30, "GiB"), (20, "MiB")].into_iter();
    let unit = units.find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    let (shift, unit) = unit.unwrap_or((0, "B"));
    format!("{}{unit}", bytes >> shift)
}

pub(super) fn microseconds(duration: Duration) -> u64 {
    // Rounded up: a nanosecond above the maximum is too much.
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// The value of a setting with a maximum: a number of devices, a duration, or a size.
pub(super) fn format_value(setting: &str, value: u64) -> String {
    match setting {
        "devices" => value.to_string(),
        "latency" => format!("{value}us"),
        _ => format_size(value),
    }
}
