//! Compiles the C library and links it with `-lcuda`, as the build script of any crate with CUDA code in C.

fn main() {
    println!("cargo:rerun-if-changed=src/calls.c");
    cc::Build::new()
        .file("src/calls.c")
        .warnings_into_errors(true)
        .compile("cuguard_foreign_calls");
    println!("cargo:rustc-link-lib=cuda");
}
