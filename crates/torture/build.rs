//! Lists the fuzzer's seeds for `tests/seeds.rs`, with their bytes: a test that was copied to a machine
//! without the sources still has them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let seeds = Path::new(&root).join("../../fuzz/seeds");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", seeds.display());
    let mut list = String::from("&[\n");
    for target in files(&seeds) {
        for seed in files(&target) {
            let name = |path: &Path| path.file_name().map(|name| name.display().to_string());
            let (target, name) = (name(&target), name(&seed));
            let (target, name) = target.zip(name).expect("an entry has a name");
            let seed = fs::canonicalize(&seed).expect("it was just listed");
            let file = seed.display().to_string();
            let _ = writeln!(list, "({target:?}, {name:?}, include_bytes!({file:?})),");
        }
    }
    list.push(']');
    fs::write(Path::new(&out).join("seeds.rs"), list).expect("cargo's folder can be written to");
}

/// What is in a folder, sorted; nothing where there is no such folder, as in a package of this crate
/// alone.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}
