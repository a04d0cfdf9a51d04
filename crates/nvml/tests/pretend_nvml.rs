//! All calls of NVML, on a library that imitates it.
//!
//! The library is a little C. Each case runs in a process of its own whose dynamic linker finds that library
//! first. Without a C compiler the tests print that they were not run.

use std::process::Command;

use cuguard_nvml::{ComputeMode, Memory, Nvml, NvmlError, ProcessKind};

use cuguard_testing::Folder;

/// Set in the processes that have the library.
const INSIDE: &str = "CUGUARD_PRETEND_NVML";

/// The folder with the library in it; `None` without a C compiler.
fn library(test: &str) -> Option<Folder> {
    let folder = Folder::new(&format!("nvml-{test}"));
    let options = ["-Wall", "-Werror", "-shared", "-fPIC"];
    let library = folder.join("libnvidia-ml.so.1");
    // Not from the repository: this program may be taken to another nvml.
    cuguard_testing::compile(&library, include_str!("pretend_nvml.c"), options)?;
    Some(folder)
}

/// Runs `inside` in a process that has the library; `pretend` selects what fails in it.
fn with_nvml(test: &str, pretend: &str, inside: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let Some(folder) = library(test) else { return };
    let output = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", &folder)
        .env("PRETEND", pretend)
        .env(INSIDE, "1")
        .output()
        .expect("this program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_gpu_is_described() {
    with_nvml("a_gpu_is_described", "", || {
        let nvml = Nvml::get().expect("the library is there");
        assert_eq!(nvml.driver_version(), Some("123.45.06"));
        let gpus = nvml.gpus().expect("two GPUs");
        assert_eq!(gpus.len(), 2);
        let gpu = &gpus[0];
        assert_eq!((gpu.index, gpu.pci_bus_id.as_str()), (0, "0000:01:00.0"));
        assert_eq!(gpu.name.as_deref(), Some("Pretended GPU"));
        assert_eq!(gpu.uuid.as_deref(), Some("GPU-0"));
        assert_eq!(gpu.driver_version.as_deref(), Some("123.45.06"));
        let memory = Memory {
            total: 1000,
            free: 300,
            reserved: Some(100),
        };
        assert_eq!(gpu.memory, Some(memory));
        assert_eq!((gpu.ecc, gpu.mig), (Some(true), Some(false)));
        assert_eq!(nvml.is_mig_enabled(&gpu.pci_bus_id), Ok(false));
        assert_eq!(gpu.compute_mode, Some(ComputeMode::Default));
        assert_eq!(gpu.persistence, Some(true));
        // The library has no such function.
        assert_eq!(gpu.display, None);
        assert_eq!(gpu.unexplained(), Some(100));
        // The other one knows less.
        let gpu = &gpus[1];
        assert_eq!((gpu.ecc, gpu.mig), (None, None));
        assert_eq!(gpu.compute_mode, Some(ComputeMode::Exclusive));
        assert_eq!(gpu.unexplained(), None);
    });
}

#[test]
fn processes_are_one_list() {
    with_nvml("processes_are_one_list", "", || {
        let nvml = Nvml::get().expect("the library is there");
        let processes = nvml.processes("0000:01:00.0").expect("a list");
        let [own, far, nobody] = &processes[..] else {
            panic!("{processes:?}")
        };
        assert_eq!((own.pid, own.bytes), (std::process::id(), Some(250)));
        assert_eq!(own.kinds, [ProcessKind::Compute, ProcessKind::Graphics]);
        assert!(own.own && own.visible);
        assert!(
            own.command
                .as_ref()
                .is_some_and(|command| command.contains("--exact"))
        );
        assert_eq!(
            (far.bytes, far.visible, &far.command),
            (Some(200), false, &None)
        );
        assert_eq!(
            (nobody.pid, nobody.bytes, nobody.visible),
            (0, Some(50), false)
        );
        // On the other one the bytes of the far one are not known.
        let processes = nvml.processes("0000:c1:00.0").expect("a list");
        assert_eq!(processes.last().map(|last| last.bytes), Some(None));
    });
}

#[test]
fn a_gpu_that_is_partitioned() {
    with_nvml("a_gpu_that_is_partitioned", "instances", || {
        let nvml = Nvml::get().expect("the library is there");
        assert_eq!(nvml.is_mig_enabled("0000:01:00.0"), Ok(true));
        // It does not support the query.
        assert_eq!(nvml.is_mig_enabled("0000:c1:00.0"), Ok(false));
        assert!(nvml.is_mig_enabled("nowhere").is_err());
    });
}

#[test]
fn a_gpu_is_found_by_its_pci_bus_id() {
    with_nvml("a_gpu_is_found_by_its_pci_bus_id", "", || {
        let nvml = Nvml::open().expect("the library is there");
        for id in ["00000000:C1:00.0", "0000:c1:00.0", "c1:00.0"] {
            assert_eq!(nvml.gpu_by_pci(id).expect("it is there").index, 1);
            assert_eq!(nvml.memory(id).expect("it is there").used(), 600);
        }
        for id in ["0000:02:00.0", "nowhere", ""] {
            let error = nvml.gpu_by_pci(id).unwrap_err();
            let pci_bus_id = id.to_owned();
            assert_eq!(error, NvmlError::NoSuchGpu { pci_bus_id });
        }
    });
}

#[test]
fn a_driver_that_is_not_loaded() {
    with_nvml("a_driver_that_is_not_loaded", "no driver", || {
        let error = Nvml::get().expect_err("it fails");
        assert!(matches!(
            error,
            NvmlError::CallFailed {
                function: "nvmlInit_v2",
                ..
            }
        ));
        assert!(
            error.to_string().contains("driver is not loaded"),
            "{error}"
        );
    });
}

#[test]
fn lists_that_fail_are_not_empty_lists() {
    with_nvml("lists_that_fail_are_not_empty_lists", "no lists", || {
        let nvml = Nvml::get().expect("the library is there");
        let error = nvml.processes("0000:01:00.0").expect_err("it fails");
        assert!(error.to_string().contains("permission"), "{error}");
        let gpu = nvml.gpu_by_pci("0000:01:00.0").expect("the rest is known");
        assert_eq!((gpu.processes.is_none(), gpu.unexplained()), (true, None));
    });
}

/// On the path of a failed allocation it is called again and again.
#[test]
fn queries_can_be_repeated() {
    with_nvml("queries_can_be_repeated", "", || {
        let nvml = Nvml::get().expect("the library is there");
        for _ in 0..20 {
            assert!(nvml.processes("0000:01:00.0").is_ok());
        }
    });
}
