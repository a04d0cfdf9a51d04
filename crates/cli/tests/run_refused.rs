//! Programs that `cuguard run` does not run, the library's file, and what is left behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::audited::{cuguard_run, output, program, reports, stderr, subfolder, text};
use cuguard_testing::{Requirement, not_run};

#[track_caller]
fn assert_refused(file: &Path, code: i32, words: &str) {
    let output = output(cuguard_run(&["--"]).arg(file));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let line = format!("cuguard run: {}: {words}", file.display());
    assert!(stderr.starts_with(&line), "{stderr}\n{line}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = folder.join(name);
    let content_file = folder.join(format!("{name}.content"));
    fs::write(&content_file, content).expect("a file can be written");
    // By another process: a file cannot be executed while a child that was forked meanwhile has it open for writing.
    let copied = Command::new("cp").args([&content_file, &path]).status();
    assert!(copied.expect("cp runs").success());
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is this user's");
    path
}

#[test]
fn what_cannot_be_executed_is_named() {
    let folder = subfolder("unexecutable");
    assert_refused(
        Path::new("does-not-exist"),
        127,
        "not found in the folders of PATH\n",
    );
    assert_refused(&folder.join("missing"), 127, "not found\n");
    assert_refused(&folder, 126, "cannot be executed: it is a folder\n");
    let plain = file(&folder, "plain", b"text", 0o644);
    assert_refused(
        &plain,
        126,
        "cannot be executed: it has no permission to be executed (chmod +x)\n",
    );
    let script = file(&folder, "script", b"#!/does/not/exist\n", 0o755);
    assert_refused(
        &script,
        126,
        "cannot be executed: its interpreter /does/not/exist was not found\n",
    );
    let script = file(&folder, "empty", b"#!\n", 0o755);
    assert_refused(
        &script,
        126,
        "cannot be executed: its first line names no interpreter\n",
    );
    // An unknown format, which a shell runs.
    let output = output(cuguard_run(&["--"]).arg(file(&folder, "shell", b"exit 8\n", 0o755)));
    assert_eq!(output.status.code(), Some(8), "{}", text(&output.stderr));
}

#[test]
fn a_script_runs_with_its_interpreter() {
    let Some(program) = program() else { return };
    let folder = subfolder("script");
    for start in ["#!/bin/sh", "#!/usr/bin/env sh"] {
        let code = format!("{start}\n{} leak\nexit 6\n", program.display());
        let script = file(&folder, "script", code.as_bytes(), 0o755);
        let output = output(cuguard_run(&["--"]).arg(script));
        assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
        assert_eq!(reports(&output), 1, "{}", stderr(&output));
    }
}

/// The program with some bytes changed.
fn changed(folder: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Option<PathBuf> {
    let mut bytes = fs::read(program()?).expect("the program can be read");
    change(&mut bytes);
    Some(file(folder, name, &bytes, 0o755))
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    let found = bytes.windows(part.len()).position(|window| window == part);
    found.expect("the bytes are there")
}

#[test]
fn programs_that_nothing_can_be_preloaded_into_are_named() {
    let folder = subfolder("elf");
    let own = if cfg!(target_arch = "aarch64") {
        "aarch64"
    } else {
        "x86_64"
    };
    let preload = "Nothing can be preloaded into it:";
    let Some(narrow) = changed(&folder, "narrow", |bytes| bytes[4] = 1) else {
        return;
    };
    assert_refused(
        &narrow,
        125,
        &format!("it is a program of 32 bit. {preload} use a cuguard that is built for "),
    );
    let other = changed(&folder, "other", |bytes| bytes[18] = 243).expect("compiled above");
    assert_refused(
        &other,
        125,
        &format!("it is a program for RISC-V, and this cuguard is for {own}. {preload} "),
    );
    let musl = changed(&folder, "musl", |bytes| {
        let at = find(bytes, b"/ld-linux");
        bytes[at..at + 9].copy_from_slice(b"/ld-musl-");
    });
    let musl = musl.expect("compiled above");
    let output = output(cuguard_run(&["--"]).arg(&musl));
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        line.contains("ld-musl-") && line.contains("of another C library than the audit library's"),
        "{line}"
    );
    let cut = changed(&folder, "cut", |bytes| bytes.truncate(60)).expect("compiled above");
    assert_refused(&cut, 125, "its ELF header is damaged. ");

    // A static program, if the C library can be linked statically.
    let source = file(
        &folder,
        "static.c",
        b"int main(void) { return 0; }\n",
        0o644,
    );
    let program = folder.join("static");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(compiler)
        .arg("-static")
        .arg("-o")
        .args([&program, &source])
        .output();
    match built.is_ok_and(|built| built.status.success()) {
        true => assert_refused(
            &program,
            125,
            &format!("it is linked statically and has no loader. {preload} link it dynamically"),
        ),
        false => not_run(Requirement::CompilerOptions, "-static"),
    }
}

/// Programs with a sanitizer that would not start, or crash. What works is run.
#[test]
fn programs_with_sanitizers_are_named() {
    let folder = subfolder("sanitizers");
    let source = file(
        &folder,
        "program.c",
        b"int main(void) { return 5; }\n",
        0o644,
    );
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    for (options, words) in [
        (
            &["-fsanitize=address"][..],
            Some("it is built with AddressSanitizer, whose runtime (libasan.so."),
        ),
        (&["-fsanitize=address", "-static-libasan"], None),
        (
            &["-fsanitize=thread"],
            Some("it is built with ThreadSanitizer, which replaces the same functions. Nothing"),
        ),
        (&["-fsanitize=undefined"], None),
    ] {
        let program = folder.join("program");
        let mut command = Command::new(&compiler);
        let built = command.args(options).arg("-o").args([&program, &source]);
        if !built.output().is_ok_and(|built| built.status.success()) {
            not_run(Requirement::CompilerOptions, format_args!("{options:?}"));
            continue;
        }
        match words {
            Some(words) => assert_refused(&program, 125, words),
            None => {
                let output = output(cuguard_run(&["--"]).arg(&program));
                assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
            }
        }
    }
}

#[test]
fn programs_with_privileges_are_named() {
    let folder = subfolder("privileges");
    let Some(program) = changed(&folder, "program", |_| {}) else {
        return;
    };
    let set = |mode: u32| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("own file")
    };
    // Those of the own user and group change nothing.
    set(0o4755);
    let own = output(cuguard_run(&["--"]).arg(&program).arg("return"));
    assert_eq!(own.status.code(), Some(3), "{}", stderr(&own));
    if chown(&program, Some(65_534), Some(65_534)).is_err() {
        return not_run(Requirement::Root, "");
    }
    set(0o4755);
    assert_refused(
        &program,
        125,
        "it is set-user-ID, and the loader ignores LD_PRELOAD for it. Nothing can be preloaded into it: run a copy",
    );
    set(0o2755);
    assert_refused(
        &program,
        125,
        "it is set-group-ID, and the loader ignores LD_PRELOAD for it. ",
    );
}

#[test]
fn the_library_is_in_the_cache_and_nothing_else_is_left() {
    let Some(program) = program() else { return };
    let (cache, temporary) = (subfolder("own-cache"), subfolder("temporary"));
    let run = || {
        let mut command = cuguard_run(&["--"]);
        command
            .arg(program)
            .arg("leak")
            .env("XDG_CACHE_HOME", &cache)
            .env("TMPDIR", &temporary);
        let output = output(&mut command);
        assert_eq!(
            (output.status.code(), reports(&output)),
            (Some(3), 1),
            "{}",
            stderr(&output)
        );
        assert_eq!(
            fs::read_dir(&temporary).expect("the folder exists").count(),
            0
        );
        let files = fs::read_dir(cache.join("cuguard")).expect("the folder exists");
        let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        let [file] = &files[..] else {
            panic!("{files:?}")
        };
        let info = fs::metadata(file).expect("it exists");
        assert_eq!(info.mode() & 0o777, 0o500);
        (file.clone(), info.ino())
    };
    let first = run();
    assert_eq!(run(), first, "it is written once");
    let folder = fs::metadata(cache.join("cuguard")).expect("it exists");
    assert_eq!(folder.mode() & 0o777, 0o700);

    // A file that was changed is replaced.
    fs::remove_file(&first.0).expect("own file");
    fs::write(&first.0, "not the library").expect("own file");
    assert_eq!(run().0, first.0);
}

#[test]
fn a_cache_that_cannot_be_used_is_not_used() {
    let Some(program) = program() else { return };
    let temporary = subfolder("temporary-2");
    let elsewhere = subfolder("elsewhere");
    let linked = subfolder("linked");
    symlink(&elsewhere, linked.join("cuguard")).expect("a link can be created");
    let open = subfolder("open");
    fs::create_dir(open.join("cuguard")).expect("a folder can be created");
    fs::set_permissions(open.join("cuguard"), fs::Permissions::from_mode(0o777))
        .expect("own folder");
    let unusable = [
        Path::new("/proc/self"),
        &linked,
        &open,
        &subfolder("a b"),
        // The loader would replace it by `lib` or `lib64`.
        &subfolder("$LIB"),
    ];
    for cache in unusable {
        let mut command = cuguard_run(&["--"]);
        command
            .arg(program)
            .arg("leak")
            .env("XDG_CACHE_HOME", cache)
            .env("TMPDIR", &temporary);
        let output = output(&mut command);
        assert_eq!(
            (output.status.code(), reports(&output)),
            (Some(3), 1),
            "{}",
            stderr(&output)
        );
        assert_eq!(
            fs::read_dir(&temporary).expect("the folder exists").count(),
            0
        );
    }
    assert_eq!(
        fs::read_dir(&elsewhere).expect("the folder exists").count(),
        0
    );
    assert_eq!(
        fs::read_dir(open.join("cuguard"))
            .expect("the folder exists")
            .count(),
        0
    );

    // With nowhere else to write it, the reason is named.
    let mut command = cuguard_run(&["--"]);
    let spaced = subfolder("t m p");
    command
        .arg(program)
        .env("XDG_CACHE_HOME", &open)
        .env("TMPDIR", &spaced);
    let output = output(&mut command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.starts_with("cuguard run: the audit library cannot be loaded into the program: in "),
        "{stderr}"
    );
    assert!(
        stderr.contains("is not a folder that this user alone can write to; ")
            && stderr.contains("cannot be in LD_PRELOAD"),
        "{stderr}"
    );
}

/// Who owns a folder above it could replace the library before the program is started. Needs root.
#[test]
fn a_cache_below_a_folder_of_another_user_is_not_used() {
    let above = subfolder("of-another-user");
    let below = above.join("below");
    fs::create_dir(&below).expect("a folder can be created");
    if chown(&above, Some(65_534), None).is_err() {
        return not_run(Requirement::Root, "");
    }
    let preloaded = |cache: &Path| {
        let mut command = cuguard_run(&["--", "sh", "-c", "echo $LD_PRELOAD"]);
        // A user's own folder, as `sudo -E` keeps it.
        command
            .env("XDG_CACHE_HOME", cache)
            .env("XDG_RUNTIME_DIR", &above);
        text(&output(&mut command).stdout)
    };
    let (temporary, own) = (std::env::temp_dir(), subfolder("linked-to"));
    let temporary = fs::canonicalize(temporary).expect("it exists");
    for cache in [&above, &below] {
        let library = preloaded(cache);
        assert!(
            Path::new(&library).starts_with(&temporary) && !library.contains("of-another-user"),
            "{library}"
        );
        assert!(library.contains("/cuguard-run-"), "{library}");
    }
    // Where a link of another user leads is resolved once: it may lead elsewhere the next moment.
    let link = above.join("link");
    symlink(&own, &link).expect("a link can be created");
    let library = preloaded(&link);
    assert!(Path::new(&library).starts_with(&own), "{library}");
}

/// Needs root, to mount a file system.
#[test]
fn a_file_system_without_execution_is_named() {
    let Some(program) = program() else { return };
    let folder = subfolder("noexec");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "noexec,size=64m", "tmpfs"])
        .arg(&folder)
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return not_run(Requirement::Root, "to mount a file system");
    }
    let mut command = cuguard_run(&["--"]);
    command
        .arg(program)
        .env("XDG_CACHE_HOME", &folder)
        .env("TMPDIR", &folder);
    let output = output(&mut command);
    let unmounted = Command::new("umount").arg(&folder).status();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("its code cannot be mapped; is it mounted with noexec?"),
        "{stderr}"
    );
    assert!(unmounted.is_ok_and(|status| status.success()));
}
