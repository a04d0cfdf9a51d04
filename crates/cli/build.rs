//! Builds the audit library and the simulated GPU, which the command contains: `cargo install` installs programs, and no
//! libraries.
//!
//! A package cannot contain the library file of another, so this runs cargo once more: on a project in `OUT_DIR` that depends on
//! the two packages, with a target folder of its own. The command depends on them too, without linking them. So cargo has
//! downloaded whatever they need, and their build scripts tell where they are: this works in a clone, in the folder of a
//! registry, which may be read-only, and with vendored sources, always without the network. (Copies of their sources in this
//! package would need the same project and the same dependencies, and a step before each release.)
//!
//! The libraries are built as in a release, without debug information, and without `RUSTFLAGS` of the outer build, which may
//! be for another purpose (sanitizers, loom). In a target without them the files are empty, and `cuguard run` names the reason.
//! So it is in a clone's build without optimisation, where the command takes the libraries that cargo built beside it: most of
//! the time of a build of the tests would go into this.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A library that the command contains.
struct Library {
    package: &'static str,
    /// The variable with the package's folder: its build script sets it, through `links` in its manifest.
    folder: &'static str,
    /// The file that cargo builds.
    file: &'static str,
    /// The variable with a hash of its content, for the command.
    hash: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        package: "cuguard-audit",
        folder: "DEP_CUGUARD_AUDIT_FOLDER",
        file: "libcuguard_audit",
        hash: "CUGUARD_AUDIT_HASH",
    },
    Library {
        package: "cuguard-libcuda-sim",
        folder: "DEP_CUGUARD_LIBCUDA_SIM_FOLDER",
        file: "libcuda_sim",
        hash: "CUGUARD_SIMULATION_HASH",
    },
];

fn main() {
    // Without any such line, cargo would run this again for every change in the package.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    let out = PathBuf::from(variable("OUT_DIR"));
    let is_built = is_supported() && !is_check() && !is_development();
    let folder = is_built.then(|| build(&out));
    for Library { file, hash, .. } in LIBRARIES {
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
            write(&library, &content);
        }
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        println!("cargo::rustc-env={hash}={:016x}", hasher.finish());
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}

fn write(file: &Path, content: &[u8]) {
    fs::write(file, content)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}

/// Whether the command depends on the libraries in this target: `Cargo.toml` has the list.
fn is_supported() -> bool {
    LIBRARIES
        .iter()
        .all(|library| env::var_os(library.folder).is_some())
}

/// Whether nothing is built, as with clippy or documentation of docs.rs. `cargo check` cannot be told apart.
fn is_check() -> bool {
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    wrapper.to_string_lossy().contains("clippy") || env::var_os("DOCS_RS").is_some()
}

/// Whether this is a build without optimisation in a clone. `PROFILE` is `release` for all profiles that inherit from it.
fn is_development() -> bool {
    variable("PROFILE") == "debug" && package().join("../audit/Cargo.toml").is_file()
}

/// The folder of this package.
fn package() -> PathBuf {
    PathBuf::from(variable("CARGO_MANIFEST_DIR"))
}

/// Builds the libraries, and returns the folder in which they are.
fn build(out: &Path) -> PathBuf {
    let project = out.join("libraries");
    fs::create_dir_all(&project)
        .unwrap_or_else(|error| panic!("cannot create {}: {error}", project.display()));
    write_project(&project);
    choose_versions(&project);
    let (target, folder) = (variable("TARGET"), project.join("target"));
    let mut cargo = cargo(&project, "build");
    cargo
        .args(["--lib", "--release", "--quiet"])
        .args(["--config", "profile.release.debug=0"])
        .args(["--config", "profile.release.strip=\"symbols\""])
        // Of all places where cargo may keep what it builds: one that the outer cargo has locked would never be free.
        .arg("--config")
        .arg(format!("build.build-dir={folder:?}"))
        .arg("--target-dir")
        .arg(&folder);
    for Library { package, .. } in LIBRARIES {
        cargo.args(["--package", package]);
    }
    let output = run(&mut cargo);
    assert!(
        output.status.success(),
        "the audit library and the simulated GPU cannot be built: {cargo:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    folder.join(&target).join("release")
}

/// Writes a package that depends on those of the libraries.
fn write_project(project: &Path) {
    let mut manifest = String::from(
        "[package]\nname = \"libraries\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [lib]\npath = \"lib.rs\"\n\n[workspace]\n\n[dependencies]\n",
    );
    for library in LIBRARIES {
        let (package, folder) = (library.package, variable(library.folder));
        manifest += &format!("{package} = {{ path = {folder:?} }}\n");
    }
    write(&project.join("Cargo.toml"), manifest.as_bytes());
    write(&project.join("lib.rs"), b"");
}

/// Writes a lock file with versions that have been downloaded: those of the lock file of this package or its workspace, which
/// the outer build uses too, or else, as after `cargo install` without `--locked`, the newest.
fn choose_versions(project: &Path) {
    let own = project.join("Cargo.lock");
    let package = package();
    let locks = package.ancestors().map(|folder| folder.join("Cargo.lock"));
    if let Some(lock) = locks.into_iter().find(|lock| lock.is_file()) {
        println!("cargo::rerun-if-changed={}", lock.display());
        let content = fs::read(&lock)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", lock.display()));
        write(&own, &content);
        if run(&mut cargo(project, "fetch")).status.success() {
            return;
        }
    }
    // It is missing, or was written by an earlier run.
    let _ = fs::remove_file(&own);
}

/// Cargo with a command on the project. It runs in this package's folder, for the configuration of the clone or of the vendored
/// sources.
fn cargo(project: &Path, command: &str) -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([command, "--offline", "--target", &variable("TARGET")])
        .arg("--manifest-path")
        .arg(project.join("Cargo.toml"))
        .current_dir(package())
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_INCREMENTAL", "0");
    cargo
}

fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
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
}
