//! Builds the audit library and the simulated GPU, which the command contains: `cargo install` installs programs, and no
//! libraries.
//!
//! A package cannot depend on the library file of another, so this runs cargo once more, with a target folder of its own.
//! The libraries are built as in a release, without debug information, and without `RUSTFLAGS` of the outer build, which may
//! be for another purpose (sanitizers, loom). In a target without them, or where their sources are not beside this
//! package, the files are empty, and `cuguard run` names the reason. So it is in a build without optimisation, where the
//! command takes the libraries that cargo built beside it: most of the time of a build of the tests would go into this.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries: the package, its folder, the file that cargo builds, and the variable with a hash of its content.
const LIBRARIES: [(&str, &str, &str, &str); 2] = [
    (
        "cuguard-audit",
        "../audit",
        "libcuguard_audit",
        "CUGUARD_AUDIT_HASH",
    ),
    (
        "cuguard-libcuda-sim",
        "../libcuda-sim",
        "libcuda_sim",
        "CUGUARD_SIMULATION_HASH",
    ),
];

fn main() {
    // Without any such line, cargo would run this again for every change in the package.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    let out = PathBuf::from(variable("OUT_DIR"));
    // `PROFILE` is `release` for all profiles that inherit from it.
    let is_built = is_supported() && !is_check() && variable("PROFILE") == "release";
    let folder = is_built.then(|| build(&out));
    for (_, _, file, hash) in LIBRARIES {
        let library = out.join(file).with_extension("so");
        let content = match &folder {
            Some(folder) => {
                let built = folder.join(file).with_extension("so");
                rerun_if_sources_change(&built.with_extension("d"));
                fs::read(&built)
                    .unwrap_or_else(|error| panic!("cannot read {}: {error}", built.display()))
            }
            None if is_supported() && is_check() => fs::read(&library).unwrap_or_default(),
            None => Vec::new(),
        };
        // Its time of change stays where the content is the same.
        if fs::read(&library).ok().as_ref() != Some(&content) {
            fs::write(&library, &content)
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", library.display()));
        }
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        println!("cargo::rustc-env={hash}={:016x}", hasher.finish());
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}

fn is_supported() -> bool {
    let is = |name: &str, values: &[&str]| values.contains(&variable(name).as_str());
    is("CARGO_CFG_TARGET_OS", &["linux"])
        && is("CARGO_CFG_TARGET_ENV", &["gnu"])
        && is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"])
        && LIBRARIES
            .iter()
            .all(|(_, folder, ..)| manifest(folder).is_file())
}

/// Whether nothing is built, as with clippy or documentation of docs.rs. `cargo check` cannot be told apart.
fn is_check() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    wrapper.to_string_lossy().contains("clippy") || env::var_os("DOCS_RS").is_some()
}

fn manifest(folder: &str) -> PathBuf {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    package.join(folder).join("Cargo.toml")
}

/// Builds the libraries, and returns the folder in which they are.
fn build(out: &Path) -> PathBuf {
    let (target, folder) = (variable("TARGET"), out.join("libraries"));
    let manifest = root().join("Cargo.toml");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--lib", "--release", "--locked", "--quiet"])
        .args(
            LIBRARIES
                .iter()
                .flat_map(|(package, ..)| ["--package", package]),
        )
        .args(["--config", "profile.release.debug=0"])
        .args(["--config", "profile.release.strip=\"symbols\""])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&folder)
        .arg("--manifest-path")
        .arg(&manifest)
        // For the configuration of the workspace.
        .current_dir(root())
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_INCREMENTAL", "0");
    let output = cargo
        .output()
        .unwrap_or_else(|error| panic!("cannot run {cargo:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the audit library and the simulated GPU cannot be built: {cargo:?}\n{errors}"
    );
    folder.join(&target).join("release")
}

/// The folder of the workspace.
fn root() -> PathBuf {
    PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..")
}

/// Has cargo run this again when a source of the library changes. Cargo lists them in a file like a rule of `make`.
fn rerun_if_sources_change(list: &Path) {
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
        println!("cargo::rerun-if-changed={}", root().join(name).display());
    }
}
