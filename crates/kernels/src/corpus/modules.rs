//! The files of the corpus.

/// A module of the corpus.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The file's name, without its extension.
    pub name: &'static str,
    /// The compiler.
    pub compiler: &'static str,
    /// What it made.
    pub ptx: &'static str,
    /// The launches, a line each.
    pub launches: &'static str,
}

macro_rules! modules {
    ($($compiler:literal: $($name:literal)*;)*) => {
        /// All modules.
        pub const MODULES: &[Module] = &[$($(
            Module {
                name: $name,
                compiler: $compiler,
                ptx: include_str!(concat!("../../corpus/", $name, ".ptx")),
                launches: include_str!(concat!("../../corpus/", $name, ".launches")),
            },
        )*)*];
    };
}

modules! {
    "nvcc": "algorithms" "groups" "language" "matrices" "numbers" "vectors" "blocks" "sorting" "science" "halves" "tensor"
        "cooperation" "approximate";
    "nvrtc": "integers" "atomics";
    "clang": "clang";
    "numba": "numba";
    "rustc": "rust";
}
