//! Sets the library's soname.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs that are linked against the library record this name, not the file's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
