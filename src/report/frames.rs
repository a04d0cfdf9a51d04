//! Which frames of a stack a person wrote, and paths as a person knows them.

use std::borrow::Cow;
use std::env;

use super::symbols::{Frame, Symbol};

/// How many frames are shown of a stack on which nobody's own are found.
const SOME: usize = 8;

/// Where a function comes from, as far as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Written by a person, or by somebody whose library a person chose to use.
    Person,
    /// This crate.
    Guard,
    /// The standard library, the language's runtime, the C library's start, the test harness.
    Runtime,
}

/// Crates whose frames say nothing about the program.
const RUNTIME_CRATES: [&str; 7] = [
    "std",
    "core",
    "alloc",
    "test",
    "proc_macro",
    "backtrace",
    "__rustc",
];

/// This crate and those that it is built on.
const GUARD_CRATES: [&str; 5] = [
    "cuguard",
    "cuguard_driver",
    "cuguard_sim",
    "cuguard_stack",
    "cuguard_sys",
];

/// Where the functions of these crates are written: in their repository, and for those that this
/// one is built on, where cargo keeps what it has downloaded.
const OWN_FILES: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/crates/"),
];
const OWN_FOLDERS: [&str; 4] = [
    "/cuguard-driver-",
    "/cuguard-sim-",
    "/cuguard-stack-",
    "/cuguard-sys-",
];

/// Folders of a package that hold code.
const CODE_FOLDERS: [&str; 4] = ["src", "examples", "tests", "benches"];

/// Functions without a path that start programs and threads.
const STARTERS: [&str; 9] = [
    "_start",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "thread_start",
    "_pthread_start",
    "rust_begin_unwind",
];

/// Marks the frames that a person wrote. When there are none, the innermost ones that are not the
/// runtime's are marked instead; and when there are none of those either, the innermost.
pub(super) fn mark(frames: &mut [Frame]) {
    // The runtime calls the program through this function. What lies outside is never a person's.
    let end = frames
        .iter()
        .position(|frame| name(frame).contains("__rust_begin_short_backtrace"))
        .unwrap_or(frames.len());
    let inside = &mut frames[..end];
    let mut any = false;
    for frame in inside.iter_mut() {
        frame.yours = source(&frame.symbol) == Source::Person && frame.symbol.function.is_some();
        any |= frame.yours;
    }
    if any {
        return;
    }
    let known = inside
        .iter()
        .any(|frame| source(&frame.symbol) != Source::Runtime);
    let others = inside
        .iter_mut()
        .filter(|frame| !known || source(&frame.symbol) != Source::Runtime);
    others.take(SOME).for_each(|frame| frame.yours = true);
}

fn name(frame: &Frame) -> &str {
    frame.symbol.function.as_deref().unwrap_or_default()
}

fn source(symbol: &Symbol) -> Source {
    let Some(name) = symbol.function.as_deref() else {
        return Source::Person;
    };
    if !is_path(name) {
        return source_by_file(name, symbol.file.as_deref());
    }
    let krate = crate_of(name);
    if GUARD_CRATES.contains(&krate) {
        Source::Guard
    } else if RUNTIME_CRATES.contains(&krate) || krate.is_empty() {
        Source::Runtime
    } else {
        Source::Person
    }
}

/// Functions of C have no path in their names, and where there is little debug information, some
/// functions of Rust neither.
fn source_by_file(name: &str, file: Option<&str>) -> Source {
    if STARTERS.contains(&name)
        || ["__libc_start", "__rust_", "_Unwind_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    {
        return Source::Runtime;
    }
    match file {
        // The `main` that the compiler makes has no file; one that a person wrote in C has.
        None if name == "main" => Source::Runtime,
        None => Source::Person,
        Some(file) if in_library(file).is_some() || file.contains("/backtrace-0.") => {
            Source::Runtime
        }
        Some(file) if is_own(file) => Source::Guard,
        Some(_) => Source::Person,
    }
}

fn is_own(file: &str) -> bool {
    // The compiler may have been told to write other paths down; then it did so for this file too.
    let here = file!().strip_suffix("report/frames.rs");
    let here = here.filter(|folder| folder.starts_with('/'));
    OWN_FILES.iter().any(|folder| file.starts_with(folder))
        || OWN_FOLDERS.iter().any(|folder| file.contains(folder))
        || here.is_some_and(|folder| file.starts_with(folder))
}

/// Whether the name of a function says which crate it is of.
fn is_path(name: &str) -> bool {
    name.starts_with('<') || !first_part(name).is_empty()
}

/// The part of a path that lies in the sources of the standard library: where the compiler says it
/// was built, `/rustc/59807616e1f/library/std/src/rt.rs`, or where the sources are installed.
fn in_library(path: &str) -> Option<&str> {
    let known = path.starts_with("/rustc/") || path.contains("/lib/rustlib/src/");
    path.split_once("/library/")
        .filter(|_| known)
        .map(|(_, rest)| rest)
}

/// The crate that a function belongs to: the first part of its path, and for a method of a trait
/// the first part of the type that has it, or of the trait where the type has no path. Empty when
/// neither has one, as with methods of `[T]`, which are the standard library's.
fn crate_of(name: &str) -> &str {
    let Some(inner) = name.strip_prefix('<') else {
        return first_part(name);
    };
    let (of, method) = inner.split_once(" as ").unwrap_or((inner, ""));
    let first = first_part(of);
    if first.is_empty() {
        first_part(method)
    } else {
        first
    }
}

/// The first part of a path, past what may stand before it: `&mut `, `dyn `, `[`, …
fn first_part(path: &str) -> &str {
    let mut path = path;
    loop {
        path = path.trim_start_matches(['<', '&', '*', '(', '[', ' ']);
        let shorter = ["mut ", "const ", "dyn ", "impl "]
            .iter()
            .find_map(|prefix| path.strip_prefix(prefix));
        match shorter {
            Some(shorter) => path = shorter,
            None => break,
        }
    }
    let end = path
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(path.len());
    let (first, rest) = path.split_at(end);
    // In the newer way to write names a crate has a hash behind it: `app[0f2a]::main`.
    let rest = match rest.strip_prefix('[') {
        Some(hash) => hash.split_once(']').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    if rest.starts_with("::") { first } else { "" }
}

/// Makes paths short: relative to where a person is, or to the crate that they are of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    current: Option<String>,
    home: Option<String>,
}

impl Paths {
    pub(crate) fn new() -> Self {
        let folder = |path: Option<std::path::PathBuf>| {
            let path = path?.into_os_string().into_string().ok()?;
            // A program that runs in `/` must not make every path relative.
            Some(path.trim_end_matches('/').to_owned()).filter(|path| !path.is_empty())
        };
        Self {
            current: folder(env::current_dir().ok()),
            home: folder(env::home_dir()),
        }
    }

    pub(crate) fn shorten<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if let Some(rest) = below(path, self.current.as_deref()) {
            return rest.into();
        }
        // ~/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/log-0.4.0/src/lib.rs
        if let Some((_, rest)) = path.split_once("/registry/src/")
            && let Some((_, in_crate)) = rest.split_once('/')
        {
            return in_crate.into();
        }
        // ~/.cargo/git/checkouts/log-7f3c2a/1a2b3c4/src/lib.rs
        if let Some((_, rest)) = path.split_once("/git/checkouts/")
            && let Some((name, rest)) = rest.split_once('/')
            && let Some((_, in_crate)) = rest.split_once('/')
        {
            let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
            return format!("{name}/{in_crate}").into();
        }
        if let Some(rest) = in_library(path) {
            return rest.into();
        }
        match below(path, self.home.as_deref()) {
            Some(rest) => format!("~/{rest}").into(),
            None => in_package(path).into(),
        }
    }
}

/// The part of a path from the folder of its package on: `/build/1234/app/src/main.rs` was built
/// somewhere else, and a person knows it as `app/src/main.rs`.
///
/// The text alone must tell, as the folder may not be there any more. The last folder of code counts
/// (`/usr/src/app/src/main.rs`), and those right before it (`app/src/tests/a.rs`).
fn in_package(path: &str) -> &str {
    if !path.starts_with('/') {
        return path;
    }
    let is_code = |end: usize| {
        let folder = path[..end].rsplit('/').next();
        folder.is_some_and(|folder| CODE_FOLDERS.contains(&folder))
    };
    // Where each folder ends, from the last to the first.
    let mut ends = path.rmatch_indices('/').map(|(end, _)| end).peekable();
    while ends.next_if(|end| !is_code(*end)).is_some() {}
    if ends.peek().is_none() {
        return path;
    }
    while ends.next_if(|end| is_code(*end)).is_some() {}
    // Here ends the package's folder; it begins after the slash before.
    ends.next();
    ends.next().map_or(&path[1..], |begin| &path[begin + 1..])
}

/// The rest of a path that lies below a folder.
fn below<'a>(path: &'a str, folder: Option<&str>) -> Option<&'a str> {
    path.strip_prefix(folder?)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{Paths, Source, crate_of, mark, source};
    use crate::report::symbols::{Frame, Symbol};

    fn symbol(name: &str) -> Symbol {
        Symbol {
            function: Some(name.to_owned()),
            ..Symbol::default()
        }
    }

    fn marked(names: &[&str]) -> Vec<String> {
        let mut frames: Vec<_> = names
            .iter()
            .map(|name| Frame {
                address: 1,
                symbol: Rc::new(symbol(name)),
                inlined: false,
                yours: false,
            })
            .collect();
        mark(&mut frames);
        let yours = frames.iter().filter(|frame| frame.yours);
        yours
            .map(|frame| frame.symbol.function.clone().unwrap())
            .collect()
    }

    #[test]
    fn the_crate_of_a_function() {
        for (name, expected) in [
            ("app::load", "app"),
            ("app[0f2a]::load", "app"),
            ("app::load::{{closure}}", "app"),
            ("<app::Thing as core::ops::drop::Drop>::drop", "app"),
            ("<T as core::convert::Into<U>>::into", "core"),
            ("<&mut app::Iter as core::iter::Iterator>::next", "app"),
            ("<dyn app::Trait>::call", "app"),
            (
                "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
                "alloc",
            ),
            ("<[T]>::to_vec", ""),
            ("<[app::Thing]>::to_vec", "app"),
            ("core::ptr::drop_in_place<app::Thing>", "core"),
            ("<cuguard::memory::DeviceBuffer<f32>>::zeroed", "cuguard"),
            (
                "<cuguard[ab12]::Context as core::ops::drop::Drop>::drop",
                "cuguard",
            ),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }

    #[test]
    fn sources() {
        for (name, expected) in [
            ("__libc_start_call_main", Source::Runtime),
            ("main", Source::Runtime),
            ("callback_from_c", Source::Person),
            ("cuguardian::x", Source::Person),
            ("std::rt::lang_start", Source::Runtime),
            ("cuguard::registry::table::Registry::insert", Source::Guard),
        ] {
            assert_eq!(source(&symbol(name)), expected, "{name}");
        }
        let in_c = Symbol {
            file: Some("main.c".to_owned()),
            ..symbol("main")
        };
        assert_eq!(source(&in_c), Source::Person);
    }

    /// Where there is little debug information, inlined functions have no path in their names.
    #[test]
    fn names_without_a_crate_are_judged_by_their_files() {
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/memory/device_buffer.rs");
        let stack = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/stack/src/lib.rs");
        let downloaded = "/x/registry/src/index/cuguard-stack-0.1.0/src/lib.rs";
        for (name, file, expected) in [
            ("zeroed<f32>", own, Source::Guard),
            ("capture", stack, Source::Guard),
            ("capture", downloaded, Source::Guard),
            ("{closure#0}", "/build/app/src/main.rs", Source::Person),
            ("remember_forever", "src/main.rs", Source::Person),
            (
                "call_once<app::main::{closure_env#0}, ()>",
                "/rustc/59807616e1f/library/core/src/ops/function.rs",
                Source::Runtime,
            ),
            (
                "trace<backtrace::capture::{closure_env#0}>",
                "/x/registry/src/index/backtrace-0.3.77/src/backtrace/mod.rs",
                Source::Runtime,
            ),
        ] {
            let symbol = Symbol {
                file: Some(file.to_owned()),
                ..symbol(name)
            };
            assert_eq!(source(&symbol), expected, "{name}");
        }
    }

    #[test]
    fn only_what_a_person_wrote_is_left() {
        let stack = [
            "backtrace::backtrace::trace",
            "cuguard::registry::table::Registry::insert",
            "<cuguard::DeviceBuffer<T>>::zeroed",
            "app::load_weights",
            "core::iter::traits::iterator::Iterator::map",
            "app::main",
            "core::ops::function::FnOnce::call_once",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "app::looks_like_a_persons_but_is_outside",
            "main",
            "__libc_start_main@@GLIBC_2.34",
            "_start",
        ];
        assert_eq!(marked(&stack), ["app::load_weights", "app::main"]);
    }

    #[test]
    fn when_all_is_cut_the_innermost_that_is_not_the_runtimes_is_shown() {
        let stack = [
            "backtrace::trace",
            "cuguard::a",
            "std::x",
            "cuguard::b",
            "main",
        ];
        assert_eq!(marked(&stack), ["cuguard::a", "cuguard::b"]);
        assert_eq!(marked(&["std::a", "core::b"]), ["std::a", "core::b"]);
        assert!(marked(&[]).is_empty());
    }

    #[test]
    fn a_stripped_program_shows_its_innermost_addresses() {
        let frame = Frame {
            address: 7,
            symbol: Rc::default(),
            inlined: false,
            yours: false,
        };
        let mut frames = vec![frame; 20];
        mark(&mut frames);
        assert_eq!(
            frames.iter().filter(|frame| frame.yours).count(),
            super::SOME
        );
    }

    #[test]
    fn paths_are_what_a_person_knows() {
        let paths = Paths {
            current: Some("/home/ann/app".to_owned()),
            home: Some("/home/ann".to_owned()),
        };
        for (path, expected) in [
            ("/home/ann/app/src/main.rs", "src/main.rs"),
            ("src/main.rs", "src/main.rs"),
            ("/home/ann/application/x.rs", "~/application/x.rs"),
            (
                "/home/ann/.cargo/registry/src/index.crates.io-1949/log-0.4.0/src/lib.rs",
                "log-0.4.0/src/lib.rs",
            ),
            (
                "/home/ann/.cargo/git/checkouts/my-log-7f3c/1a2b/src/lib.rs",
                "my-log/src/lib.rs",
            ),
            ("/rustc/59807616e1f/library/core/src/x.rs", "core/src/x.rs"),
            (
                "/x/lib/rustlib/src/rust/library/std/src/rt.rs",
                "std/src/rt.rs",
            ),
            ("/srv/library/src/x.rs", "library/src/x.rs"),
            ("/build/xyz/app/src/main.rs", "app/src/main.rs"),
            ("/build/app/examples/a/main.rs", "app/examples/a/main.rs"),
            ("/usr/src/app/src/net/http.rs", "app/src/net/http.rs"),
            ("/usr/src/app/benches/a.rs", "app/benches/a.rs"),
            ("/app/src/tests/a.rs", "app/src/tests/a.rs"),
            ("/src/main.rs", "src/main.rs"),
            ("/build/app/build.rs", "/build/app/build.rs"),
            ("/build/resources/src.rs", "/build/resources/src.rs"),
            ("/build/mysrc/a.rs", "/build/mysrc/a.rs"),
            ("/home/ann/other/src/a.rs", "~/other/src/a.rs"),
            ("build/app/src/a.rs", "build/app/src/a.rs"),
            ("", ""),
        ] {
            assert_eq!(paths.shorten(path), expected);
        }
        assert_eq!(Paths::default().shorten("/a/b.rs"), "/a/b.rs");
    }
}
