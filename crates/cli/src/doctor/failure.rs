//! No driver, no GPU, or not the requested one: what is missing, and what to do about it.

use std::borrow::Cow;

use cuguard::driver::sys::CUresult;

/// Why there is nothing to examine.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) surroundings: Surroundings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// No library is a driver; one line for each attempt.
    NoDriver { tried: Vec<String> },
    /// `CUGUARD_DRIVER` selects a driver that cannot be loaded.
    BadChoice { text: String },
    /// The simulated GPU does not start.
    Simulated { text: String },
    /// The driver is installed and does not start.
    Refused {
        function: &'static str,
        code: CUresult,
    },
    /// The driver is installed and has no GPU.
    NoGpu,
    /// The GPU of `--device` does not exist.
    NoSuchGpu { ordinal: u32, count: u32 },
}

/// What the system shows without a driver.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// Whether this looks like the inside of a container.
    pub(super) container: bool,
    /// How many NVIDIA GPUs are on the PCI bus; `None` where that cannot be read.
    pub(super) pci_gpus: Option<usize>,
    /// The version of the loaded kernel module.
    pub(super) kernel_driver: Option<String>,
    /// The value of `CUDA_VISIBLE_DEVICES`.
    pub(super) visible_devices: Option<String>,
}

const SIMULATED: &str =
    "without a GPU: CUGUARD_DRIVER=sim cuguard doctor examines the simulated one";
const CONTAINER: &str = "in a container: start it with access to the GPU (docker run --gpus all ...; \
                         the host needs the package nvidia-container-toolkit)";
const MACHINE: &str = "on the machine itself: install NVIDIA's driver (Ubuntu: ubuntu-drivers install; \
                       Debian: apt install nvidia-driver; Fedora: akmod-nvidia; or nvidia.com/drivers), \
                       restart, and check with nvidia-smi";
const PATH: &str =
    "a driver at an unusual path: set CUGUARD_DRIVER to the path of its libcuda.so.1";

/// A code with its name and its description.
pub(super) fn describe(code: CUresult) -> String {
    match code.text() {
        Some(text) => format!("{code}: {text}"),
        None => code.to_string(),
    }
}

impl Failure {
    /// The `code` of the JSON report.
    pub(super) fn code(&self) -> &'static str {
        match self.reason {
            Reason::NoDriver { .. } => "no_driver",
            Reason::BadChoice { .. } => "bad_choice",
            Reason::Simulated { .. } => "simulated",
            Reason::Refused { .. } => "refused",
            Reason::NoGpu => "no_gpu",
            Reason::NoSuchGpu { .. } => "no_such_gpu",
        }
    }

    /// Whether an option or a variable asks for something that does not exist.
    pub(super) fn is_bad_request(&self) -> bool {
        matches!(
            self.reason,
            Reason::BadChoice { .. } | Reason::Simulated { .. } | Reason::NoSuchGpu { .. }
        )
    }

    /// What is wrong, in one or more lines.
    pub(super) fn text(&self) -> String {
        match &self.reason {
            Reason::NoDriver { tried } => {
                let first = "no CUDA driver was found; tried".to_owned();
                let lines = [first].into_iter().chain(tried.clone());
                lines.collect::<Vec<_>>().join("\n    ")
            }
            Reason::BadChoice { text } => text.clone(),
            Reason::Simulated { text } => format!("the simulated GPU does not start: {text}"),
            Reason::Refused { function, code } => {
                let code = describe(*code);
                format!("the CUDA driver does not start: {function} failed with {code}")
            }
            Reason::NoGpu => "the CUDA driver has no GPU".to_owned(),
            Reason::NoSuchGpu { ordinal, count } => {
                format!("there is no GPU {ordinal}; CUDA has {count}, numbered from 0")
            }
        }
    }

    /// What the system shows that may help.
    pub(super) fn seen(&self) -> Vec<Cow<'static, str>> {
        if self.is_bad_request() {
            return Vec::new();
        }
        let mut seen: Vec<Cow<'_, str>> = Vec::new();
        match self.surroundings.pci_gpus {
            Some(0) => seen.push("no NVIDIA GPU is on the PCI bus".into()),
            Some(1) => seen.push("1 NVIDIA GPU is on the PCI bus".into()),
            Some(count) => seen.push(format!("{count} NVIDIA GPUs are on the PCI bus").into()),
            None => {}
        }
        seen.push(match &self.surroundings.kernel_driver {
            Some(version) => format!("the kernel has NVIDIA's driver {version} loaded").into(),
            None => "the kernel has no NVIDIA driver loaded".into(),
        });
        if self.surroundings.container {
            seen.push("this is a container".into());
        }
        seen
    }

    /// What to do about it, the likeliest first.
    pub(super) fn advice(&self) -> Vec<Cow<'static, str>> {
        let line = match &self.reason {
            Reason::NoDriver { .. } => {
                // Where the kernel module is loaded only the libraries are missing, as in a container
                // that was started without them.
                let loaded = self.surroundings.kernel_driver.is_some();
                let (first, second) = if self.surroundings.container || loaded {
                    (CONTAINER, MACHINE)
                } else {
                    (MACHINE, CONTAINER)
                };
                return [first, second, PATH, SIMULATED].map(Cow::from).into();
            }
            Reason::NoGpu
            | Reason::Refused {
                code: CUresult::NO_DEVICE,
                ..
            } => return self.how_to_see_a_gpu(),
            Reason::NoSuchGpu { .. } => return Vec::from_iter(self.visible_devices()),
            Reason::BadChoice { .. } => {
                "set CUGUARD_DRIVER to real, sim, auto or a path, or unset it"
            }
            Reason::Simulated { .. } => {
                "CUGUARD_SIM configures it, as in CUGUARD_SIM=memory=8GiB,devices=2"
            }
            Reason::Refused { code, .. } => match *code {
                CUresult::SYSTEM_NOT_READY => {
                    "the GPUs of this machine are connected by NVSwitch and need the Fabric Manager: \
                     systemctl start nvidia-fabricmanager, of the same version as the driver"
                }
                CUresult::SYSTEM_DRIVER_MISMATCH => {
                    "library and kernel module of the driver differ, as after an update: restart the \
                     machine, or reload the nvidia modules"
                }
                CUresult::COMPAT_NOT_SUPPORTED_ON_DEVICE => {
                    "a CUDA compatibility library does not support this GPU (cuda-compat, often in a \
                     container's LD_LIBRARY_PATH): remove it, or update the driver"
                }
                CUresult::UNKNOWN => {
                    "most often the module nvidia_uvm is not loaded (modprobe nvidia_uvm), \
                     /dev/nvidia-uvm is not in the container, or the machine woke from sleep: restart it"
                }
                _ => "the kernel log may say more: dmesg | grep -i nvrm",
            },
        };
        vec![line.into()]
    }

    fn how_to_see_a_gpu(&self) -> Vec<Cow<'static, str>> {
        let mut advice = Vec::from_iter(self.visible_devices());
        if self.surroundings.container {
            advice.push("start the container with the GPU: docker run --gpus all ...".into());
        }
        advice.push(Cow::from(if self.surroundings.kernel_driver.is_none() {
            "the kernel module is not loaded: modprobe nvidia; where that fails, dmesg says why (often \
             secure boot, or a kernel that is newer than the driver)"
        } else {
            "check that nvidia-smi lists the GPU, and the permissions of /dev/nvidia*"
        }));
        advice.push(SIMULATED.into());
        advice
    }

    fn visible_devices(&self) -> Option<Cow<'static, str>> {
        let value = self.surroundings.visible_devices.as_ref()?;
        Some(Cow::from(format!(
            "CUDA_VISIBLE_DEVICES is {value:?} and hides GPUs that it does not name: unset it"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: Reason) -> Failure {
        Failure {
            reason,
            surroundings: Surroundings::default(),
        }
    }

    fn no_driver() -> Failure {
        failure(Reason::NoDriver {
            tried: vec!["libcuda.so.1: no such file".to_owned()],
        })
    }

    #[test]
    fn without_a_driver_all_attempts_and_all_remedies_are_listed() {
        let failure = no_driver();
        assert!(failure.text().contains("libcuda.so.1: no such file"));
        let advice = failure.advice().join("\n");
        for word in [
            "--gpus all",
            "nvidia-container-toolkit",
            "apt install",
            "CUGUARD_DRIVER=sim",
        ] {
            assert!(advice.contains(word), "{word}: {advice}");
        }
    }

    #[test]
    fn the_likeliest_advice_comes_first() {
        let mut failure = no_driver();
        assert!(failure.advice()[0].starts_with("on the machine itself"));
        failure.surroundings.container = true;
        assert!(failure.advice()[0].starts_with("in a container"));
        failure.surroundings.container = false;
        failure.surroundings.kernel_driver = Some("580.1".to_owned());
        assert!(failure.advice()[0].starts_with("in a container"));
    }

    #[test]
    fn what_was_seen() {
        let mut failure = no_driver();
        failure.surroundings.pci_gpus = Some(2);
        failure.surroundings.kernel_driver = Some("580.1".to_owned());
        failure.surroundings.container = true;
        let seen = failure.seen().join("\n");
        for word in ["2 NVIDIA GPUs", "580.1", "container"] {
            assert!(seen.contains(word), "{seen}");
        }
    }

    #[test]
    fn every_code_has_advice() {
        for (code, word) in [
            (CUresult::NO_DEVICE, "modprobe nvidia"),
            (CUresult::SYSTEM_NOT_READY, "nvidia-fabricmanager"),
            (CUresult::SYSTEM_DRIVER_MISMATCH, "restart"),
            (CUresult::COMPAT_NOT_SUPPORTED_ON_DEVICE, "cuda-compat"),
            (CUresult::UNKNOWN, "nvidia_uvm"),
            (CUresult::INVALID_VALUE, "dmesg"),
        ] {
            let failure = failure(Reason::Refused {
                function: "cuInit",
                code,
            });
            let advice = failure.advice().join("\n");
            assert!(advice.contains(word), "{code}: {advice}");
            assert!(failure.text().contains("cuInit failed with CUDA_ERROR"));
        }
    }

    #[test]
    fn hidden_gpus_are_blamed_on_the_variable_that_hides_them() {
        let mut failure = failure(Reason::NoSuchGpu {
            ordinal: 3,
            count: 1,
        });
        assert_eq!(
            failure.text(),
            "there is no GPU 3; CUDA has 1, numbered from 0"
        );
        assert!(failure.advice().is_empty());
        failure.surroundings.visible_devices = Some("7".to_owned());
        assert!(failure.advice()[0].contains("CUDA_VISIBLE_DEVICES is \"7\""));
    }
}
