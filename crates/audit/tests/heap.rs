//! The exported `malloc` family: memory of the program and of the driver, freed and resized by either.

use std::process::Output;

use crate::support::{
    Folder, assert_success, audited, compile, programs, simulated_driver_folder, text,
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

/// A program and a library that stands for the driver's. `None` without a C compiler.
fn program(folder: &Folder, driver: &str, main: &str) -> Option<std::path::PathBuf> {
    let library = ["-fPIC", "-shared", "-O1"];
    let driver = source("heap_driver.c") + driver;
    compile(folder, "libcuda.so.2", &driver, &library)?;
    compile(folder, "program", main, &["-l:libcuda.so.2"])
}

/// The reserved range does not separate libraries that are loaded later from the C library: with 64 GiB in
/// between a PyTorch step took 3 % longer.
#[test]
fn libraries_stay_near_each_other() {
    let folder = simulated_driver_folder();
    let main = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include "heap_driver.h"
        int main(int count, char **arguments)
        {
            void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
            void *later = library ? dlsym(library, "later") : NULL;
            if (!later)
                return 1;
            long of_driver = (long)driver_malloc(24);
            long distance = labs((long)later - (long)dlsym(RTLD_DEFAULT, "qsort"));
            // The block is of the arena, which exists.
            if (labs(of_driver - (long)malloc(24)) >> 26 == 0)
                return 2;
            printf("%ld MiB\n", distance >> 20);
            return count != 2;
        }"#;
    let Some(program) = program(&folder, "", main) else {
        return;
    };
    // Too large for a gap between others.
    let later = "char large[64 << 20]; char *later(void) { return large; }";
    let Some(library) = compile(&folder, "later.so", later, &["-fPIC", "-shared"]) else {
        return;
    };
    let mut command = audited(&program, &folder);
    // Read when the library is loaded, which makes the range.
    let output = command.env("LEAK_REPORT", "1").arg(library).output();
    let output = output.expect("the program can be started");
    assert_success(&output);
    let shown = text(&output.stdout);
    let distance: u64 = shown.trim().trim_end_matches(" MiB").parse().expect("MiB");
    assert!(distance < 4096, "{shown}");
}

/// The first free of a thread succeeds where there is no memory left.
#[test]
fn a_free_needs_no_memory() {
    let folder = simulated_driver_folder();
    let main = r#"
        #include <stdio.h>
        #include "heap_driver.h"
        static void *volatile first;
        static volatile int is_full;
        static void *run(void *unused)
        {
            while (!is_full)
                ;
            driver_free(first);
            return unused;
        }
        int main(void)
        {
            pthread_t thread;
            if (pthread_create(&thread, NULL, run, NULL) != 0)
                return 1;
            // Of the arena: the last ones are not.
            first = driver_malloc(300);
            while (driver_malloc(8000))
                ;
            while (driver_malloc(24))
                ;
            is_full = 1;
            pthread_join(thread, NULL);
            puts("all blocks were intact");
            return 0;
        }"#;
    let Some(program) = program(&folder, "", main) else {
        return;
    };
    let command = format!("ulimit -v 400000 && exec {}", program.display());
    let mut shell = audited(std::path::Path::new("/bin/sh"), &folder);
    let output = shell.args(["-c", &command]).output();
    assert_intact(&output.expect("the program can be started"));
}

/// A thread that ends while the arena is locked, and that is cancelled then, has returned its value.
#[test]
fn a_thread_that_ends_while_another_forks() {
    let folder = simulated_driver_folder();
    // Its constructor runs before that of the audit library, so that its handler runs when the arena is locked.
    let driver = r#"
        void (*hook)(void);
        static void prepare(void) { if (hook) hook(); }
        __attribute__((constructor)) static void start(void) { pthread_atfork(prepare, NULL, NULL); }
        "#;
    let main = r#"
        #include <stdio.h>
        #include <unistd.h>
        #include <sys/wait.h>
        #include "heap_driver.h"
        extern void (*hook)(void);
        static volatile int is_locked, is_ready;
        static pthread_t thread;
        static void *run(void *value)
        {
            for (int at = 0; at < 5; at++)
                driver_free(driver_malloc(100 + 30 * at));
            is_ready = 1;
            while (!is_locked)
                ;
            return value;
        }
        static void cancel(void) { pthread_cancel(thread); is_locked = 1; usleep(100000); }
        int main(void)
        {
            void *value = NULL;
            hook = cancel;
            pthread_create(&thread, NULL, run, &value);
            while (!is_ready)
                ;
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
            pthread_join(thread, &value);
            puts(value == &value ? "all blocks were intact" : "cancelled");
            return 0;
        }"#;
    let Some(program) = program(&folder, driver, main) else {
        return;
    };
    let output = audited(&program, &folder).output();
    assert_intact(&output.expect("the program can be started"));
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
            Err(error) => panic!("/bin/sh: {error}"),
        }
    }
}
