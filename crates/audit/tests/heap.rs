//! The exported `malloc` family: memory of the program and of the driver, freed and resized by either.

mod support;

use std::process::Output;

use support::{
    Folder, assert_success, audited, compile, not_run, programs, simulated_driver_folder, text,
};

fn source(name: &str) -> String {
    std::fs::read_to_string(programs().join(name)).expect("the program's text is there")
}

/// The stress program and a library that stands for the driver's. `None` without a C compiler.
fn stress(folder: &Folder) -> Option<std::path::PathBuf> {
    let library = ["-fPIC", "-shared", "-O1"];
    compile(folder, "libcuda.so.2", &source("heap_driver.c"), &library)?;
    let arguments = ["-O1", "-Wno-alloc-size-larger-than", "-l:libcuda.so.2"];
    compile(folder, "stress", &source("heap_stress.c"), &arguments)
}

#[track_caller]
fn assert_intact(output: &Output) {
    assert_success(output);
    assert_eq!(text(&output.stdout), "all blocks were intact\n");
}

/// Four threads, blocks that change threads, and children of `fork` meanwhile.
#[test]
fn blocks_of_program_and_driver_stay_intact() {
    let folder = simulated_driver_folder();
    let Some(program) = stress(&folder) else {
        return;
    };
    let output = audited(&program, &folder).args(["4", "30000"]).output();
    assert_intact(&output.expect("the program can be started"));
}

/// The check that the driver's blocks lie apart fails where they do not.
#[test]
fn without_the_library_the_blocks_lie_together() {
    let folder = simulated_driver_folder();
    let Some(program) = stress(&folder) else {
        return;
    };
    let mut command = audited(&program, &folder);
    let output = command.env_remove("LD_PRELOAD").args(["1", "100"]).output();
    let output = output.expect("the program can be started");
    assert!(!output.status.success());
    assert!(
        text(&output.stdout).contains(">> 26 != 0"),
        "{}",
        text(&output.stdout)
    );
}

/// A limit on the address space refuses the large reservation; a smaller one, or the program's own `malloc`, serves.
#[test]
fn a_limit_on_the_address_space() {
    let folder = simulated_driver_folder();
    let source = "
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include \"heap_driver.h\"
        int main(void)
        {
            char *blocks[2000];
            for (int at = 0; at < 2000; at++) {
                blocks[at] = driver_malloc(100 * at);
                if (!blocks[at]) { printf(\"block %d\\n\", at); return 1; }
                memset(blocks[at], at, 100 * at);
            }
            for (int at = 0; at < 2000; at++)
                free(blocks[at]);
            puts(\"all blocks were intact\");
            return 0;
        }";
    let library = ["-fPIC", "-shared", "-O1"];
    let driver = self::source("heap_driver.c");
    if compile(&folder, "libcuda.so.2", &driver, &library).is_none() {
        return;
    }
    let Some(program) = compile(&folder, "limited", source, &["-l:libcuda.so.2"]) else {
        return;
    };
    for kibibytes in [16_000_000, 4_000_000, 1_200_000, 400_000] {
        let command = format!("ulimit -v {kibibytes} && exec {}", program.display());
        let shell = audited(std::path::Path::new("/bin/sh"), &folder)
            .args(["-c", &command])
            .output();
        match shell {
            Ok(output) => assert_intact(&output),
            Err(_) => return not_run("needs /bin/sh"),
        }
    }
}
