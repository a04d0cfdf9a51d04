//! How a driver is selected and loaded, in real child processes: a process loads one driver and keeps it.
//!
//! A child is this same test program; an environment variable names the function in `child/mod.rs` to run.
//! Libraries that imitate drivers are compiled with the C compiler; on a machine without one, a test that
//! needs it prints that it was not run.

mod child;

use std::ffi::OsString;

use crate::support::{Child, compile, compile_with, installed_driver};

#[test]
fn a_missing_file_is_named() {
    let child = Child::new("load").driver("/nonexistent/libcuda.so.1").run();
    child.failed_with("cannot open the driver library /nonexistent/libcuda.so.1: No such file");
}

#[test]
fn a_folder_is_named() {
    let child = Child::new("load").driver("/usr/").run();
    child.failed_with("cannot open the driver library /usr/: Is a directory");
}

#[test]
fn a_library_that_is_no_driver_is_named() {
    let Some(library) = compile("not_a_driver", "int other(void) { return 42; }") else {
        return;
    };
    let child = Child::new("load").driver(&library).run();
    child.failed_with(&format!(
        "{} is not a CUDA driver: it has no function cuInit",
        library.display()
    ));
}

#[test]
fn a_library_that_is_only_linked_against_a_driver_is_none() {
    let Some(driver) = compile("linked/driver.so", "int cuInit(unsigned f) { return 0; }") else {
        return;
    };
    // It is found in the same folder when the other is loaded.
    let folder = driver.parent().expect("a file lies in a folder");
    let mut search = OsString::from("-Wl,-rpath,");
    search.push(folder);
    let arguments = [
        "-Wl,--no-as-needed".as_ref(),
        driver.as_os_str(),
        search.as_os_str(),
    ];
    let source = "int cuInit(unsigned); int other(void) { return cuInit(0); }";
    let Some(library) = compile_with("linked/against.so", source, &arguments) else {
        return;
    };
    let child = Child::new("load").driver(&library).run();
    child.failed_with(&format!(
        "{} is not a CUDA driver: it has no function cuInit",
        library.display()
    ));
    let child = Child::new("load").driver(&driver).run();
    child.succeeded_with(&format!("loaded: CUDA driver at {}", driver.display()));
}

/// Without a C compiler a test that needs one prints so.
#[test]
fn a_test_that_cannot_run_says_so() {
    let output = cuguard_testing::test_command("a_library_that_is_no_driver_is_named")
        .env("CC", "/nonexistent/cc")
        .env_remove("CUGUARD_REQUIRE")
        .output()
        .expect("a child can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("needs a C compiler"),
        "{stderr:?} says nothing"
    );
}

#[test]
fn an_unknown_word_is_named_with_the_words_that_are_known() {
    let child = Child::new("load").driver("cuda").run();
    child.failed_with(
        "CUGUARD_DRIVER: `cuda` names no driver; use real, sim, auto, or the path of a library",
    );
}

#[test]
fn what_is_not_utf8_is_no_panic() {
    use std::os::unix::ffi::OsStrExt;
    let word = std::ffi::OsStr::from_bytes(b"s\xffm");
    let child = Child::new("load").driver(word).run();
    child.failed_with("CUGUARD_DRIVER: `s\u{fffd}m` names no driver");
    let path = std::ffi::OsStr::from_bytes(b"/nonexistent/\xff.so");
    let child = Child::new("load").driver(path).run();
    child.failed_with("cannot open the driver library /nonexistent/\u{fffd}.so: No such file");
}

#[test]
fn before_a_driver_is_loaded_functions_return_not_initialized() {
    let child = Child::new("before_init").driver("/nonexistent/x.so").run();
    child.succeeded_with("all as it should be");
}

#[test]
fn the_program_wins_over_the_environment() {
    let child = Child::new("select_wins").driver("cuda").run();
    child.succeeded_with("cannot open the driver library /nonexistent/chosen.so");
}

#[test]
fn after_a_failed_load_another_driver_can_be_chosen() {
    let Some(library) = compile("second_choice", "int cuInit(unsigned f) { return 0; }") else {
        return;
    };
    let child = Child::new("select_again")
        .driver("/nonexistent/first.so")
        .argument(&library)
        .run();
    child.succeeded_with("cannot open the driver library /nonexistent/first.so");
    child.succeeded_with(&format!("loaded: CUDA driver at {}", library.display()));
}

#[test]
fn choosing_after_a_driver_was_loaded_is_an_error_that_names_it() {
    let Some(library) = compile("loaded_first", "int cuInit(unsigned f) { return 0; }") else {
        return;
    };
    let child = Child::new("select_late").driver(&library).run();
    child.succeeded_with(&format!(
        "another driver is loaded already: CUDA driver at {}",
        library.display()
    ));
}

/// Each test of a program may begin with it, whichever runs first.
#[test]
fn choosing_the_driver_that_is_loaded_is_no_error() {
    if let Some(library) = compile("loaded_same", "int cuInit(unsigned f) { return 0; }") {
        let child = Child::new("select_same").argument(&library).run();
        child.succeeded_with("all as it should be");
    }
    if cfg!(feature = "sim") {
        let child = Child::new("select_same").run();
        child.succeeded_with("all as it should be");
        let child = Child::new("select_as_environment").driver("sim").run();
        child.succeeded_with("all as it should be");
    }
}

#[test]
fn a_function_that_the_driver_lacks_returns_not_found() {
    let Some(library) = compile("only_init", "int cuInit(unsigned f) { return f ? 1 : 0; }") else {
        return;
    };
    let child = Child::new("only_init").driver(&library).run();
    child.succeeded_with("all as it should be");
}

#[test]
fn a_function_that_the_driver_lacks_is_logged_once_with_the_version_that_has_it() {
    let source = "
        int cuInit(unsigned f) { return 0; }
        int cuDriverGetVersion(int *v) { *v = 11040; return 0; }";
    let Some(library) = compile("old_driver", source) else {
        return;
    };
    let child = Child::new("missing").driver(&library).run();
    child.succeeded_with("all as it should be");
    let lines = [
        "WARN: cuguard: the driver (CUDA 11.4) has no cuCtxCreate_v4: it needs a driver for CUDA 12.5 or newer; \
         the call fails with CUDA_ERROR_NOT_FOUND",
        "WARN: cuguard: the driver (CUDA 11.4) has no cuCtxSynchronize: other drivers have it since CUDA 2.0; \
         the call fails with CUDA_ERROR_NOT_FOUND",
    ];
    assert_eq!(child.lines_of_stdout("WARN: "), lines, "{child:#?}");
}

/// The version in the line is asked of the driver: a function that the program did not call.
#[test]
fn a_driver_without_a_version_is_logged_without_one() {
    let Some(library) = compile("versionless", "int cuInit(unsigned f) { return 0; }") else {
        return;
    };
    let child = Child::new("missing").driver(&library).run();
    child.succeeded_with("all as it should be");
    let lines = child.lines_of_stdout("WARN: ");
    assert_eq!(lines.len(), 2, "{child:#?}");
    assert!(lines[0].starts_with("WARN: cuguard: the driver has no cuCtxCreate_v4: "));
}

#[test]
fn arguments_reach_the_driver_and_its_code_comes_back() {
    let source = "
        typedef unsigned long u64;
        typedef unsigned u32;
        int cuInit(u32 f) { return 0; }
        /* Eleven arguments, some of them on the stack; the code depends on all. */
        int cuLaunchKernel(u64 f, u32 a, u32 b, u32 c, u32 d, u32 e, u32 g, u32 h, u64 s,
                           void **p, void **x) {
            return f == 1 && a == 2 && b == 3 && c == 4 && d == 5 && e == 6 && g == 7 && h == 8
                && s == 9 && p == (void **)10 && x == (void **)11 ? 719 : 1;
        }
        int cuMemGetInfo_v2(u64 *free, u64 *total) { *free = 5; *total = 7; return 0; }";
    let Some(library) = compile("arguments", source) else {
        return;
    };
    let child = Child::new("arguments").driver(&library).run();
    child.succeeded_with("all as it should be");
}

#[test]
fn modules_and_launches_reach_the_driver_through_result() {
    let source = r#"
        #include <string.h>
        typedef unsigned long u64;
        typedef unsigned u32;
        int cuInit(u32 f) { return 0; }
        int cuModuleLoadDataEx(u64 *m, const char *image, u32 n, u32 *options, void **values) {
            int options_are_right = n == 2 && options[0] == 5 && options[1] == 6;
            if (!options_are_right || values[1] != (void *)64) return 1;
            if (!strcmp(image, "bad")) { strcpy(values[0], "line 1: bad"); return 218; }
            *m = 7; return 0;
        }
        int cuModuleGetFunction(u64 *f, u64 m, const char *name) {
            if (strcmp(name, "saxpy")) return 500;
            *f = 8; return m == 7 ? 0 : 1;
        }
        int cuModuleGetGlobal_v2(u64 *address, u64 *bytes, u64 m, const char *name) {
            *address = 4096; *bytes = 12; return m == 7 && !strcmp(name, "table") ? 0 : 1;
        }
        int cuLaunchKernel(u64 f, u32 a, u32 b, u32 c, u32 d, u32 e, u32 g, u32 h, u64 s,
                           void **p, void **x) {
            return f == 8 && a == 2 && b == 3 && c == 4 && d == 5 && e == 6 && g == 7 && h == 9
                && s == 1 && *(int *)p[0] == 10 && *(int *)p[1] == 11 && !x ? 0 : 1;
        }
        int cuModuleUnload(u64 m) { return m == 7 ? 0 : 1; }"#;
    let Some(library) = compile("modules", source) else {
        return;
    };
    let child = Child::new("modules").driver(&library).run();
    child.succeeded_with("all as it should be");
}

#[test]
fn threads_that_race_to_load_get_one_driver_and_never_a_half_filled_table() {
    // A driver that is slow to open, so that the others arrive while it is loading.
    let source = "
        #include <unistd.h>
        static int opened;
        __attribute__((constructor)) static void open_(void) { opened++; usleep(100000); }
        int cuInit(unsigned f) { return opened == 1 ? 0 : 999; }
        int cuProfilerStop(void) { return 0; }";
    let Some(library) = compile("slow", source) else {
        return;
    };
    let child = Child::new("race").driver(&library).run();
    child.succeeded_with("all as it should be");
}

#[test]
fn the_version_is_told_before_cu_init() {
    let source = "
        int cuInit(unsigned f) { return 0; }
        int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
        int cuGetProcAddress(const char *n, void **o, int v, unsigned long f) {
            *o = (void *)cuInit; return f == 3 && v == 11030 ? 0 : 1;
        }";
    let Some(library) = compile("version", source) else {
        return;
    };
    for child in ["version", "proc_address", "driver_version"] {
        let child = Child::new(child).driver(&library).run();
        child.succeeded_with("all as it should be");
    }
}

#[test]
fn the_drivers_own_words_are_used_once_it_is_loaded() {
    let source = r#"
        int cuInit(unsigned f) { return 100; }
        int cuGetErrorString(int c, const char **t) { *t = "words of its own"; return 0; }"#;
    let Some(library) = compile("words", source) else {
        return;
    };
    let child = Child::new("cust").driver(&library).run();
    child.failed_with("error: \"words of its own\"");
}

#[test]
fn a_cust_program_prints_the_reason() {
    let child = Child::new("cust").driver("/nonexistent/libcuda.so.1").run();
    child.failed_with(
        "error: \"cannot open the driver library /nonexistent/libcuda.so.1: No such file or \
         directory\"",
    );
    let child = Child::new("cust").driver("cuda").run();
    child.failed_with("error: \"CUGUARD_DRIVER: `cuda` names no driver");
}

/// `cust`'s errors show no more than the name of a code when they are unwrapped or returned from
/// `main`.
#[test]
fn a_cust_program_that_returns_its_error_from_main_tells_the_reason_too() {
    let child = Child::new("cust_main")
        .driver("/nonexistent/libcuda.so.1")
        .run();
    child.failed_with("Error: NoDevice\n");
    let reason = "cuguard: cannot open the driver library /nonexistent/libcuda.so.1: No such file \
                  or directory\n";
    child.failed_with(reason);
}

#[test]
fn the_functions_that_load_tell_each_reason_once_and_load_itself_tells_none() {
    let child = Child::new("reasons").driver("/nonexistent/first.so").run();
    child.succeeded_with("all as it should be");
    let count = |path: &str| {
        child.lines_of_stderr(&format!("cuguard: cannot open the driver library {path}:"))
    };
    assert_eq!(count("/nonexistent/first.so"), 1, "{child:#?}");
    assert_eq!(count("/nonexistent/second.so"), 1, "{child:#?}");
    assert_eq!(child.lines_of_stderr("cuguard:"), 2, "{child:#?}");
}

#[test]
fn a_driver_that_lacks_the_words_leaves_a_cust_program_with_ours() {
    let Some(library) = compile("wordless", "int cuInit(unsigned f) { return 100; }") else {
        return;
    };
    let child = Child::new("cust").driver(&library).run();
    child.failed_with("error: \"no CUDA-capable device is detected\"");
}

#[test]
fn a_stub_library_is_a_driver_and_returns_its_own_code() {
    let Some(library) = compile("stub", "int cuInit(unsigned f) { return 34; }") else {
        return;
    };
    let child = Child::new("stub").driver(&library).run();
    child.succeeded_with("all as it should be");
}

#[test]
fn a_library_that_simulates_is_told_apart() {
    let source = "char cuguard_simulated_gpu = 1; int cuInit(unsigned f) { return 0; }";
    let Some(library) = compile("simulating", source) else {
        return;
    };
    let child = Child::new("load").driver(&library).run();
    child.succeeded_with(&format!("loaded: simulated GPU at {}", library.display()));
}

#[test]
fn without_a_driver_the_error_lists_what_was_tried() {
    if let Some(driver) = installed_driver() {
        return cuguard_testing::not_run(cuguard_testing::Requirement::NoDriver, driver);
    }
    for child in [Child::new("load"), Child::new("load").driver("real")] {
        let child = child.run();
        child.failed_with("no CUDA driver was found; tried\n    libcuda.so.1: cannot open");
        child.failed_with("\n    /usr/lib/wsl/lib/libcuda.so.1: No such file or directory\n");
        child.failed_with("what to do:\n    install the NVIDIA driver");
    }
    let child = Child::new("cust").driver("real").run();
    child.failed_with("error: \"no CUDA driver was found: libcuda.so.1: cannot open");
    // The variable is set already, and does not help.
    let child = Child::new("select_real").driver("sim").run();
    child.succeeded_with("it selected this one itself, and CUGUARD_DRIVER has no effect");
}

/// `LD_LIBRARY_PATH` comes before the installed driver, so these run on any machine.
#[test]
fn the_installed_driver_is_found_by_its_name() {
    let Some(library) = compile("found/libcuda.so.1", "int cuInit(unsigned f) { return 0; }")
    else {
        return;
    };
    let child = Child::new("load").driver("real").search(&library).run();
    child.succeeded_with(&format!("loaded: CUDA driver at {}", library.display()));
}

#[test]
fn auto_takes_a_driver_that_has_a_device() {
    let source = "
        int cuInit(unsigned f) { return 0; }
        int cuDeviceGetCount(int *n) { *n = 2; return 0; }";
    let Some(library) = compile("auto_good/libcuda.so.1", source) else {
        return;
    };
    let child = Child::new("load").driver("auto").search(&library).run();
    child.succeeded_with(&format!("loaded: CUDA driver at {}", library.display()));
}

#[test]
fn auto_falls_back_when_the_driver_cannot_be_used() {
    let source = "int cuInit(unsigned f) { return 0; }";
    let count = |body: &str| format!("{source} int cuDeviceGetCount(int *n) {{ {body} }}");
    for (name, source, reason) in [
        (
            "fails",
            "int cuDeviceGetCount(int *n) { return 0; } int cuInit(unsigned f) { return 803; }"
                .to_owned(),
            "cuInit returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
        ),
        ("none", count("*n = 0; return 0;"), "it has no device"),
        (
            "refuses",
            count("return 999;"),
            "cuDeviceGetCount returned CUDA_ERROR_UNKNOWN (999)",
        ),
        ("lacks", source.to_owned(), "it lacks cuDeviceGetCount"),
    ] {
        let Some(library) = compile(&format!("auto_{name}/libcuda.so.1"), &source) else {
            return;
        };
        let child = Child::new("load").driver("auto").search(&library).run();
        let found = format!("CUDA driver at {}", library.display());
        if cfg!(feature = "sim") {
            child.succeeded_with("loaded: simulated GPU\n");
            child.announced(&format!(
                "CUGUARD_DRIVER=auto: no usable driver: {found}: {reason}"
            ));
        } else {
            child.failed_with(&format!(
                "{found} cannot be used: {reason}; this program was built"
            ));
        }
    }
}

#[test]
fn the_simulated_gpu_announces_itself_once_or_says_that_it_is_not_there() {
    let by_environment = Child::new("load").driver("sim").run();
    let by_program = Child::new("select_sim").driver("real").run();
    if cfg!(feature = "sim") {
        by_environment.succeeded_with("loaded: simulated GPU\n");
        by_environment.announced("CUGUARD_DRIVER=sim");
        by_program.announced("the program chose sim");
    } else {
        by_environment.failed_with("this program was built without it");
        by_environment.failed_with("cargo add cuguard --features sim");
        by_program
            .failed_with("not chosen: the simulated GPU was chosen, but this program was built");
    }
}

#[cfg(feature = "sim")]
#[test]
fn a_cust_program_runs_on_the_simulated_gpu() {
    let child = Child::new("cust").driver("sim").run();
    child.succeeded_with("copied back: [1, 2, 3]");
}
