//! Why NVML does not know something.

/// Why NVML does not know something. Show it instead of a guess.
///
/// ```
/// use cuguard_nvml::{Nvml, NvmlError};
///
/// match Nvml::get() {
///     Ok(_) => println!("NVML is loaded"),
///     Err(NvmlError::LibraryMissing { reason }) => println!("no NVML: {reason}"),
///     Err(other) => println!("{other}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvmlError {
    /// NVML cannot be loaded.
    #[error(
        "NVML, libnvidia-ml.so.1, cannot be loaded: {reason}; it comes with the NVIDIA driver \
         (Debian: libnvidia-ml1, Ubuntu: libnvidia-compute-*, Fedora: nvidia-driver-libs or \
         xorg-x11-drv-nvidia-cuda-libs); a container needs the capability `utility` \
         (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
    )]
    LibraryMissing {
        /// The dynamic linker's message.
        reason: String,
    },

    /// A call of NVML failed.
    #[error("NVML: {function} failed: {reason}")]
    CallFailed {
        /// NVML's function.
        function: &'static str,
        /// NVML's message.
        reason: String,
    },

    /// No GPU has that PCI bus id, or this process may not see it.
    #[error("NVML knows no GPU {pci_bus_id:?}")]
    NoSuchGpu {
        /// The id, as it was given.
        pci_bus_id: String,
    },
}

#[cfg(test)]
mod tests {
    use super::NvmlError;

    #[test]
    fn messages_name_the_library_the_function_or_the_gpu() {
        let missing = NvmlError::LibraryMissing {
            reason: "no such file".to_owned(),
        };
        let failed = NvmlError::CallFailed {
            function: "nvmlInit_v2",
            reason: "driver is not loaded".to_owned(),
        };
        let nowhere = NvmlError::NoSuchGpu {
            pci_bus_id: "0000:ff:00.0".to_owned(),
        };
        for (error, words) in [
            (
                missing,
                ["libnvidia-ml.so.1", "no such file", "libnvidia-ml1"],
            ),
            (failed, ["NVML", "nvmlInit_v2", "driver is not loaded"]),
            (nowhere, ["NVML", "no GPU", "0000:ff:00.0"]),
        ] {
            let text = error.to_string();
            for word in words {
                assert!(text.contains(word), "{text}");
            }
        }
    }
}
