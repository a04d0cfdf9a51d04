//! Addresses of real programs, resolved from their files: with and without debug information, moved, and of another build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use cuguard_recording::{Embedded, Frame as RecordedFrame, Module, Recording, Site, Stack};
use cuguard_testing::{Requirement, not_run};
use cuguard_view::{Frame, Resolver, SymbolOptions, Symbols};

const C: &str = r#"#include <stdio.h>
extern char __executable_start, end;
static __attribute__((noinline)) void *here(void) { return __builtin_return_address(0); }
static inline __attribute__((always_inline)) void *inlined_load(void) {
    return here();
}
static __attribute__((noinline)) void *load_weights(void) {
    void *address = inlined_load();
    __asm__ volatile("" : "+r"(address));
    return address;
}
int main(void) {
    printf("%p %p %p\n", &__executable_start, &end, load_weights());
    return 0;
}
"#;

const RUST: &str = r#"
unsafe extern "C" { static __executable_start: u8; static end: u8; }
mod model {
    #[inline(never)]
    pub fn load(x: u32) -> u32 { std::hint::black_box(x) + 1 }
}
fn main() {
    let (start, limit) = (&raw const __executable_start, &raw const end);
    println!("{:p} {:p} {:#x}", start, limit, model::load as fn(u32) -> u32 as usize + 1);
}
"#;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("cuguard-symbols-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether the command ran. A test without its tools says so.
fn run(program: &str, arguments: &[&dyn AsRef<Path>]) -> bool {
    let mut command = Command::new(program);
    arguments.iter().for_each(|one| {
        command.arg(one.as_ref());
    });
    match command.output() {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program}: {error}");
            true
        }
        Err(error) => {
            let requirement = match program {
                "cc" => Requirement::CCompiler,
                _ => Requirement::Binutils,
            };
            not_run(requirement, format_args!("{program}: {error}"));
            false
        }
    }
}

/// Compiles the C program, with debug information and a build id unless the flags say otherwise.
fn compile(folder: &Folder, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (folder.file("program.c"), folder.file(name));
    fs::write(&source, C).unwrap();
    let mut arguments: Vec<&dyn AsRef<Path>> = vec![&"-g", &"-O1", &"-Wl,--build-id=sha1"];
    arguments.extend(flags.iter().map(|flag| flag as &dyn AsRef<Path>));
    arguments.extend([&"-o" as &dyn AsRef<Path>, &program, &source]);
    run("cc", &arguments).then_some(program)
}

/// Runs the program: what a recording has of it.
fn record(program: &Path) -> Recording {
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap())
        .collect();
    let [start, end, address] = numbers[..] else {
        panic!("{text}")
    };
    let module = Module {
        path: program.to_str().unwrap().to_owned(),
        build_id: build_id(program),
        start,
        end,
        bias: start,
    };
    let stack = Stack {
        frames: vec![RecordedFrame::Native(address)],
        ..Stack::default()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut recording = Recording {
        modules: vec![module],
        stacks: vec![Stack::default(), stack],
        ..Recording::default()
    };
    recording.meta.started = now.as_nanos() as u64;
    recording
}

/// As `readelf` prints it: not by the code under test.
fn build_id(program: &Path) -> String {
    let output = Command::new("readelf").arg("-n").arg(program).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let id = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    id.unwrap_or_default().to_owned()
}

fn resolve(recording: &Recording, folders: &[PathBuf]) -> (Vec<Frame>, Vec<String>) {
    let options = SymbolOptions {
        folders: folders.to_vec(),
    };
    let mut symbols = Symbols::new(recording, &options);
    let [RecordedFrame::Native(address)] = recording.stacks[1].frames[..] else {
        panic!("one address")
    };
    (symbols.frames(address), symbols.problems().to_vec())
}

fn assert_has_lines(frames: &[Frame]) {
    let names: Vec<_> = frames
        .iter()
        .map(|one| (&*one.function, one.line))
        .collect();
    assert_eq!(names, [("inlined_load", 5), ("load_weights", 8)]);
    assert!(
        frames
            .iter()
            .all(|one| one.file.ends_with("program.c") && one.in_app)
    );
}

fn assert_is_offset(frames: &[Frame], name: &str) {
    let [frame] = frames else {
        panic!("{frames:?}")
    };
    assert!(
        frame.function.starts_with(&format!("{name}+0x")),
        "{frame:?}"
    );
    assert!(frame.file.is_empty() && frame.library == name && frame.in_app);
}

#[test]
fn inlined_functions_and_lines() {
    let folder = Folder::new("lines");
    let Some(program) = compile(&folder, "app", &[]) else {
        return;
    };
    let (frames, problems) = resolve(&record(&program), &[]);
    assert_has_lines(&frames);
    assert!(problems.is_empty(), "{problems:?}");
    assert!(frames.iter().all(|frame| frame.library == "app"));
}

#[test]
fn a_stripped_program_needs_another_file() {
    let folder = Folder::new("stripped");
    let Some(program) = compile(&folder, "app", &[]) else {
        return;
    };
    let stripped = folder.file("stripped");
    if !run("strip", &[&"-o", &stripped, &program]) {
        return;
    }
    let recording = record(&stripped);
    assert_is_offset(&resolve(&recording, &[]).0, "stripped");
    // A copy with symbols, under another name and deep down.
    let copies = folder.folder("symbols/of/release/1");
    fs::copy(&program, copies.join("renamed")).unwrap();
    let (frames, problems) = resolve(&recording, &[folder.file("symbols")]);
    assert_has_lines(&frames);
    assert!(problems.is_empty(), "{problems:?}");
    // Debug information alone, named as distributions do.
    let id = build_id(&program);
    let debug = folder.folder(&format!("debug/.build-id/{}", &id[..2]));
    let debug = debug.join(format!("{}.debug", &id[2..]));
    run("objcopy", &[&"--only-keep-debug", &program, &debug]);
    assert_has_lines(&resolve(&recording, &[folder.file("debug")]).0);
}

/// Names from another build would be wrong.
#[test]
fn a_file_with_another_build_id_is_not_used() {
    let folder = Folder::new("other-build");
    let Some(program) = compile(&folder, "app", &[]) else {
        return;
    };
    let mut recording = record(&program);
    recording.modules[0].build_id = "00112233445566778899aabbccddeeff00112233".to_owned();
    let (frames, problems) = resolve(&recording, std::slice::from_ref(&folder.0));
    assert_is_offset(&frames, "app");
    let [problem] = &problems[..] else {
        panic!("{problems:?}")
    };
    assert!(
        problem.contains("another build id") && problem.contains("00112233"),
        "{problem}"
    );
}

#[test]
fn a_moved_program_is_found_by_its_build_id() {
    let folder = Folder::new("moved");
    let Some(program) = compile(&folder, "app", &[]) else {
        return;
    };
    let recording = record(&program);
    let moved = folder.folder("elsewhere");
    fs::rename(&program, moved.join("app")).unwrap();
    let (frames, problems) = resolve(&recording, &[]);
    assert_is_offset(&frames, "app");
    assert!(
        problems[0].contains("is not there") && problems[0].contains("--symbols"),
        "{problems:?}"
    );
    assert_has_lines(&resolve(&recording, &[moved]).0);
    let (_, problems) = resolve(&recording, &[folder.file("no-such-folder")]);
    assert!(
        problems.iter().any(|one| one.contains("no-such-folder")),
        "{problems:?}"
    );
}

#[test]
fn without_a_build_id_the_file_must_be_older_than_the_process() {
    let folder = Folder::new("no-id");
    let Some(program) = compile(&folder, "app", &["-Wl,--build-id=none"]) else {
        return;
    };
    let mut recording = record(&program);
    assert_eq!(recording.modules[0].build_id, "");
    assert_has_lines(&resolve(&recording, &[]).0);
    recording.meta.started = 0;
    let (frames, problems) = resolve(&recording, &[]);
    assert_is_offset(&frames, "app");
    assert!(problems[0].contains("written after"), "{problems:?}");
    // In a folder that was named, the name of the file is enough.
    assert_has_lines(&resolve(&recording, std::slice::from_ref(&folder.0)).0);
}

#[test]
fn embedded_symbols_need_no_file() {
    let folder = Folder::new("embedded");
    let Some(program) = compile(&folder, "app", &[]) else {
        return;
    };
    let mut recording = record(&program);
    let [RecordedFrame::Native(address)] = recording.stacks[1].frames[..] else {
        panic!("one address")
    };
    let site = Site {
        file: "model.rs".to_owned(),
        line: 12,
        column: 5,
    };
    let functions = vec![
        ("model::load".to_owned(), Some(site)),
        ("std::rt::lang_start".to_owned(), None),
    ];
    recording.symbols = vec![Embedded { address, functions }];
    fs::remove_file(&program).unwrap();
    let (frames, problems) = resolve(&recording, &[]);
    assert!(problems.is_empty(), "{problems:?}");
    let shown: Vec<_> = frames
        .iter()
        .map(|one| (&*one.function, one.line, one.in_app))
        .collect();
    assert_eq!(
        shown,
        [("model::load", 12, true), ("std::rt::lang_start", 0, false)]
    );
}

#[test]
fn names_of_rust_are_demangled() {
    let folder = Folder::new("rust");
    let (source, program) = (folder.file("program.rs"), folder.file("app"));
    fs::write(&source, RUST).unwrap();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let flags: [&dyn AsRef<Path>; 7] = [
        &"--edition=2024",
        &"-g",
        &"-C",
        &"link-arg=-Wl,--build-id=sha1",
        &"-o",
        &program,
        &source,
    ];
    if !run(&rustc, &flags) {
        return;
    }
    let (frames, _) = resolve(&record(&program), &[]);
    let outermost = frames.last().unwrap();
    assert_eq!(outermost.function, "program::model::load");
    assert_eq!(outermost.line, 5);
    assert!(outermost.in_app && outermost.file.ends_with("program.rs"));
}

/// A file that is not a program, where one is expected.
#[test]
fn broken_files_are_named() {
    let folder = Folder::new("broken");
    let path = folder.file("app");
    fs::write(&path, b"\x7fELF\x02\x01\x01 and nothing else").unwrap();
    let module = Module {
        path: path.to_str().unwrap().to_owned(),
        start: 0x1000,
        end: 0x2000,
        ..Module::default()
    };
    let stack = Stack {
        frames: vec![RecordedFrame::Native(0x1800)],
        ..Stack::default()
    };
    let recording = Recording {
        modules: vec![module],
        stacks: vec![Stack::default(), stack],
        ..Recording::default()
    };
    let (frames, problems) = resolve(&recording, std::slice::from_ref(&folder.0));
    assert_eq!(frames[0].function, "app+0x17ff");
    assert!(
        problems[0].contains("not a program or library"),
        "{problems:?}"
    );
}
