//! All calls of NVRTC, on a library that imitates it.
//!
//! The library is a little C. Each case runs in a process of its own whose dynamic linker finds that library first, or not
//! at all. Without a C compiler the tests print that they were not run.

use std::path::Path;
use std::process::Command;

use cuguard_nvrtc::{
    Code, Error, Options, compile, compile_for_device, compile_to_cubin, supported_archs, version,
};

use cuguard_testing::Folder;

/// Set in the processes that have the library.
const INSIDE: &str = "CUGUARD_PRETEND_NVRTC";

fn folder(test: &str) -> Folder {
    let folder = Folder::new(&format!("nvrtc-{test}"));
    std::fs::create_dir_all(folder.join("lib64")).expect("the folder can be made");
    folder
}

/// Compiles the library to this file; false without a C compiler.
fn library(file: &Path) -> bool {
    let options = ["-Wall", "-Werror", "-shared", "-fPIC"];
    // Not from the repository: this program may be run on another machine.
    cuguard_testing::compile(file, include_str!("pretend_nvrtc.c"), options).is_some()
}

/// Runs this test again in a process with these variables, in which `inside` runs.
fn child(test: &str, variables: &[(&str, &Path)]) {
    let output = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", test, "--nocapture"])
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("CUDA_HOME")
        .env_remove("CUDA_PATH")
        .env(INSIDE, "1")
        .envs(variables.iter().copied())
        .output()
        .expect("this program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Runs `inside` in a process that has the library; `pretend` selects what fails in it.
fn with_nvrtc(test: &str, pretend: &str, inside: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let folder = folder(test);
    if library(&folder.join("libnvrtc.so.13")) {
        let variables = [
            ("LD_LIBRARY_PATH", folder.path()),
            ("PRETEND", Path::new(pretend)),
        ];
        child(test, &variables);
    }
}

#[test]
fn options_and_headers_reach_the_compiler() {
    with_nvrtc("options_and_headers_reach_the_compiler", "", || {
        let options = Options::new()
            .name("shape.cu")
            .arch(9, 0)
            .include_dir("/some/folder")
            .define("FAST")
            .define_value("BLOCK", "256")
            .header("shape.h", "struct Shape;")
            .option("--use_fast_math")
            .name_expression("scale<float>");
        let ptx = compile("the source", &options).expect("it compiles");
        let expected = "source the source\nname shape.cu\nheader shape.h = struct Shape;\n\
                        option --gpu-architecture=compute_90\noption --include-path=/some/folder\n\
                        option --define-macro=FAST\noption --define-macro=BLOCK=256\n\
                        option --use_fast_math\n";
        assert_eq!(ptx.as_str(), expected);
        assert_eq!(ptx.lowered_name("scale<float>"), Some("_Z5scaleIfEvPT_"));
        assert_eq!(ptx.lowered_name("scale<int>"), None);
        assert_eq!(ptx.log(), "");
        let ptx = compile("warn", &Options::new()).expect("it compiles");
        assert_eq!(ptx.log(), "source.cu(1): warning: unused");
        assert_eq!(version(), Ok((12, 9)));
        assert_eq!(supported_archs(), Ok(vec![(7, 5), (9, 0), (12, 0)]));
    });
}

/// A path is passed to NVRTC byte by byte, also one that is not UTF-8.
#[test]
fn a_folder_that_is_no_text_reaches_the_compiler() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    const TEST: &str = "a_folder_that_is_no_text_reaches_the_compiler";
    with_nvrtc(TEST, "", || {
        let folder = OsStr::from_bytes(b"/caf\xe9/\xff");
        let ptx = compile("x", &Options::new().include_dir(folder)).expect("it compiles");
        let expected = "source x\nname default_program\noption --include-path=/caf<e9>/<ff>\n";
        assert_eq!(ptx.as_str(), expected);
        let error = compile("x", &Options::new().include_dir("a\0b")).unwrap_err();
        assert_eq!(error, Error::InteriorNul { what: "an option" });
    });
}

#[test]
fn code_for_a_device_is_a_cubin_or_older_ptx() {
    const TEST: &str = "code_for_a_device_is_a_cubin_or_older_ptx";
    with_nvrtc(TEST, "", || {
        let arch = |code: &Code| match code {
            Code::Cubin(_) => "sm".to_owned(),
            Code::Ptx(ptx) => {
                let line = ptx.as_str().lines().find(|line| line.contains("arch"));
                line.unwrap_or("no architecture").to_owned()
            }
        };
        let compile = |device, options: &Options| compile_for_device("x", options, device);
        let options = Options::new();
        let code = compile((9, 0), &options).expect("it is supported");
        assert_eq!(arch(&code), "sm");
        // The driver compiles PTX for a device that is newer than NVRTC, or between two that it supports.
        let code = compile((13, 0), &options).expect("older PTX");
        assert_eq!(arch(&code), "option --gpu-architecture=compute_120");
        let code = compile((8, 6), &options).expect("older PTX");
        assert_eq!(arch(&code), "option --gpu-architecture=compute_75");
        // No code runs on a device that NVRTC no longer supports.
        let error = compile((5, 2), &options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "NVRTC: it compiles for no device as old as compute capability 5.2, only for 7.5, 9.0, 12.0; \
             use the NVRTC of an older CUDA toolkit"
        );
        // An architecture that was asked for is compiled for, or it is an error.
        for device in [(9, 0), (9, 1)] {
            let code = compile(device, &options.clone().arch(9, 0)).expect("it runs there");
            assert_eq!(arch(&code), "sm");
        }
        let error = compile((8, 9), &options.clone().arch(8, 6)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "NVRTC: it does not compile for compute capability 8.6; it does for 7.5, 9.0, 12.0"
        );
        // Code for another device: older, newer, and of an earlier minor version.
        for (device, asked) in [((9, 0), (7, 5)), ((5, 2), (9, 0)), ((7, 0), (7, 5))] {
            let error = compile(device, &options.clone().arch(asked.0, asked.1)).unwrap_err();
            let other = Error::OtherDevice {
                arch: asked,
                device,
            };
            assert_eq!(error, other);
        }
        let error = compile((9, 0), &options.arch(7, 5)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "NVRTC: code for compute capability 7.5 does not run on a device of 9.0: only on devices of 7.5 and later \
             minor versions; leave Options::arch out, or compile to PTX"
        );
    });
}

#[test]
fn the_log_is_in_the_error() {
    with_nvrtc("the_log_is_in_the_error", "", || {
        let error = compile("broken", &Options::new().name("my.cu")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "NVRTC: my.cu does not compile: NVRTC_ERROR_COMPILATION (6)\n\
             source.cu(1): error: identifier \"broken\" is undefined"
        );
        let error = compile("broken unknown", &Options::new()).unwrap_err();
        assert!(error.to_string().contains("error 77"), "{error}");
        let error = compile("a\0b", &Options::new()).unwrap_err();
        assert_eq!(error, Error::InteriorNul { what: "the source" });
        let error = compile("", &Options::new().name_expression("")).unwrap_err();
        assert!(
            matches!(
                error,
                Error::CallFailed {
                    function: "nvrtcAddNameExpression",
                    ..
                }
            ),
            "{error}"
        );
    });
}

#[test]
fn a_cubin_is_bytes_and_needs_an_architecture() {
    with_nvrtc("a_cubin_is_bytes_and_needs_an_architecture", "", || {
        let cubin = compile_to_cubin("x", &Options::new().arch(9, 0)).expect("it compiles");
        assert_eq!(cubin.as_bytes(), b"\x7fELF\0x");
        let error = compile_to_cubin("x", &Options::new()).unwrap_err();
        assert!(error.to_string().contains("Options::arch"), "{error}");
    });
}

#[test]
fn a_program_that_cannot_be_created_is_an_error() {
    const TEST: &str = "a_program_that_cannot_be_created_is_an_error";
    with_nvrtc(TEST, "create", || {
        let error = compile("x", &Options::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "NVRTC: nvrtcCreateProgram failed: NVRTC_ERROR_INVALID_INPUT (3)"
        );
    });
}

#[test]
fn the_folder_of_the_toolkit_is_searched() {
    const TEST: &str = "the_folder_of_the_toolkit_is_searched";
    if std::env::var_os(INSIDE).is_some() {
        // A machine with NVRTC in the default folders finds that one first.
        assert!(version().is_ok());
        return;
    }
    let folder = folder(TEST);
    if library(&folder.join("lib64/libnvrtc.so.12")) {
        child(TEST, &[("CUDA_HOME", &folder)]);
    }
}

#[test]
fn a_library_that_is_no_nvrtc_or_absent_is_an_error() {
    const TEST: &str = "a_library_that_is_no_nvrtc_or_absent_is_an_error";
    if std::env::var_os(INSIDE).is_some() {
        match version() {
            Ok(_) => {
                cuguard_testing::not_run(cuguard_testing::Requirement::NoNvrtc, TEST);
            }
            Err(Error::LibraryMissing { tried }) => {
                let text = tried.join("\n");
                assert!(text.contains("libnvrtc.so.13: "), "{text}");
                assert!(
                    text.contains("invalid ELF header") || text.contains("file too short"),
                    "{text}"
                );
                let text = Error::LibraryMissing { tried }.to_string();
                assert!(
                    text.contains("CUDA_HOME") && text.contains("nvidia-cuda-nvrtc"),
                    "{text}"
                );
            }
            Err(error) => panic!("{error}"),
        }
        return;
    }
    let folder = folder(TEST);
    let file = folder.join("lib64/libnvrtc.so.11.2");
    std::fs::write(
        file,
        "no library, but long enough to have a header of sixty-four bytes or so",
    )
    .expect("the file can be written");
    child(TEST, &[("CUDA_PATH", &folder)]);
}
