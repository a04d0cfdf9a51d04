//! Sets the library's soname, and tells the build script of `cuguard-cli` where the sources of this package are: it builds the
//! library once more.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that are linked against the library record this name, not the file's.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::metadata=folder={folder}");
}
