//! A crate that knows nothing of cuguard, built here, and `cargo cuguard` in its folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cuguard_testing::{Requirement, not_run};

use super::audited::{folder, stderr, subfolder};
use super::program;

const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", MANIFEST),
    ("src/lib.rs", include_str!("leaky/lib.rs")),
    ("src/main.rs", include_str!("leaky/main.rs")),
    ("tests/other.rs", include_str!("leaky/other.rs")),
    ("tests/leaky_crate.rs", include_str!("leaky/namesake.rs")),
];

const MANIFEST: &str = r#"
[package]
name = "leaky-crate"
version = "0.1.0"
edition = "2021"
[profile.dev]
debug = "line-tables-only"
[workspace]
"#;

/// The folder of the crate. `None` without cargo.
fn leaky() -> Option<&'static Path> {
    static CRATE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = CRATE.get_or_init(|| {
        let version = Command::new(cargo()).arg("--version").output();
        version.ok().filter(|output| output.status.success())?;
        let own = subfolder("leaky-crate");
        for (file, content) in FILES {
            let path = own.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("own folder");
            fs::write(path, content).expect("own folder");
        }
        Some(own)
    });
    if found.is_none() {
        not_run(Requirement::Rustc, "");
    }
    found.as_deref()
}

pub fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo cuguard` in the folder of the crate, as cargo starts it, on the simulated GPU.
pub fn cargo_cuguard(arguments: &[&str]) -> Option<Command> {
    let own = leaky()?;
    let mut command = Command::new(program().with_file_name("cargo-cuguard"));
    command
        .arg("cuguard")
        .args(arguments)
        .current_dir(own)
        .env("CARGO", cargo())
        .env("CUGUARD_DRIVER", "sim")
        .env("XDG_CACHE_HOME", folder().join("cache"))
        .env("CARGO_TARGET_DIR", own.join("target"))
        .env("CARGO_NET_OFFLINE", "true")
        .env("RUST_BACKTRACE", "0");
    // Of the run of these tests.
    for name in [
        "CUGUARD_SIM",
        "LEAK_REPORT",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "XDG_RUNTIME_DIR",
        "NEXTEST",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUST_TEST_THREADS",
    ] {
        command.env_remove(name);
    }
    Some(command)
}

/// What the command itself printed: all from the sums on.
pub fn found(output: &Output) -> Vec<String> {
    let stderr = stderr(output);
    let lines = stderr.lines();
    let lines = lines.skip_while(|line| !line.starts_with("cargo cuguard: "));
    lines.map(str::to_owned).collect()
}

/// The lines of a test, without frames.
pub fn of_test<'l>(lines: &'l [String], test: &str) -> Vec<&'l str> {
    let lines = lines.iter().map(String::as_str);
    let mut of_test = lines.skip_while(|line| *line != test);
    assert!(of_test.next().is_some(), "{test} is not listed");
    let of_test = of_test.take_while(|line| !line.is_empty());
    of_test.filter(|line| !line.starts_with("    ")).collect()
}
