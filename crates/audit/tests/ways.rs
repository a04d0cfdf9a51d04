//! Every kind of resource is recorded, with exact counts and bytes, on every way to the driver.

use std::path::Path;
use std::process::Command;

use crate::support::{
    Folder, assert_success, audited, compile, library, run, simulated_driver_folder, text,
};

/// Runs a program that checks what is alive after each of its steps. `checks` is how often: a program that checks nothing
/// fails the test.
#[track_caller]
fn passes(program: &Path, driver: &Folder, checks: u32) {
    let ptx = driver.join("empty.ptx");
    let source =
        ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry empty() { ret; }\n";
    std::fs::write(&ptx, source).expect("a file can be written");
    let output = run(program, driver, &[("PTX_FILE", ptx)]);
    assert_success(&output);
    let stdout = text(&output.stdout);
    assert_eq!(stdout, format!("{checks} checks passed\n"));
}

/// All kinds on one way.
fn kinds(way: u32, arguments: &[&str]) {
    let driver = simulated_driver_folder();
    let way = format!("-DWAY={way}");
    let arguments = [&[way.as_str()], arguments].concat();
    let source = include_str!("programs/kinds.c");
    if let Some(program) = compile(&driver, "kinds", source, &arguments) {
        passes(&program, &driver, 98);
    }
}

const LINKED: &[&str] = &["-Wl,--no-as-needed", "-l:libcuda.so.1"];

#[test]
fn a_program_that_is_linked_against_the_driver() {
    kinds(1, LINKED);
}

#[test]
fn a_program_that_loads_the_driver() {
    kinds(2, &[]);
}

#[test]
fn a_program_that_looks_functions_up_in_the_default_scope() {
    kinds(3, LINKED);
}

#[test]
fn a_program_that_looks_functions_up_behind_itself() {
    kinds(4, LINKED);
}

#[test]
fn a_program_that_gets_functions_from_the_driver() {
    kinds(5, &[]);
}

#[test]
fn a_program_that_gets_the_lookup_function_from_the_driver() {
    kinds(6, &[]);
}

#[test]
fn the_variants_for_per_thread_default_streams() {
    let driver = simulated_driver_folder();
    let source = include_str!("programs/per_thread.c");
    if let Some(program) = compile(&driver, "per_thread", source, &[]) {
        passes(&program, &driver, 20);
    }
}

/// A lookup that fails without the audit library fails with it, and leaves the same message.
#[test]
fn lookups_find_what_they_find_without_the_audit_library() {
    let driver = simulated_driver_folder();
    let source = include_str!("programs/lookups.c");
    let Some(program) = compile(&driver, "lookups", source, &[]) else {
        return;
    };
    let plain = Command::new(&program)
        .env("LD_LIBRARY_PATH", driver.path())
        .output()
        .expect("the program can be started");
    assert_success(&plain);
    let audited = run::<&str>(&program, &driver, &[]);
    assert_success(&audited);
    let (plain, audited) = (text(&plain.stdout), text(&audited.stdout));
    assert!(plain.contains("driver cuMemAlloc_v2: found"), "{plain}");
    assert!(
        plain.contains("default cuMemAlloc_v2: not found"),
        "{plain}"
    );
    assert_eq!(audited, plain);
}

/// A library that was loaded by `dlopen` finds the driver in its own scope.
#[test]
fn a_library_that_has_the_driver_in_its_own_scope() {
    let driver = simulated_driver_folder();
    let shared = ["-shared", "-fPIC", "-l:libcuda.so.1"];
    let source = include_str!("programs/plugin.c");
    if compile(&driver, "libplugin.so", source, &shared).is_none() {
        return;
    }
    let source = include_str!("programs/uses_plugin.c");
    if let Some(program) = compile(&driver, "uses_plugin", source, &[]) {
        passes(&program, &driver, 4);
    }
}

/// What goes through another library that stands before the driver is recorded once.
#[test]
fn a_program_with_a_library_that_stands_before_the_driver() {
    let driver = simulated_driver_folder();
    let shared = ["-shared", "-fPIC"];
    let source = include_str!("programs/hook.c");
    if compile(&driver, "libhook.so", source, &shared).is_none() {
        return;
    }
    let source = include_str!("programs/uses_hook.c");
    let arguments = ["-l:libhook.so", "-l:libcuda.so.1"];
    if let Some(program) = compile(&driver, "uses_hook", source, &arguments) {
        passes(&program, &driver, 4);
    }
}

/// Another preloaded library that has a `dlsym`: it is called, and the driver's functions are recorded if it comes second.
/// If it comes first, it gets them from the dynamic linker, and the program works as without the audit library.
#[test]
fn a_preloaded_library_with_a_lookup_of_its_own() {
    let driver = simulated_driver_folder();
    let version = match cfg!(target_arch = "aarch64") {
        true => "-DSYMBOL_VERSION=\"GLIBC_2.17\"",
        false => "-DSYMBOL_VERSION=\"GLIBC_2.2.5\"",
    };
    let shared = ["-shared", "-fPIC", version];
    let source = include_str!("programs/lookup_hook.c");
    let Some(hook) = compile(&driver, "liblookup.so", source, &shared) else {
        return;
    };
    let source = include_str!("programs/uses_lookup_hook.c");
    let Some(program) = compile(&driver, "uses_lookup", source, &[]) else {
        return;
    };
    let (audit, hook) = (library(), hook);
    for (first, second, recorded) in [(&audit, &hook, true), (&hook, &audit, false)] {
        let mut command = audited(&program, &driver);
        command.env(
            "LD_PRELOAD",
            format!("{}:{}", first.display(), second.display()),
        );
        if !recorded {
            command.arg("unrecorded");
        }
        let output = command.output().expect("the program can be started");
        assert_success(&output);
        let checks = if recorded { 2 } else { 0 };
        assert_eq!(text(&output.stdout), format!("{checks} checks passed\n"));
    }
}

#[test]
fn threads_that_free_what_others_allocated() {
    let driver = simulated_driver_folder();
    let source = include_str!("programs/threads.c");
    if let Some(program) = compile(&driver, "threads", source, LINKED) {
        passes(&program, &driver, 11);
    }
}
