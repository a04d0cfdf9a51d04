//! The identity of a device: its UUID and its compute capability.

use std::fmt;
use std::str::FromStr;

/// The UUID of a device, which names it across processes and reboots; see [`Device::uuid`](crate::Device::uuid).
///
/// It is displayed as `nvidia-smi -L` and `CUDA_VISIBLE_DEVICES` show it, and parsed from the same, with and without
/// `GPU-`. (For an instance of a partitioned GPU they show `MIG-`, which is parsed too.)
///
/// ```
/// use cuguard::device::DeviceUuid;
///
/// let uuid: DeviceUuid = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10".parse()?;
/// assert_eq!(uuid.as_bytes()[..4], [1, 2, 3, 4]);
/// assert_eq!(uuid.to_string(), "GPU-01020304-0506-0708-090a-0b0c0d0e0f10");
/// # Ok::<(), cuguard::device::ParseDeviceError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUuid([u8; 16]);

impl DeviceUuid {
    /// A UUID from its bytes.
    ///
    /// ```
    /// let uuid = cuguard::device::DeviceUuid::from_bytes([0xff; 16]);
    /// assert_eq!(uuid.to_string(), "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff");
    /// ```
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a [`DeviceUuid`] or a [`ComputeCapability`].
///
/// ```
/// let error = "nine".parse::<cuguard::device::ComputeCapability>().unwrap_err();
/// assert_eq!(error.to_string(), "\"nine\" is not a compute capability, such as 9.0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {expected}")]
#[non_exhaustive]
pub struct ParseDeviceError {
    /// The text.
    pub text: String,
    /// What was expected.
    pub expected: &'static str,
}

impl FromStr for DeviceUuid {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        let bare = text.strip_prefix("GPU-").or(text.strip_prefix("MIG-"));
        let groups: Vec<_> = bare.unwrap_or(text).split('-').collect();
        let lengths = groups.iter().map(|group| group.len());
        let digits = groups.concat();
        let is_uuid =
            lengths.eq([8, 4, 4, 4, 12]) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u128::from_str_radix(&digits, 16) {
            Ok(number) if is_uuid => Ok(Self(number.to_be_bytes())),
            _ => Err(ParseDeviceError {
                text: text.to_owned(),
                expected: "UUID of a device, such as GPU-01020304-0506-0708-090a-0b0c0d0e0f10",
            }),
        }
    }
}

/// The compute capability of a device: which features its hardware has; see
/// [`Device::compute_capability`](crate::Device::compute_capability).
///
/// ```
/// use cuguard::device::ComputeCapability;
///
/// let hopper = ComputeCapability::new(9, 0);
/// assert!(hopper > ComputeCapability::new(8, 9) && hopper < ComputeCapability::new(10, 0));
/// assert_eq!((hopper.to_string(), hopper.target()), ("9.0".to_owned(), "sm_90".to_owned()));
/// assert_eq!("9.0".parse(), Ok(hopper));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ComputeCapability {
    /// The number before the dot.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

impl ComputeCapability {
    /// A compute capability.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The name of this target in PTX and for compilers.
    ///
    /// ```
    /// assert_eq!(cuguard::device::ComputeCapability::new(12, 1).target(), "sm_121");
    /// ```
    #[must_use]
    pub fn target(self) -> String {
        format!("sm_{}{}", self.major, self.minor)
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        let number = |digits: &str| {
            let valid = digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse().ok().filter(|_: &u32| valid)
        };
        let parsed = text.split_once('.').and_then(|(major, minor)| {
            let (major, minor) = (number(major)?, number(minor)?);
            Some(Self { major, minor })
        });
        parsed.ok_or_else(|| ParseDeviceError {
            text: text.to_owned(),
            expected: "compute capability, such as 9.0",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ComputeCapability, DeviceUuid};

    #[test]
    fn uuids_are_parsed_with_and_without_prefix() {
        let uuid = DeviceUuid::from_bytes([0xab; 16]);
        let text = uuid.to_string();
        let bare = text.trim_start_matches("GPU-");
        for text in [&text, bare, &bare.to_uppercase(), &format!("MIG-{bare}")] {
            assert_eq!(text.parse(), Ok(uuid), "{text}");
        }
        for text in [
            "",
            "GPU-",
            "GPU-GPU-abababab-abab-abab-abab-abababababab",
            "abababababababababababababababab",
            "abababab-abab-abab-abab-ababababab+b",
            "abababab-abab-abab-abab-abababababé",
        ] {
            let error = text.parse::<DeviceUuid>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn other_texts_are_no_capability() {
        for text in ["", "9", "9.", ".0", "+9.0", "9.0.0", "9.-1", "sm_90"] {
            assert!(text.parse::<ComputeCapability>().is_err(), "{text}");
        }
    }
}
