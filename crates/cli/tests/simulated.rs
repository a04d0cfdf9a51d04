//! `CUGUARD_DRIVER=sim cuguard run`: a program runs on the simulated GPU that the command contains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuguard_testing::{Requirement, not_run};

use crate::support::audited::{
    SIMULATED, compile, cuguard_run, folder, output, program, subfolder, text,
};

/// The command as a user starts it, on a machine where the simulated GPU is not installed.
fn simulated(arguments: &[&str]) -> Command {
    let mut command = cuguard_run(arguments);
    command
        .env("CUGUARD_DRIVER", "sim")
        .env_remove("LD_LIBRARY_PATH");
    command
}

#[test]
fn a_program_linked_to_the_driver_runs_on_the_simulated_gpu() {
    let Some(program) = program() else { return };
    let program = program.to_str().expect("Unicode");
    let output = output(&mut simulated(&["--exitcode", "23", "--", program, "leak"]));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{stderr}");
    assert!(
        stderr.starts_with("cuguard: using the simulated GPU (") && stderr.contains(": lost 1 MiB"),
        "{stderr}"
    );
}

#[test]
fn other_folders_of_libraries_stay() {
    let script = "echo $LD_LIBRARY_PATH";
    let mut command = simulated(&["--", "sh", "-c", script]);
    let stdout = text(&output(command.env("LD_LIBRARY_PATH", "/a:/b")).stdout);
    let first = stdout.strip_suffix(":/a:/b\n").expect("they follow");
    let library = fs::read(format!("{first}/libcuda.so.1")).expect("the simulated GPU is there");
    assert!(library.starts_with(b"\x7fELF"));
    // Nothing of it without the variable.
    let mut command = cuguard_run(&["--", "sh", "-c", script]);
    command
        .env("LD_LIBRARY_PATH", "/a")
        .env("CUGUARD_DRIVER", "real");
    assert_eq!(text(&output(&mut command).stdout), "/a\n");
}

/// A driver that prints. It stands for the real one.
const OTHER_DRIVER: &str = r#"
#include <stdio.h>
int cuInit(unsigned flags) { (void)flags; puts("another driver"); return 0; }
"#;

/// A library of it with the driver's `DT_SONAME`. `None` without a C compiler.
fn other_driver(folder: &Path, name: &str) -> Option<PathBuf> {
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(&folder.join(name), OTHER_DRIVER, &flags)
}

/// As cudarc and numba do.
#[test]
fn a_program_that_opens_the_driver_as_the_linkers_library_runs_on_the_simulated_gpu() {
    let own = subfolder("linkers-name");
    if other_driver(&own, "libcuda.so").is_none() {
        return;
    }
    let source = r#"
#include <dlfcn.h>
int main(void) {
    void *one = dlopen("libcuda.so", RTLD_NOW);
    int (*init)(unsigned) = one ? (int (*)(unsigned))dlsym(one, "cuInit") : 0;
    if (!init || init(0)) return 2;
    /* The same library: it is not loaded twice. */
    return dlopen("libcuda.so.1", RTLD_NOW) == one ? 0 : 3;
}
"#;
    let program = compile(&own.join("opens"), source, &[]).expect("compiled above");
    let mut command = simulated(&["--"]);
    let ended = output(command.arg(&program).env("LD_LIBRARY_PATH", &own));
    let stderr = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr.lines().next(), Some(SIMULATED), "{stderr}");
    assert_eq!(text(&ended.stdout), "");
}

/// The loader looks into the folder of `DT_RPATH` first, and a path needs no folder.
#[test]
fn a_program_that_finds_another_driver_is_named() {
    let own = subfolder("other-driver");
    let Some(driver) = other_driver(&own, "libcuda.so.1") else {
        return;
    };
    let flags = [
        "-Wl,--disable-new-dtags,-rpath",
        &format!("-Wl,{}", own.display()),
    ];
    let linked = "int cuInit(unsigned); int main(void) { return cuInit(0); }";
    let linked = compile(&own.join("linked"), linked, &flags).expect("compiled above");
    let opens = format!(
        "#include <dlfcn.h>
int main(void) {{
    void *driver = dlopen(\"{}\", RTLD_NOW);
    return ((int (*)(unsigned))dlsym(driver, \"cuInit\"))(0);
}}",
        driver.display()
    );
    let opens = compile(&own.join("opens"), &opens, &[]).expect("compiled above");
    for program in [linked, opens] {
        for report in ["1", "0"] {
            let mut command = simulated(&["--"]);
            let ended = output(command.arg(&program).env("LEAK_REPORT", report));
            let stderr = text(&ended.stderr);
            assert_eq!(text(&ended.stdout), "another driver\n", "{stderr}");
            assert_eq!(ended.status.code(), Some(125), "{stderr}");
            let line = format!(
                " runs on {} and not on the simulated GPU, which CUGUARD_DRIVER=sim selects. ",
                driver.display()
            );
            assert!(stderr.contains(&line), "{stderr}");
            assert!(
                stderr.ends_with(" and not on the simulated GPU (CUGUARD_DRIVER=sim)\n"),
                "{stderr}"
            );
        }
        // Without the variable it is the driver that the program is for.
        let ended = output(cuguard_run(&["--"]).arg(&program));
        let stderr = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{stderr}");
        assert!(!stderr.contains("simulated GPU"), "{stderr}");
    }
}

/// The program and the compile line of the guide.
#[test]
fn the_program_of_the_guide_is_compiled_without_cuda() {
    if program().is_none() {
        return;
    }
    let guide = include_str!("../../../docs/guide/any-cuda-program.md");
    let (_, source) = guide.split_once("// t.c\n").expect("the program");
    let (source, rest) = source.split_once("```").expect("its end");
    let (_, rest) = rest.split_once("$ cc ").expect("the compile line");
    let (arguments, rest) = rest.split_once('\n').expect("its end");
    let own = subfolder("guide");
    fs::write(own.join("t.c"), source).expect("a file can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(compiler)
        .args(arguments.split(' '))
        .current_dir(&own)
        .output()
        .expect("there is a compiler");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let output = output(simulated(&["--", "./t"]).current_dir(&own));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let (_, expected) = rest
        .split_once("cuguard run -- ./t\n")
        .expect("the command");
    let printed: Vec<_> = stderr.lines().take(2).collect();
    let expected: Vec<_> = expected.lines().take(2).collect();
    assert_eq!(printed[0], expected[0]);
    let after_process = |line: &str| line.split_once(" (./t): ").map(|(_, rest)| rest.to_owned());
    assert_eq!(
        after_process(printed[1]),
        after_process(expected[1]),
        "{stderr}"
    );
    assert!(after_process(printed[1]).is_some(), "{stderr}");
}

/// Whether the command contains its libraries: profiles with debug assertions can be optimised, too.
const CONTAINED: bool = !include_bytes!(concat!(env!("OUT_DIR"), "/libcuda_sim.so")).is_empty();

#[test]
fn a_command_without_the_simulated_gpu_says_what_to_do() {
    let own = subfolder("alone");
    let command = simulated(&[]);
    if CONTAINED {
        return not_run(Requirement::LibrariesApart, "");
    }
    // A copy of the command, beside which cargo has built nothing else.
    let copy = own.join("cuguard");
    fs::copy(command.get_program(), &copy).expect("it can be copied");
    fs::copy(audit_library(&command), own.join("libcuguard_audit.so")).expect("it can be copied");
    let mut command = Command::new(copy);
    command
        .args(["run", "--", "true"])
        .env("CUGUARD_DRIVER", "sim")
        .env("XDG_CACHE_HOME", folder().join("cache"));
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(125));
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("cuguard run: this build of cuguard has no simulated GPU: ")
            && stderr.contains("`cargo build -p cuguard-libcuda-sim`"),
        "{stderr}"
    );
}

/// The audit library beside the command: cargo has it in `deps`, a bundle in the same folder.
fn audit_library(command: &Command) -> PathBuf {
    let program = Path::new(command.get_program());
    let folder = program.parent().expect("it is in a folder");
    let mut files = ["deps", "."]
        .map(|name| folder.join(name).join("libcuguard_audit.so"))
        .into_iter();
    files.find(|file| file.is_file()).expect("it is built")
}
