//! Gives the library the name that programs look for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The linker notes this name, not the file's, in a program that is linked against the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
