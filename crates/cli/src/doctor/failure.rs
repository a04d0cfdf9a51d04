//! No driver, no GPU, or not the one that was asked for: what is missing, and how to get it.

use std::fmt::Write;

/// The driver's codes that have words of their own here.
pub(super) mod codes {
    pub(in super::super) const OUT_OF_MEMORY: u32 = 2;
    pub(in super::super) const DEVICE_UNAVAILABLE: u32 = 46;
    pub(in super::super) const NO_DEVICE: u32 = 100;
    pub(in super::super) const SYSTEM_NOT_READY: u32 = 802;
    pub(in super::super) const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    pub(in super::super) const COMPAT_NOT_SUPPORTED: u32 = 804;
    pub(in super::super) const UNKNOWN: u32 = 999;
}

/// Why there is nothing to examine.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) surroundings: Surroundings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// No library is a driver; each attempt in a line.
    NoDriver { tried: Vec<String> },
    /// A driver was chosen that cannot be had.
    BadChoice { words: String },
    /// The simulated GPU does not start.
    Simulated { words: String },
    /// The driver is there and refuses to start.
    Refused {
        function: &'static str,
        code: u32,
        words: String,
    },
    /// The driver is there and has no GPU.
    NoGpu,
    /// The GPU that was asked for does not exist.
    NoSuchGpu { ordinal: u32, count: u32 },
}

/// What can be seen of the machine without a driver.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// Whether this looks like the inside of a container.
    pub(super) container: bool,
    /// How many NVIDIA GPUs are on the PCI bus; `None` where the system does not tell.
    pub(super) pci_gpus: Option<usize>,
    /// The version of the driver that the kernel has loaded.
    pub(super) kernel_driver: Option<String>,
    /// What `CUDA_VISIBLE_DEVICES` is set to.
    pub(super) visible_devices: Option<String>,
}

impl Failure {
    /// A word for programs.
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

    /// Whether it was asked for what does not exist, and the machine is not to blame.
    pub(super) fn is_bad_request(&self) -> bool {
        matches!(
            self.reason,
            Reason::BadChoice { .. } | Reason::Simulated { .. } | Reason::NoSuchGpu { .. }
        )
    }

    /// What is wrong, in one or more lines.
    pub(super) fn words(&self) -> String {
        match &self.reason {
            Reason::NoDriver { tried } => {
                let mut text = String::from("no CUDA driver was found; tried");
                for attempt in tried {
                    let _ = write!(text, "\n    {attempt}");
                }
                text
            }
            Reason::BadChoice { words } => words.clone(),
            Reason::Simulated { words } => format!("the simulated GPU does not start: {words}"),
            Reason::Refused {
                function, words, ..
            } => format!("the CUDA driver does not start: {function} answered {words}"),
            Reason::NoGpu => "the CUDA driver has no GPU".to_owned(),
            Reason::NoSuchGpu { ordinal, count } => {
                format!("there is no GPU {ordinal}; CUDA has {count}, numbered from 0")
            }
        }
    }

    /// What else was seen that helps.
    pub(super) fn seen(&self) -> Vec<String> {
        let mut seen = Vec::new();
        if self.is_bad_request() {
            return seen;
        }
        match self.surroundings.pci_gpus {
            Some(0) => seen.push("no NVIDIA GPU is on the PCI bus".to_owned()),
            Some(1) => seen.push("1 NVIDIA GPU is on the PCI bus".to_owned()),
            Some(count) => seen.push(format!("{count} NVIDIA GPUs are on the PCI bus")),
            None => {}
        }
        seen.push(match &self.surroundings.kernel_driver {
            Some(version) => format!("the kernel has NVIDIA's driver {version} loaded"),
            None => "the kernel has no NVIDIA driver loaded".to_owned(),
        });
        if self.surroundings.container {
            seen.push("this is a container".to_owned());
        }
        seen
    }

    /// What to do about it, the likeliest first.
    pub(super) fn advice(&self) -> Vec<String> {
        const SIMULATED: &str =
            "without a GPU: CUGUARD_DRIVER=sim cuguard doctor examines the simulated one";
        let mut advice: Vec<String> = Vec::new();
        match &self.reason {
            Reason::NoDriver { .. } => {
                advice.extend(self.how_to_get_a_driver());
                advice.push(SIMULATED.to_owned());
            }
            Reason::BadChoice { .. } => {
                advice.push("set CUGUARD_DRIVER to real, sim, auto or a path, or unset it".to_owned());
            }
            Reason::Simulated { .. } => {
                advice.push("CUGUARD_SIM describes it, as in CUGUARD_SIM=memory=8GiB,devices=2".to_owned());
            }
            Reason::NoGpu => {
                advice.extend(self.how_to_see_a_gpu());
                advice.push(SIMULATED.to_owned());
            }
            Reason::NoSuchGpu { .. } => advice.extend(self.visible_devices()),
            Reason::Refused { code, .. } => match *code {
                codes::NO_DEVICE => {
                    advice.extend(self.how_to_see_a_gpu());
                    advice.push(SIMULATED.to_owned());
                }
                codes::SYSTEM_NOT_READY => advice.push(
                    "the GPUs of this machine are joined by NVSwitch and wait for the Fabric Manager: \
                     systemctl start nvidia-fabricmanager, of the same version as the driver"
                        .to_owned(),
                ),
                codes::SYSTEM_DRIVER_MISMATCH => advice.push(
                    "library and kernel module of the driver differ, as after an update: restart the \
                     machine, or unload and load the nvidia modules"
                        .to_owned(),
                ),
                codes::COMPAT_NOT_SUPPORTED => advice.push(
                    "a CUDA compatibility library is in the way (cuda-compat, often in a container's \
                     LD_LIBRARY_PATH): remove it, or update the driver"
                        .to_owned(),
                ),
                codes::UNKNOWN => advice.push(
                    "most often the module nvidia_uvm is not loaded (modprobe nvidia_uvm), /dev/nvidia-uvm \
                     is not in the container, or the machine woke from sleep: restart it"
                        .to_owned(),
                ),
                _ => advice.push("the kernel's messages may say more: dmesg | grep -i nvrm".to_owned()),
            },
        }
        advice
    }

    fn how_to_get_a_driver(&self) -> Vec<String> {
        let container = "in a container: start it with access to the GPU (docker run --gpus all ...; \
                         the host needs the package nvidia-container-toolkit)";
        let machine = "on the machine itself: install NVIDIA's driver (Ubuntu: ubuntu-drivers install; \
                       Debian: apt install nvidia-driver; Fedora: akmod-nvidia; or nvidia.com/drivers), \
                       restart, and check with nvidia-smi";
        let path =
            "a driver in an unusual place: set CUGUARD_DRIVER to the path of its libcuda.so.1";
        // A kernel that has the driver needs only the libraries; so it is where a container was
        // started without them.
        let loaded = self.surroundings.kernel_driver.is_some();
        let mut advice = if self.surroundings.container || loaded {
            vec![container, machine]
        } else {
            vec![machine, container]
        };
        advice.push(path);
        advice.into_iter().map(str::to_owned).collect()
    }

    fn how_to_see_a_gpu(&self) -> Vec<String> {
        let mut advice = Vec::from_iter(self.visible_devices());
        if self.surroundings.container {
            advice.push("start the container with the GPU: docker run --gpus all ...".to_owned());
        }
        if self.surroundings.kernel_driver.is_none() {
            advice.push(
                "the kernel's part of the driver is not loaded: modprobe nvidia; where that fails, dmesg \
                 says why (often secure boot, or a kernel that is newer than the driver)"
                    .to_owned(),
            );
        } else {
            advice.push(
                "check that nvidia-smi lists the GPU, and who may open /dev/nvidia*".to_owned(),
            );
        }
        advice
    }

    fn visible_devices(&self) -> Option<String> {
        let value = self.surroundings.visible_devices.as_ref()?;
        Some(format!(
            "CUDA_VISIBLE_DEVICES is {value:?} and hides GPUs that it does not name: unset it"
        ))
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
    fn without_a_driver_all_attempts_and_all_ways_are_told() {
        let failure = no_driver();
        assert!(failure.words().contains("libcuda.so.1: no such file"));
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
            (codes::NO_DEVICE, "modprobe nvidia"),
            (codes::SYSTEM_NOT_READY, "nvidia-fabricmanager"),
            (codes::SYSTEM_DRIVER_MISMATCH, "restart"),
            (codes::COMPAT_NOT_SUPPORTED, "cuda-compat"),
            (codes::UNKNOWN, "nvidia_uvm"),
            (1, "dmesg"),
        ] {
            let failure = failure(Reason::Refused {
                function: "cuInit",
                code,
                words: "CUDA_ERROR".to_owned(),
            });
            let advice = failure.advice().join("\n");
            assert!(advice.contains(word), "{code}: {advice}");
            assert!(failure.words().contains("cuInit answered CUDA_ERROR"));
        }
    }

    #[test]
    fn hidden_gpus_are_blamed_on_the_variable_that_hides_them() {
        let mut failure = failure(Reason::NoSuchGpu {
            ordinal: 3,
            count: 1,
        });
        assert_eq!(
            failure.words(),
            "there is no GPU 3; CUDA has 1, numbered from 0"
        );
        assert!(failure.advice().is_empty());
        failure.surroundings.visible_devices = Some("7".to_owned());
        assert!(failure.advice()[0].contains("CUDA_VISIBLE_DEVICES is \"7\""));
    }
}
