//! Why the machine does not say.

/// Why something is not known. It is an answer as good as any: whoever asks shows it instead of a
/// guess.
///
/// ```
/// use cuguard_machine::{Machine, Unknown};
///
/// match Machine::get() {
///     Ok(_) => println!("NVML answers"),
///     Err(Unknown::LibraryMissing { reason }) => println!("without NVML: {reason}"),
///     Err(other) => println!("{other}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unknown {
    /// NVML cannot be loaded.
    #[error(
        "NVML, libnvidia-ml.so.1, cannot be loaded: {reason}; it comes with the NVIDIA driver \
         (Debian: libnvidia-ml1, Ubuntu: libnvidia-compute-*, Fedora: nvidia-driver-libs or \
         xorg-x11-drv-nvidia-cuda-libs); a container needs the capability `utility` \
         (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
    )]
    LibraryMissing {
        /// The system's words.
        reason: String,
    },

    /// NVML is there and refused a call.
    #[error("NVML: {function} answered: {reason}")]
    Refused {
        /// NVML's function.
        function: &'static str,
        /// Its words.
        reason: String,
    },

    /// No GPU is at that place of the PCI bus, or it may not be seen from here.
    #[error("NVML knows no GPU {pci_bus_id:?}")]
    NoSuchGpu {
        /// The id that was asked for, as it was given.
        pci_bus_id: String,
    },
}

#[cfg(test)]
mod tests {
    use super::Unknown;

    #[test]
    fn the_words_name_what_is_missing_and_who_refused() {
        let missing = Unknown::LibraryMissing {
            reason: "no such file".to_owned(),
        };
        let refused = Unknown::Refused {
            function: "nvmlInit_v2",
            reason: "driver is not loaded".to_owned(),
        };
        let nowhere = Unknown::NoSuchGpu {
            pci_bus_id: "0000:ff:00.0".to_owned(),
        };
        for (unknown, words) in [
            (
                missing,
                ["libnvidia-ml.so.1", "no such file", "libnvidia-ml1"],
            ),
            (refused, ["NVML", "nvmlInit_v2", "driver is not loaded"]),
            (nowhere, ["NVML", "no GPU", "0000:ff:00.0"]),
        ] {
            let text = unknown.to_string();
            for word in words {
                assert!(text.contains(word), "{text}");
            }
        }
    }
}
