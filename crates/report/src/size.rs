//! Sizes in KiB, MiB, GiB and TiB.

use std::fmt;

/// A number of bytes, shown in KiB, MiB, GiB or TiB: whole numbers without a fraction, others with two
/// decimals.
///
/// ```
/// use cuguard::report::ByteSize;
///
/// assert_eq!(ByteSize(64 << 20).to_string(), "64 MiB");
/// assert_eq!(ByteSize(1_610_612_736).to_string(), "1.50 GiB");
/// assert_eq!(ByteSize(1023).to_string(), "1023 B");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(
    /// The bytes.
    pub u64,
);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
        ];
        let Some((unit, name)) = units.into_iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{} B", self.0);
        };
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 / unit)
        } else {
            write!(f, "{:.2} {name}", self.0 as f64 / unit as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (4 << 20, "4 MiB"),
            ((1 << 30) + (1 << 28), "1.25 GiB"),
            (1 << 51, "2048 TiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }
}
