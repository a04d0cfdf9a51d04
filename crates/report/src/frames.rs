//! Which frames of a stack trace are the program's own, which are of these crates, and which of the runtime.

use crate::cpp_names::{is_cpp, is_standard_library, without_return_type};
use crate::paths::in_library;
use crate::symbols::{Frame, Symbol, is_start};

/// How many frames are shown of a stack trace without any frame of the program.
const FALLBACK: usize = 8;

/// How many of the innermost frames without a name may be of these crates, in a stripped program. Fewer
/// where the optimizer inlines.
const OWN_UNNAMED: usize = if cfg!(debug_assertions) { 16 } else { 8 };

/// Where a function comes from, judged by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The program, or a library that it uses.
    App,
    /// These crates.
    Own,
    /// The standard library, the language's runtime, the C library's start, the test harness.
    Runtime,
}

/// Crates of the runtime.
const RUNTIME_CRATES: [&str; 7] = [
    "std",
    "core",
    "alloc",
    "test",
    "proc_macro",
    "backtrace",
    "__rustc",
];

/// These crates.
const OWN_CRATES: [&str; 13] = [
    "cuguard",
    "cuguard_audit",
    "cuguard_driver",
    "cuguard_live",
    "cuguard_nvml",
    "cuguard_pool",
    "cuguard_recording",
    "cuguard_registry",
    "cuguard_report",
    "cuguard_sim",
    "cuguard_stack",
    "cuguard_sync",
    "cuguard_sys",
];

/// The folder of this crate in the repository.
const CRATE_FOLDER: &str = "crates/report";

/// Functions without a path that start programs and threads.
const ENTRY_FUNCTIONS: [&str; 9] = [
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

/// Libraries that start programs and threads, for functions without a name.
const ENTRY_LIBRARIES: [&str; 4] = ["libc.so", "libc-", "ld-", "libpthread"];

/// Marks the frames of the program and those of these crates. A frame without a name counts as the
/// program's: a stripped program has no others. Without any frame of the program, the innermost frames of
/// these crates are marked instead, and without those the innermost frames. Frames outside of the function
/// through which the runtime calls the program are never marked.
pub(crate) fn mark(frames: &mut [Frame]) {
    let start = frames.iter().position(|frame| is_start(&frame.symbol));
    let end = start.unwrap_or(frames.len());
    let inside = &mut frames[..end];
    for frame in inside.iter_mut() {
        let source = source_of(frame);
        (frame.in_app, frame.own) = (source == Source::App, source == Source::Own);
    }
    if inside.iter().any(|frame| frame.in_app) {
        return;
    }
    let known = inside.iter().any(|frame| frame.own);
    let others = inside.iter_mut().filter(|frame| !known || frame.own);
    // There is nothing else to show, so no frame is left out as one of these crates.
    for (index, frame) in others.enumerate() {
        (frame.in_app, frame.own) = (index < FALLBACK, false);
    }
}

/// Removes frames of these crates, frames of the runtime inside the innermost frame of the program, and
/// what follows `depth` frames of the program. Some of the innermost frames without a name may be of these
/// crates, and do not count.
pub(crate) fn cut(frames: &mut Vec<Frame>, depth: usize) {
    // Where frames of these crates have names, those without one are the program's.
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
    let library = frame.module.as_ref().map_or("", |module| module.name());
    let Symbol { function, file, .. } = &*frame.symbol;
    source_of_names(function.as_deref(), file.as_deref(), library)
}

/// The same for a frame of another process: its function, its source file, and the file name of its module.
pub(crate) fn source_of_names(function: Option<&str>, file: Option<&str>, library: &str) -> Source {
    let is_entry = || ENTRY_LIBRARIES.iter().any(|name| library.starts_with(name));
    match function {
        None if is_entry() => Source::Runtime,
        None => Source::App,
        Some(name) if is_standard_library(name, file) => Source::Runtime,
        // A namespace of C++ is no crate.
        Some(name) if file.is_some_and(is_cpp) => source_by_file(name, file),
        Some(name) => source(without_return_type(name), file),
    }
}

fn source(name: &str, file: Option<&str>) -> Source {
    if !is_path(name) {
        return source_by_file(name, file);
    }
    let krate = crate_of(name);
    if OWN_CRATES.contains(&krate) {
        Source::Own
    } else if RUNTIME_CRATES.contains(&krate) || krate.is_empty() {
        Source::Runtime
    } else {
        Source::App
    }
}

/// For names without a path: functions of C, and inlined functions with little debug information.
fn source_by_file(name: &str, file: Option<&str>) -> Source {
    if ENTRY_FUNCTIONS.contains(&name)
        || ["__libc_start", "__rust_", "_Unwind_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    {
        return Source::Runtime;
    }
    match file {
        // The `main` that the compiler generates has no file; one in C has.
        None if name == "main" => Source::Runtime,
        None => Source::App,
        Some(file) if in_library(file).is_some() || file.contains("/backtrace-0.") => {
            Source::Runtime
        }
        Some(file) if is_own(file) => Source::Own,
        Some(_) => Source::App,
    }
}

/// Whether a file is a source of these crates: in their repository, or where cargo keeps downloaded crates.
fn is_own(file: &str) -> bool {
    // A path that the compiler was told to remap was remapped for this file too.
    let here = file!().strip_suffix("/src/frames.rs").unwrap_or_default();
    let roots = [env!("CARGO_MANIFEST_DIR"), here].map(|folder| folder.strip_suffix(CRATE_FOLDER));
    let in_repository = roots.into_iter().flatten().any(|root| {
        let inside = file.strip_prefix(root).unwrap_or_default();
        let in_crate = inside
            .strip_prefix("crates/")
            .and_then(|inside| inside.split_once('/'))
            .is_some_and(|(_, inside)| inside.starts_with("src/"));
        root.starts_with('/') && (inside.starts_with("src/") || in_crate)
    });
    in_repository || file.split('/').any(is_own_package)
}

/// Whether a folder is a downloaded package of these crates: `cuguard-stack-0.1.0`.
fn is_own_package(folder: &str) -> bool {
    let Some((name, version)) = folder.rsplit_once('-') else {
        return false;
    };
    version.starts_with(|character: char| character.is_ascii_digit())
        && OWN_CRATES.contains(&name.replace('-', "_").as_str())
}

/// Whether the name of a function has a crate.
fn is_path(name: &str) -> bool {
    name.starts_with('<') || !first_part(name).is_empty()
}

/// The crate of a function: the first part of its path; for a trait method the first part of the type, or
/// of the trait where the type has no path. Empty when neither has one, as for methods of `[T]`, which are
/// the standard library's.
fn crate_of(name: &str) -> &str {
    let Some(inner) = name.strip_prefix('<') else {
        return first_part(name);
    };
    let (of, method) = inner.split_once(" as ").unwrap_or((inner, ""));
    let mut parts = [of, method].into_iter().map(first_part);
    parts.find(|first| !first.is_empty()).unwrap_or_default()
}

/// The first part of a path, after `&mut `, `dyn `, `[` and the like.
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
    // With v0 mangling a crate has a hash: `app[0f2a]::main`.
    let rest = match rest.strip_prefix('[') {
        Some(hash) => hash.split_once(']').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    if rest.starts_with("::") { first } else { "" }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use super::{OWN_UNNAMED, Source, crate_of, cut, mark};
    use crate::symbols::{Frame, ModuleOffset, Symbol};

    fn source(symbol: &Symbol) -> Source {
        super::source_of_names(symbol.function.as_deref(), symbol.file.as_deref(), "")
    }

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
            module: None,
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
            ("callback_from_c", Source::App),
            ("cuguardian::x", Source::App),
            ("std::rt::lang_start", Source::Runtime),
            ("cuguard::registry::table::Registry::insert", Source::Own),
            (
                "cuguard_registry::registry::Registry::insert_at",
                Source::Own,
            ),
            ("<cuguard_report::ReportSettings>::text", Source::Own),
            ("cuguard_sync::clock::nanoseconds", Source::Own),
            ("cuguard_nvml::processes", Source::Own),
        ] {
            assert_eq!(source(&symbol(name)), expected, "{name}");
        }
        let in_c = Symbol {
            file: Some("main.c".to_owned()),
            ..symbol("main")
        };
        assert_eq!(source(&in_c), Source::App);
    }

    /// Where there is little debug information, inlined functions have no path in their names.
    #[test]
    fn names_without_a_crate_are_judged_by_their_files() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let repository = crates.parent().unwrap();
        let in_repository = |file| repository.join(file).to_str().unwrap().to_owned();
        let own = in_repository("src/memory/device_buffer.rs");
        let example = in_repository("examples/leak_report.rs");
        let registry = in_repository("crates/registry/src/table.rs");
        let program = in_repository("crates/registry/tests/program.c");
        let downloaded = "/x/registry/src/index/cuguard-stack-0.1.0/src/lib.rs";
        for (name, file, expected) in [
            ("zeroed<f32>", own.as_str(), Source::Own),
            ("insert_at", registry.as_str(), Source::Own),
            ("load", program.as_str(), Source::App),
            ("main", example.as_str(), Source::App),
            ("capture", downloaded, Source::Own),
            ("zeroed<f32>", "/x/cuguard-0.1.0/src/lib.rs", Source::Own),
            ("run", "/x/cuguard-fork-0.1.0/src/lib.rs", Source::App),
            ("run", "/x/cuguard-stack-app/src/lib.rs", Source::App),
            ("{closure#0}", "/build/app/src/main.rs", Source::App),
            ("remember_forever", "src/main.rs", Source::App),
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
    fn only_frames_of_the_program_are_left() {
        let stack = [
            "backtrace::backtrace::trace",
            "cuguard::registry::table::Registry::insert",
            "<cuguard::DeviceBuffer<T>>::zeroed",
            "app::load_weights",
            "core::iter::traits::iterator::Iterator::map",
            "app::main",
            "core::ops::function::FnOnce::call_once",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "app::looks_like_the_programs_but_is_outside",
            "main",
            "__libc_start_main@@GLIBC_2.34",
            "_start",
        ];
        assert_eq!(marked(&stack), ["app::load_weights", "app::main"]);
    }

    #[test]
    fn without_frames_of_the_program_the_innermost_of_these_crates_are_shown() {
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
            "cuguard_registry::call_site::intern_stack",
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

    /// Frames of the runtime through which a generic function of these crates is called are cut.
    #[test]
    fn a_stack_begins_with_a_frame_of_the_program() {
        let stack = [
            "core::option::Option<T>::map",
            "cuguard_registry::call_site::intern_stack",
            "std::thread::local::LocalKey<T>::try_with",
            "app::load_weights",
            "core::iter::traits::iterator::Iterator::map",
            "app::main",
        ];
        let mut frames = frames(&stack);
        cut(&mut frames, 9);
        assert_eq!(names(&frames), stack[3..]);
    }

    /// Some of the innermost addresses are of these crates; which is not known.
    #[test]
    fn a_stripped_program_shows_the_depth_and_what_may_be_own_frames() {
        let mut stack = vec![frame(None); 20];
        let in_libc = ModuleOffset {
            path: "/usr/lib/x86_64-linux-gnu/libc.so.6".into(),
            offset: 1,
            build_id: "".into(),
            library: 0,
        };
        stack[19].module = Some(in_libc);
        mark(&mut stack);
        assert_eq!(stack.iter().filter(|frame| frame.in_app).count(), 19);
        cut(&mut stack, 1);
        assert_eq!(stack.len(), OWN_UNNAMED + 1);
        // Also where functions of these crates have names and the program's have none.
        let mut stack = vec![frame(Some("cuguard::a")), frame(None), frame(None)];
        mark(&mut stack);
        assert!(stack[1].in_app && stack[2].in_app);
        cut(&mut stack, 1);
        assert_eq!(names(&stack), [""]);
    }
}
