//! Which frames of a stack a person wrote, which are this crate's and which the runtime's.

use super::paths::in_library;
use super::symbols::{Frame, Symbol};

/// How many frames are shown of a stack on which none of the program's are found.
const SOME: usize = 8;

/// How many of the innermost frames without a name may be this crate's: in a stripped program nobody
/// knows. Where the optimiser inlines, there are fewer.
const OWN_UNNAMED: usize = if cfg!(debug_assertions) { 16 } else { 8 };

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

/// Libraries that start programs and threads, where their functions have no names.
const STARTING_LIBRARIES: [&str; 4] = ["libc.so", "libc-", "ld-", "libpthread"];

/// Whether this is the function through which the runtime calls the program. What lies outside of it
/// is never a person's.
pub(super) fn is_start(symbol: &Symbol) -> bool {
    let name = symbol.function.as_deref().unwrap_or_default();
    name.contains("__rust_begin_short_backtrace")
}

/// Marks the frames that a person wrote and those of this crate. A frame without a name may be
/// anybody's, and counts as a person's: in a stripped program these are all that there is. When there
/// are none, the innermost ones that are not the runtime's are marked instead; and when there are none
/// of those either, the innermost.
pub(super) fn mark(frames: &mut [Frame]) {
    let start = frames.iter().position(|frame| is_start(&frame.symbol));
    let end = start.unwrap_or(frames.len());
    let inside = &mut frames[..end];
    for frame in inside.iter_mut() {
        let source = source_of(frame);
        (frame.in_app, frame.own) = (source == Source::Person, source == Source::Guard);
    }
    if inside.iter().any(|frame| frame.in_app) {
        return;
    }
    let known = inside.iter().any(|frame| frame.own);
    let others = inside.iter_mut().filter(|frame| !known || frame.own);
    // There is nothing else on this stack, so nothing is left out as this crate's.
    for (index, frame) in others.enumerate() {
        (frame.in_app, frame.own) = (index < SOME, false);
    }
}

/// Leaves out this crate's frames, those of the runtime that lie inside the innermost frame of the
/// program, and what follows `depth` frames that a person wrote. Of the innermost frames without a
/// name some are this crate's: so many more are left.
pub(super) fn cut(frames: &mut Vec<Frame>, depth: usize) {
    // Where this crate's frames have names, those without one are not this crate's.
    let known = frames.iter().any(|frame| frame.own);
    frames.retain(|frame| !frame.own);
    let inner = frames.iter().position(|frame| frame.in_app).unwrap_or(0);
    frames.drain(..inner);
    let is_named = |frame: &Frame| frame.symbol.function.is_some();
    let unnamed = frames.iter().take_while(|frame| !is_named(frame)).count();
    let own = if known { 0 } else { unnamed.min(OWN_UNNAMED) };
    let mut count = 0;
    let end = frames.iter().skip(own).position(|frame| {
        count += usize::from(frame.in_app);
        count > depth
    });
    frames.truncate(end.map_or(frames.len(), |end| own + end));
}

fn source_of(frame: &Frame) -> Source {
    let library = frame.spot.as_ref().map_or("", |spot| spot.name());
    let starts = || {
        STARTING_LIBRARIES
            .iter()
            .any(|name| library.starts_with(name))
    };
    match frame.symbol.function {
        None if starts() => Source::Runtime,
        _ => source(&frame.symbol),
    }
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

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{OWN_UNNAMED, Source, crate_of, cut, mark, source};
    use crate::symbols::{Frame, Spot, Symbol};

    fn symbol(name: &str) -> Symbol {
        Symbol {
            function: Some(name.to_owned()),
            ..Symbol::default()
        }
    }

    fn frame(name: Option<&str>) -> Frame {
        Frame {
            address: 1,
            symbol: Rc::new(name.map(symbol).unwrap_or_default()),
            spot: None,
            inlined: false,
            own: false,
            in_app: false,
        }
    }

    fn frames(names: &[&str]) -> Vec<Frame> {
        let mut frames: Vec<_> = names.iter().map(|name| frame(Some(name))).collect();
        mark(&mut frames);
        frames
    }

    fn names<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<&'f str> {
        let names = frames.into_iter().map(|f| f.symbol.function.as_deref());
        names.map(Option::unwrap_or_default).collect()
    }

    fn marked(stack: &[&str]) -> Vec<String> {
        let frames = frames(stack);
        let in_app = names(frames.iter().filter(|frame| frame.in_app));
        in_app.into_iter().map(str::to_owned).collect()
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
    fn the_depth_counts_frames_of_the_program() {
        let stack = [
            "cuguard::place::stack",
            "<cuguard::DeviceBuffer<T>>::zeroed",
            "app::load_weights",
            "core::iter::traits::iterator::Iterator::map",
            "app::run",
            "app::main",
        ];
        // Frames of the runtime in between stay, and count for nothing.
        for (depth, shown) in [(1, 2), (2, 3), (3, 4), (9, 4)] {
            let mut frames = frames(&stack);
            cut(&mut frames, depth);
            assert_eq!(names(&frames), stack[2..2 + shown], "{depth}");
        }
    }

    /// What a generic function of this crate is called through says nothing about the program.
    #[test]
    fn a_stack_begins_with_a_frame_of_the_program() {
        let stack = [
            "core::option::Option<T>::map",
            "cuguard::place::stack",
            "std::thread::local::LocalKey<T>::try_with",
            "app::load_weights",
            "core::iter::traits::iterator::Iterator::map",
            "app::main",
        ];
        let mut frames = frames(&stack);
        cut(&mut frames, 9);
        assert_eq!(names(&frames), stack[3..]);
    }

    /// Some of the innermost addresses are this crate's, and nobody knows which.
    #[test]
    fn a_stripped_program_shows_the_depth_and_what_may_be_this_crates() {
        let mut stack = vec![frame(None); 20];
        let in_libc = Spot {
            module: "/usr/lib/x86_64-linux-gnu/libc.so.6".into(),
            offset: 1,
            build_id: "".into(),
        };
        stack[19].spot = Some(in_libc);
        mark(&mut stack);
        assert_eq!(stack.iter().filter(|frame| frame.in_app).count(), 19);
        cut(&mut stack, 1);
        assert_eq!(stack.len(), OWN_UNNAMED + 1);
        // Also where this crate's functions have names and the program's have none.
        let mut stack = vec![frame(Some("cuguard::a")), frame(None), frame(None)];
        mark(&mut stack);
        assert!(stack[1].in_app && stack[2].in_app);
        cut(&mut stack, 1);
        assert_eq!(names(&stack), [""]);
    }
}
