//! Sizes and shares as a person reads them.

use std::fmt;

/// A number of bytes, shown in KiB, MiB, GiB or TiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = 0;
        // The last unit stays, however many there are of it.
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        while unit + 1 < UNITS.len() && self.0 >> (10 * (unit + 1)) > 0 {
            unit += 1;
        }
        let one = 1_u64 << (10 * unit);
        if self.0.is_multiple_of(one) {
            write!(f, "{} {}", self.0 / one, UNITS[unit])
        } else {
            write!(f, "{:.2} {}", self.0 as f64 / one as f64, UNITS[unit])
        }
    }
}

/// How much `part` is of `whole`, in per cent, rounded down: 100 is all of it.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    match whole {
        0 => 0,
        whole => (u128::from(part) * 100 / u128::from(whole)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.50 KiB"),
            (64 << 20, "64 MiB"),
            ((1 << 30) + (1 << 28), "1.25 GiB"),
            (1 << 51, "2048 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn only_all_of_it_is_a_hundred_per_cent() {
        assert_eq!(percent(999, 1000), 99);
        assert_eq!(percent(1000, 1000), 100);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(1, 0), 0);
    }
}
