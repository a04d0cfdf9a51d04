//! Builds the audit library, which the command contains: `cargo install` installs programs, and no libraries.
//!
//! A package cannot depend on the library file of another, so this runs cargo once more, with a target folder of its own.
//! The library is built as in a release, without debug information, and without `RUSTFLAGS` of the outer build, which may
//! be for another purpose (sanitizers, loom). In a target without the library, or where its sources are not beside this
//! package, the file is empty, and `cuguard run` names the reason. So it is in a build without optimisation, where the
//! command takes the library that cargo built beside it: most of the time of a build of the tests would go into this.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Without any such line, cargo would run this again for every change in the package.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    let out = PathBuf::from(variable("OUT_DIR"));
    let library = out.join("libcuguard_audit.so");
    let content = match (is_supported(), is_check() && library.exists()) {
        (true, true) => fs::read(&library).unwrap_or_default(),
        // `PROFILE` is `release` for all profiles that inherit from it.
        (true, false) if is_check() || variable("PROFILE") != "release" => Vec::new(),
        (true, false) => build(&out),
        (false, _) => Vec::new(),
    };
    // Its time of change stays where the content is the same.
    if fs::read(&library).ok().as_ref() != Some(&content) {
        fs::write(&library, &content)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", library.display()));
    }
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    println!(
        "cargo::rustc-env=CUGUARD_AUDIT_HASH={:016x}",
        hasher.finish()
    );
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}

fn is_supported() -> bool {
    let is = |name: &str, values: &[&str]| values.contains(&variable(name).as_str());
    is("CARGO_CFG_TARGET_OS", &["linux"])
        && is("CARGO_CFG_TARGET_ENV", &["gnu"])
        && is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"])
        && manifest().is_file()
}

/// Whether nothing is built, as with clippy or documentation of docs.rs. `cargo check` cannot be told apart.
fn is_check() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    wrapper.to_string_lossy().contains("clippy") || env::var_os("DOCS_RS").is_some()
}

fn manifest() -> PathBuf {
    Path::new(&variable("CARGO_MANIFEST_DIR")).join("../audit/Cargo.toml")
}

/// Builds the library, and returns its content.
fn build(out: &Path) -> Vec<u8> {
    let (target, folder) = (variable("TARGET"), out.join("audit"));
    let manifest = manifest();
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([
            "build",
            "--package",
            "cuguard-audit",
            "--lib",
            "--release",
            "--locked",
            "--quiet",
        ])
        .args(["--config", "profile.release.debug=0"])
        .args(["--config", "profile.release.strip=\"symbols\""])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .arg("--manifest-path")
        .arg(&manifest)
        // For the configuration of the workspace.
        .current_dir(manifest.parent().unwrap_or(Path::new(".")))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_INCREMENTAL", "0");
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cannot run {cargo:?}: {error}"));
    let built = folder.join(&target).join("release");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the audit library cannot be built: {cargo:?}\n{errors}"
    );
    rerun_if_sources_change(&built.join("libcuguard_audit.d"));
    let library = built.join("libcuguard_audit.so");
    fs::read(&library).unwrap_or_else(|error| panic!("cannot read {}: {error}", library.display()))
}

/// Has cargo run this again when a source of the library changes. Cargo lists them in a file like a rule of `make`.
fn rerun_if_sources_change(list: &Path) {
    let root = manifest();
    let root = root.ancestors().nth(3).unwrap_or(Path::new("."));
    let text = fs::read_to_string(list)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", list.display()));
    let sources = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, sources)| sources);
    // A space within a name follows a backslash.
    for source in sources.flat_map(|sources| {
        sources
            .replace("\\ ", "\0")
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    }) {
        let source = PathBuf::from(source.replace('\0', " "));
        println!("cargo::rerun-if-changed={}", source.display());
        // The manifest of the package.
        let manifests = source.ancestors().map(|folder| folder.join("Cargo.toml"));
        if let Some(manifest) = manifests.into_iter().find(|manifest| manifest.is_file()) {
            println!("cargo::rerun-if-changed={}", manifest.display());
        }
    }
    for name in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(name).display());
    }
}
