//! The frames of a leak report, in real processes: the program's own and not this crate's, also where
//! the program is stripped.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support;
use crate::support::json;
use cuguard::prelude::*;
use cuguard_testing::{Requirement, not_run};

/// An example, as cargo (or the bundle) puts it beside the tests.
fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program has a file");
    let folder = program.ancestors().nth(2);
    let file = folder
        .expect("it lies two folders deep")
        .join("examples")
        .join(name);
    assert!(file.is_file(), "{} is not there", file.display());
    file
}

/// What a program writes on standard error.
fn report(program: &Path, words: &str) -> String {
    let mut command = Command::new(program);
    let output = command
        .env("LEAK_REPORT", words)
        .env_remove("NO_COLOR")
        .output();
    support::succeeded(&output.expect("it can be started")).1
}

/// The lines with frames of the group that begins with these words.
fn frames<'t>(text: &'t str, group: &str) -> Vec<&'t str> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(group));
    lines
        .next()
        .unwrap_or_else(|| panic!("{group} is not in {text}"));
    let frames = lines.take_while(|line| line.starts_with(' '));
    let frames = frames.filter_map(|line| line.strip_prefix("    "));
    frames.map(str::trim_end).collect()
}

const GROUPS: [(&str, &str); 4] = [
    ("leaked 12 MiB in 3 allocations", "remember_forever"),
    ("leaked 3 MiB in 2 allocations", "layers_in_a_circle"),
    ("leaked 2 MiB in 1 allocation", "staging_area"),
    ("leaked 512 KiB in 1 allocation", "lost_on_a_stream"),
];

#[test]
fn a_depth_of_one_is_the_programs_innermost_frame() {
    let program = example("leak_report");
    for depth in [1, 2] {
        let text = report(&program, &format!("depth={depth}"));
        for (group, function) in GROUPS {
            let found = frames(&text, group);
            // What is indirect has as many frames.
            let groups = if function == "lost_on_a_stream" { 2 } else { 1 };
            assert_eq!(found.len(), depth * groups, "{text}");
            // An optimised program names a closure without the function that it is in.
            let named = found[0].contains(function) || found[0].contains("{closure");
            assert!(named, "{text}");
            assert!(found[0].contains("leak_report.rs:"), "{text}");
        }
    }
    let text = report(&program, "depth=1,level=stacks,json");
    assert!(text.contains("remember_forever"), "{text}");
}

/// Call sites have relative paths and frames whole ones; a reader in another folder can open both.
#[test]
fn the_close_is_shown_by_the_path_that_frames_have() {
    let folder = std::env::temp_dir().join(format!("cuguard-elsewhere-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program");
    std::fs::copy(example("leak_report"), &program).unwrap();
    let mut command = Command::new(&program);
    let command = command.env("LEAK_REPORT", "1").env_remove("NO_COLOR");
    let output = command.current_dir(&folder).output().unwrap();
    let text = support::succeeded(&output).1;
    let _ = std::fs::remove_dir_all(&folder);
    let frame = frames(&text, GROUPS[0].0)[0];
    let place = frame.split_whitespace().last().unwrap();
    let file = &place[..place.find("leak_report.rs:").unwrap()];
    let closed = format!(", closed at {file}leak_report.rs:");
    assert!(text.contains(&closed), "{closed}\n{text}");
}

/// The frames of a JSON report, each as the text between its braces.
fn json_frames(text: &str) -> Vec<&str> {
    let report = text
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("JSON");
    json::check(report).unwrap();
    let frames = report.split("{\"address\":").skip(1);
    frames
        .map(|frame| {
            // Names of functions have braces too; this member is the last.
            let last = frame.find("\"in_app\":").expect("a frame");
            &frame[..last + frame[last..].find('}').expect("an end")]
        })
        .collect()
}

#[test]
fn json_has_the_programs_frames_and_all_of_them_where_asked_for() {
    let program = example("leak_report");
    // This is on every stack; where it is inlined its name tells nothing.
    let own = |frame: &&&str| frame.contains("/registry/src/call_site.rs\"");
    let text = report(&program, "json");
    let found = json_frames(&text);
    assert!(found.iter().filter(own).count() == 0, "{found:#?}");
    let in_app = found
        .iter()
        .filter(|frame| frame.contains("\"in_app\":true"));
    assert!(in_app.count() >= 8, "{found:#?}");
    for frame in &found {
        for member in ["function", "file", "line", "module", "offset"] {
            assert!(frame.contains(&format!("\"{member}\":")), "{frame}");
        }
        assert!(!frame.contains("\"module\":null"), "{frame}");
        assert!(frame.contains("\"offset\":\"0x"), "{frame}");
        assert!(!frame.contains("lang_start"), "{frame}");
    }
    let text = report(&program, "json,frames=all");
    let all = json_frames(&text);
    assert!(all.len() > found.len() + 8, "{all:#?}");
    assert!(all.iter().any(|frame| own(&frame)), "{all:#?}");
    // In text too.
    let text = report(&program, "1,frames=all");
    assert!(text.contains("registry/src/call_site.rs:"), "{text}");
    assert!(text.contains("lang_start"), "{text}");
}

/// In a stripped program a frame is `module+offset` with the build id, by which another machine finds
/// the name; and the line that leaked is known all the same.
#[test]
fn a_stripped_program_has_modules_offsets_and_the_line() {
    let whole = example("leak_report");
    let folder = std::env::temp_dir().join(format!("cuguard-stripped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("stripped_program");
    let stripped = Command::new("strip")
        .arg("-o")
        .arg(&program)
        .arg(&whole)
        .status();
    if !stripped.is_ok_and(|status| status.success()) {
        // Not `eprintln!`, which the test harness keeps to itself when a test passes.
        not_run(Requirement::Binutils, "strip");
        return;
    }
    let mut depths = Vec::new();
    for depth in ["1", "depth=1"] {
        let text = report(&program, depth);
        // One that no loop makes: unrolled, it has several addresses.
        let group = frames(&text, "leaked 2 MiB in 1 allocation of pinned");
        assert!(group[0].starts_with("at "), "{text}");
        assert!(group[0].contains("examples/leak_report.rs:"), "{text}");
        let offsets: Vec<_> = group[1..]
            .iter()
            .map(|line| {
                let offset = line.strip_prefix("stripped_program+0x");
                offset.unwrap_or_else(|| panic!("{line}")).to_owned()
            })
            .collect();
        depths.push(offsets.len());
        // Once in each report, and not with each frame.
        let words = "build id of stripped_program: ";
        let reports = text.matches("cuguard: leak report for").count();
        assert_eq!(text.matches(words).count(), reports, "{text}");
        assert_eq!(text.matches("build id").count(), reports, "{text}");
        let build_id = text.split(words).nth(1).unwrap();
        let build_id = build_id.lines().next().unwrap_or_default();
        assert!(build_id.len() >= 16 && build_id.bytes().all(|b| b.is_ascii_hexdigit()));
        // With what they are in the program that was not stripped, the one that leaked is found.
        let lines = Command::new("addr2line")
            .arg("-fi")
            .arg("-e")
            .arg(&whole)
            .args(&offsets)
            .output();
        match lines {
            Ok(output) if output.status.success() => {
                let names = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(names.contains("staging_area"), "{offsets:?}: {names}");
            }
            _ => not_run(Requirement::Binutils, "addr2line"),
        }
    }
    // One of the program, and as many as may be this crate's; an optimised program has fewer at all.
    const MOST: usize = 1 + 16;
    assert!(depths[1] <= MOST, "{depths:?}");
    assert!(depths[0] <= MOST || depths[1] < depths[0], "{depths:?}");
    let text = report(&program, "json");
    let found = json_frames(&text);
    assert!(found.len() > 10, "{text}");
    for frame in &found {
        assert!(frame.contains("\"offset\":\"0x"), "{frame}");
        assert!(!frame.contains("\"build_id\":null"), "{frame}");
    }
    let here = found.iter().filter(|frame| {
        frame.contains("\"function\":null") && frame.contains("/stripped_program\"")
    });
    assert!(here.count() > 10, "{text}");
    let _ = std::fs::remove_dir_all(&folder);
}

static CONTEXT: OnceLock<Context> = OnceLock::new();

extern "C" fn forget_a_buffer() {
    let context = CONTEXT.get().expect("there is a context");
    let buffer = DeviceBuffer::<u8>::zeroed(context, 1000).expect("there is memory");
    std::mem::forget(buffer);
}

extern "C" fn do_nothing() {}

/// Has a library call a function, and unloads it.
fn with_library(path: &Path, call: extern "C" fn()) {
    let path = CString::new(path.to_str().expect("a plain path")).expect("no NUL in it");
    // SAFETY: the library's function has this type, and is not used after the library is unloaded.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{path:?} can be loaded");
        let symbol = libc::dlsym(handle, c"enter".as_ptr());
        let enter = std::mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn())>(symbol);
        enter(call);
        assert_eq!(libc::dlclose(handle), 0);
    }
}

/// What is live, by the function of a library that called: how many.
fn live_by_library() -> Vec<(String, u64)> {
    let snapshot = CONTEXT.get().expect("there is a context").snapshot();
    let report: serde_json::Value = serde_json::from_str(&snapshot.to_json()).expect("JSON");
    let leaks = report["leaks"].as_array().expect("leaks are a list");
    let row = |group: &serde_json::Value| {
        let frames = group["stack"].as_array().expect("a stack").iter();
        let module = |frame: &serde_json::Value| {
            let module = frame["module"].as_str().unwrap_or_default();
            module.ends_with(".so").then(|| module.to_owned())
        };
        let mut of_libraries = frames.filter(|frame| module(frame).is_some());
        let inner = of_libraries.next().unwrap_or(&serde_json::Value::Null);
        let function = inner["function"].as_str().unwrap_or("?").to_owned();
        (function, group["count"].as_u64().expect("a number"))
    };
    let mut live: Vec<_> = leaks.iter().map(row).collect();
    live.sort();
    live
}

/// Libraries that are loaded one after the other, at the same addresses: each has its own names in a report of what is live, also
/// where an earlier report had names of another one there, and at the end.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn libraries_that_were_unloaded_keep_their_names() {
    const TEST: &str = "libraries_that_were_unloaded_keep_their_names";
    const FOLDER: &str = "LIBRARIES";
    if support::part().is_some() {
        let folder = PathBuf::from(std::env::var_os(FOLDER).expect("it is set"));
        CONTEXT.get_or_init(|| support::context().expect("there is a device"));
        let [alpha, beta, idle] = ["alpha.so", "beta.so", "idle.so"].map(|name| folder.join(name));
        let of = |name: &str, count| (name.to_owned(), count);
        // One call site for all of them.
        for (library, call, expected) in [
            (
                &alpha,
                forget_a_buffer as extern "C" fn(),
                &[of("asks_first", 1)][..],
            ),
            (
                &beta,
                forget_a_buffer,
                &[of("asks_first", 1), of("asks_later", 1)],
            ),
            (
                &idle,
                do_nothing,
                &[of("asks_first", 1), of("asks_later", 1)],
            ),
            (
                &alpha,
                forget_a_buffer,
                &[of("asks_first", 2), of("asks_later", 1)],
            ),
            (
                &idle,
                do_nothing,
                &[of("asks_first", 2), of("asks_later", 1)],
            ),
        ] {
            with_library(library, call);
            assert_eq!(live_by_library(), expected);
        }
        return;
    }
    let folder = std::env::temp_dir().join(format!("cuguard-unloaded-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let names = [
        ("alpha.so", "asks_first"),
        ("beta.so", "asks_later"),
        ("idle.so", "never_called"),
    ];
    for (library, function) in names {
        let source = format!(
            "__attribute__((noinline)) void {function}(void (*f)(void)) {{ f(); __asm__ volatile(\"\"); }}\n\
             void enter(void (*f)(void)) {{ {function}(f); __asm__ volatile(\"\"); }}\n"
        );
        let file = folder.join(format!("{library}.c"));
        std::fs::write(&file, source).unwrap();
        let mut compiler = Command::new("cc");
        let compiler = compiler.args(["-shared", "-fPIC", "-g", "-O1", "-o"]);
        let compiled = compiler.args([&folder.join(library), &file]).status();
        if !compiled.is_ok_and(|status| status.success()) {
            return not_run(Requirement::CCompiler, "");
        }
    }
    let folder_text = folder.to_str().unwrap();
    let variables = [(FOLDER, folder_text), ("LEAK_REPORT", "1")];
    let output = support::child(TEST, "program", &variables);
    let (_, text) = support::succeeded(&output);
    let _ = std::fs::remove_dir_all(&folder);
    // At the exit, the idle library was loaded last.
    for (group, function) in [
        ("leaked 1.95 KiB in 2 allocations", "asks_first"),
        ("leaked 1000 B in 1 allocation", "asks_later"),
    ] {
        let found = frames(&text, group);
        let is_found = found.iter().any(|frame| frame.starts_with(function));
        assert!(is_found, "{text}");
    }
    assert!(!text.contains("never_called"), "{text}");
}
