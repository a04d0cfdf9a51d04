//! The attributes of devices, by name.

use std::fmt;
use std::str::FromStr;

use cuguard_driver::sys::{device_attribute, with_device_attributes};

macro_rules! attributes {
    ($($variant:ident $constant:ident;)*) => {
        /// An attribute of a device; see [`Device::attribute`](crate::Device::attribute).
        ///
        /// The names are those of the driver's `CUdevice_attribute`, without their prefix and in Rust's style:
        /// `CU_DEVICE_ATTRIBUTE_WARP_SIZE` is `WarpSize`. NVIDIA's documentation of the driver API describes them.
        ///
        /// It is displayed with the driver's name, and parsed from it, with and without the prefix, and from the name of the
        /// variant, in any case.
        ///
        /// ```
        /// use cuguard::device::DeviceAttribute;
        ///
        /// let attribute: DeviceAttribute = "warp_size".parse()?;
        /// assert_eq!(attribute, DeviceAttribute::WarpSize);
        /// assert_eq!("WarpSize".parse(), Ok(attribute));
        /// assert_eq!(attribute.to_string(), "CU_DEVICE_ATTRIBUTE_WARP_SIZE");
        /// # Ok::<(), cuguard::device::ParseDeviceAttributeError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum DeviceAttribute {
            $(
                #[doc = concat!("`CU_DEVICE_ATTRIBUTE_", stringify!($constant), "`")]
                $variant = device_attribute::$constant,
            )*
        }

        impl DeviceAttribute {
            /// All attributes, in the order of their numbers.
            ///
            /// ```
            /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
            /// use cuguard::device::DeviceAttribute;
            /// use cuguard::Device;
            ///
            /// let device = Device::new(0)?;
            /// for attribute in DeviceAttribute::ALL {
            ///     if let Ok(value) = device.attribute(*attribute) {
            ///         println!("{attribute} {value}");
            ///     }
            /// }
            /// # Ok::<(), cuguard::Error>(())
            /// ```
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            const NAMES: &'static [&'static str] =
                &[$(concat!("CU_DEVICE_ATTRIBUTE_", stringify!($constant))),*];

            const VARIANTS: &'static [&'static str] = &[$(stringify!($variant)),*];

            /// The driver's name.
            ///
            /// ```
            /// let attribute = cuguard::device::DeviceAttribute::WarpSize;
            /// assert_eq!(attribute.name(), "CU_DEVICE_ATTRIBUTE_WARP_SIZE");
            /// ```
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("CU_DEVICE_ATTRIBUTE_", stringify!($constant)),)*
                }
            }
        }
    };
}

with_device_attributes!(attributes);

impl fmt::Display for DeviceAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is not a [`DeviceAttribute`].
///
/// ```
/// let error = "WARPS".parse::<cuguard::device::DeviceAttribute>().unwrap_err();
/// let text = "\"WARPS\" is not a device attribute; `DeviceAttribute::ALL` has the names, such as WARP_SIZE";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{word:?} is not a device attribute; `DeviceAttribute::ALL` has the names, such as WARP_SIZE"
)]
#[non_exhaustive]
pub struct ParseDeviceAttributeError {
    /// The word.
    pub word: String,
}

impl FromStr for DeviceAttribute {
    type Err = ParseDeviceAttributeError;

    fn from_str(word: &str) -> Result<Self, ParseDeviceAttributeError> {
        const PREFIX: &str = "CU_DEVICE_ATTRIBUTE_";
        let mut names = Self::NAMES.iter().zip(Self::VARIANTS);
        let found = names.position(|(name, variant)| {
            [name, &name[PREFIX.len()..], variant]
                .iter()
                .any(|name| name.eq_ignore_ascii_case(word))
        });
        found
            .map(|index| Self::ALL[index])
            .ok_or_else(|| ParseDeviceAttributeError {
                word: word.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceAttribute;

    #[test]
    fn names_and_numbers_agree() {
        assert!(DeviceAttribute::ALL.is_sorted());
        assert_eq!(DeviceAttribute::ALL.len(), DeviceAttribute::NAMES.len());
        for (attribute, name) in DeviceAttribute::ALL.iter().zip(DeviceAttribute::NAMES) {
            assert_eq!(attribute.name(), *name);
            assert_eq!(name.parse(), Ok(*attribute));
            let short = name["CU_DEVICE_ATTRIBUTE_".len()..].to_lowercase();
            assert_eq!(short.parse(), Ok(*attribute));
            assert_eq!(format!("{attribute:?}").parse(), Ok(*attribute));
        }
        assert_eq!(DeviceAttribute::MaxThreadsPerBlock as u32, 1);
        assert_eq!(DeviceAttribute::ComputeCapabilityMajor as u32, 75);
    }

    #[test]
    fn other_words_are_none() {
        for word in ["", "CU_DEVICE_ATTRIBUTE_", "MAX", "é", "WARP_SIZE "] {
            let error = word.parse::<DeviceAttribute>().unwrap_err();
            assert_eq!(error.word, word);
        }
    }
}
