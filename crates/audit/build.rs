//! Tells the build script of `cuguard-cli` where the sources of this package are: it builds the library once more.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::metadata=folder={folder}");
}
