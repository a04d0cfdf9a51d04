//! Writes an empty `libcuda.a` where the linker finds it.
//!
//! `cust_raw` links with `-lcuda`, and so does other code that calls the driver. This crate defines every function of
//! the driver API, so nothing is needed from that library; but linking fails if there is none. A function that is
//! in no header is an "undefined symbol", as it is defined neither here nor in an empty archive.

use std::path::PathBuf;
use std::{env, fs};

/// An archive without members.
const EMPTY_ARCHIVE: &[u8] = b"!<arch>\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let archive = folder.join("libcuda.a");
    fs::write(&archive, EMPTY_ARCHIVE)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", archive.display()));
    println!("cargo:rustc-link-search=native={}", folder.display());
}
