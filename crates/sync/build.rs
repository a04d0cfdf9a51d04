//! Says what is missing where `cust` cannot be built, with the feature `check-cust`, which `cuguard` turns on with `cust`.
//!
//! Otherwise the build ends with "Could not find a cuda installation", in the build script of `cust_raw`, after most crates
//! are compiled. Nothing can be ordered before that script. But cargo starts with what most other crates wait for: this
//! crate, and this script, which waits for nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const HELP: [&str; 8] = [
    "no CUDA toolkit was found, and CUDA_LIBRARY_PATH names no folder that contains `lib64`:",
    "the crate cust_raw, which the feature `cust` of cuguard needs, cannot be built.",
    "Without the feature nothing is missing. Wherever your program depends on cuguard:",
    "    cuguard = { ..., default-features = false, features = [\"nvml\"] }",
    "With it an empty folder is enough. In the folder of your program:",
    "    mkdir -p .cargo/no-cuda/lib64 && touch .cargo/no-cuda/lib64/.gitkeep",
    "    printf '\\n[env.CUDA_LIBRARY_PATH]\\nvalue = \".cargo/no-cuda\"\\nrelative = true\\n' >> .cargo/config.toml",
    "A toolkit that is not in /usr/local/cuda* or /opt/cuda is found if CUDA_LIBRARY_PATH is its folder.",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CUDA_LIBRARY_PATH");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let checks = env::var_os("CARGO_FEATURE_CHECK_CUST").is_some();
    // On docs.rs `cust_raw` looks for nothing.
    if !checks || env::var_os("DOCS_RS").is_some() {
        return;
    }
    if !folders().iter().any(|folder| has_toolkit(folder)) {
        for line in HELP {
            println!("cargo::error={line}");
        }
    }
}

/// Where `cust_raw` looks, in `find_cuda_lib_dirs` of the crate `find_cuda_helper` 0.2.
fn folders() -> Vec<PathBuf> {
    let mut folders = vec!["/opt/cuda".into(), "/usr/local/cuda".into()];
    if let Some(path) = env::var_os("CUDA_LIBRARY_PATH") {
        folders.extend(env::split_paths(&path));
    }
    for entry in fs::read_dir("/usr/local").into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"cuda-") {
            folders.push(entry.path());
        }
    }
    folders
}

fn has_toolkit(folder: &Path) -> bool {
    folder.join("lib64").is_dir() || folder.join("targets/x86_64-linux/include/cuda.h").is_file()
}
