//! The leak report, as a person gets it: in real processes, by the environment variable.

use crate::support;
use cuguard_testing::{Requirement, not_run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::support::json;
use cuguard::report::Report;

/// An example, as cargo (or the bundle) puts it beside the tests.
fn example(name: &str) -> Command {
    let program = std::env::current_exe().expect("this program has a file");
    let folder = program
        .ancestors()
        .nth(2)
        .expect("it lies two folders deep");
    let file = folder.join("examples").join(name);
    assert!(
        file.is_file(),
        "{} is not there: `cargo test` builds it, or `cargo build --examples`",
        file.display()
    );
    let mut command = Command::new(file);
    command.env_remove("LEAK_REPORT").env_remove("NO_COLOR");
    command
}

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(name: &str, leak_report: Option<&str>) -> Ended {
    let mut command = example(name);
    if let Some(value) = leak_report {
        command.env("LEAK_REPORT", value);
    }
    ended(&mut command)
}

fn ended(command: &mut Command) -> Ended {
    // Examples look at how much of the device is free, so they take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let output = command.output().expect("the example can be started");
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("cuguard-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

#[test]
fn without_the_variable_there_is_one_line() {
    let ended = run("leak_report", None);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.out.contains("[1, 2, 3]") && ended.out.contains("still allocated after the close: 0")
    );
    let lines = ended.err.lines();
    let warnings: Vec<_> = lines.filter(|line| !line.contains("simulated")).collect();
    assert_eq!(warnings.len(), 1, "{}", ended.err);
    let words = "cuguard: leaked 17.50 MiB in 7 allocations and 1 stream (context 2, closed";
    assert!(warnings[0].starts_with(words), "{warnings:?}");
    assert!(warnings[0].ends_with("); LEAK_REPORT=1 shows where"));
}

#[test]
fn with_1_the_report_names_the_functions_that_leaked_with_file_and_line() {
    let ended = run("leak_report", Some("1"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    for words in [
        // A loop is one place, also where the optimiser has unrolled it.
        "leaked 12 MiB in 3 allocations of device memory, f32, \"activations\"",
        "leaked 3 MiB in 2 allocations of device memory, f32, \"weights\"",
        "leaked 2 MiB in 1 allocation of pinned host memory, u8, \"staging\"",
        "of stream-ordered memory, u64",
        "indirect: 1 stream, kept by this",
        "remember_forever",
        "layers_in_a_circle",
        "staging_area",
        "lost_on_a_stream",
        "leaked 17.50 MiB in 7 allocations and 1 stream, in 4 groups",
    ] {
        assert!(ended.err.contains(words), "{words}\n{}", ended.err);
    }
    let frames = ended
        .err
        .lines()
        .filter(|line| line.contains("examples/leak_report.rs:"));
    assert!(frames.count() >= 10, "{}", ended.err);
    // Only what a person wrote; no colours in a pipe.
    for noise in [
        "src/memory/",
        "stack/src/",
        "backtrace-0",
        "std/src",
        "core/src",
        "\u{1b}[",
    ] {
        assert!(!ended.err.contains(noise), "{noise}\n{}", ended.err);
    }
    // Largest first.
    let leaks = [
        "leaked 12 MiB",
        "leaked 3 MiB",
        "leaked 2 MiB",
        "leaked 512 KiB",
        "indirect: 1 stream",
    ];
    let places: Vec<_> = leaks.map(|words| ended.err.find(words)).into();
    assert!(places.is_sorted(), "{places:?}");
}

/// The files that a report names can be opened from the folder that it was made in. Where the sources
/// are not on this machine, files are shown by the names of their packages.
#[test]
fn files_can_be_opened_from_any_folder() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/leak_report.rs");
    let target = std::env::current_exe().unwrap();
    for folder in [
        Path::new("/"),
        &std::env::temp_dir(),
        target.parent().unwrap(),
    ] {
        for level in ["stacks", "sites"] {
            let mut command = example("leak_report");
            command.env("LEAK_REPORT", format!("1,level={level}"));
            let ended = ended(command.current_dir(folder));
            let lines = ended.err.lines();
            let places = lines.filter(|line| line.starts_with("    ") && line.contains(".rs:"));
            let places: Vec<_> = places
                .map(|line| line.split_whitespace().last().unwrap())
                .collect();
            assert!(places.len() >= 4, "{}", ended.err);
            for place in places {
                let (file, _) = place.split_once(':').unwrap();
                if sources.is_file() && level == "stacks" {
                    assert!(folder.join(file).is_file(), "{place} in {folder:?}");
                } else {
                    assert!(file.ends_with("examples/leak_report.rs"), "{place}");
                }
            }
        }
    }
}

/// The picture in the README: Chromium keeps spaces only where each line of text says so itself.
#[test]
fn the_picture_of_a_report_keeps_its_columns() {
    let picture = include_str!("../docs/leak-report.svg");
    let lines: Vec<_> = picture
        .lines()
        .filter(|l| l.starts_with("<text "))
        .collect();
    assert!(lines.len() > 20, "{picture}");
    for line in lines {
        let (element, _) = line.split_once('>').unwrap();
        assert!(element.contains("white-space: pre"), "{line}");
    }
}

#[test]
fn as_json_it_is_one_value_for_each_context() {
    let ended = run("leak_report", Some("json"));
    assert_eq!(ended.code, Some(0));
    let lines: Vec<_> = ended
        .err
        .lines()
        .filter(|line| line.starts_with('{'))
        .collect();
    assert_eq!(lines.len(), 2, "{}", ended.err);
    for line in &lines {
        json::check(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        assert!(line.contains("\"version\":1"), "{line}");
    }
    assert!(lines[0].contains("remember_forever") && lines[0].contains("\"activations\""));
}

#[test]
fn the_exit_code_is_the_one_asked_for_if_something_leaked() {
    assert_eq!(run("leak_report", Some("1,exitcode=23")).code, Some(23));
    assert_eq!(run("exception_leak", Some("1,exitcode=23")).code, Some(0));
    // What the program printed is all there.
    assert!(
        run("leak_report", Some("1,exitcode=23"))
            .out
            .contains("still allocated after the close: 0")
    );
}

#[test]
fn bad_words_are_named_and_the_program_runs() {
    let ended = run("leak_report", Some("1,colour=purple,exitcode="));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    for words in ["purple", "always", "exitcode", "remember_forever"] {
        assert!(ended.err.contains(words), "{words}\n{}", ended.err);
    }
    let ended = run("leak_report", Some("nonsense,max=1"));
    assert!(
        ended.err.contains("nonsense") && ended.err.contains("suppress=FILE"),
        "{}",
        ended.err
    );
}

#[test]
fn a_context_that_is_never_closed_is_reported_at_exit() {
    let ended = run("context_leak", Some("1"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.out.contains("bytes alive in the driver: 0"),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("never closed"), "{}", ended.err);
    assert!(
        ended
            .err
            .contains("leaked 64 MiB in 1 allocation of device memory"),
        "{}",
        ended.err
    );
}

#[test]
fn examples_leave_nothing_in_the_driver() {
    for name in [
        "exception_leak",
        "context_leak",
        "leak_report",
        "stream_ordered",
        "pinned_copies",
        "host_leak",
        "saxpy",
    ] {
        let ended = run(name, None);
        if ended.out.starts_with("not run") {
            // Not `eprintln!`, which the test harness keeps to itself when a test passes.
            not_run(Requirement::RealGpu, name);
            continue;
        }
        let line = ended.out.lines().last().unwrap_or_default();
        assert!(line.ends_with(": 0"), "{name}: {}", ended.out);
    }
    // The second is built without the feature `cust` by `scripts/check-without-cust.sh`, and with it here.
    for name in ["plain_cust", "without_cust"] {
        let ended = run(name, None);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    }
}

/// What the program has written to a file by then is its own: a report that goes there by another
/// name is put behind it, and what the program writes later behind the report.
#[test]
fn a_report_to_the_programs_own_output_spares_what_is_there() {
    let folder = scratch("own");
    for name in ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "both.txt"] {
        let both = folder.join("both.txt");
        let file = std::fs::File::create(&both).unwrap();
        // As by `>both.txt 2>&1`.
        let mut command = example("leak_report");
        command
            .current_dir(&folder)
            .env("LEAK_REPORT", format!("text,file={name}"))
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        assert_eq!(ended(&mut command).code, Some(0));
        let text = std::fs::read_to_string(&both).unwrap();
        let places: Vec<_> = [
            "[1, 2, 3]\n",
            "cuguard: leak report",
            "\nbytes still allocated",
        ]
        .iter()
        .map(|words| text.find(words))
        .collect();
        assert!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{name}: {places:?}\n{text}"
        );
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_file_gets_the_report_and_what_cannot_be_written_goes_to_stderr() {
    let folder = scratch("files");
    let pattern = folder.join("leaks-%p.json");
    let setting = format!("json,file={}", pattern.display());
    let ended = run("leak_report", Some(&setting));
    assert!(!ended.err.contains("remember_forever"), "{}", ended.err);
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].path()).unwrap();
    assert_eq!(text.lines().count(), 2);
    text.lines().for_each(|line| json::check(line).unwrap());

    for bad in [
        folder.as_path(),
        Path::new("/dev/full"),
        Path::new("/no/such/folder/x"),
    ] {
        let ended = run("leak_report", Some(&format!("1,file={}", bad.display())));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(
            ended.err.contains(&bad.display().to_string()),
            "{}",
            ended.err
        );
        assert!(ended.err.contains("remember_forever"), "{}", ended.err);
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn suppressed_leaks_are_summed_up() {
    let folder = scratch("suppress");
    let file = folder.join("patterns");
    std::fs::write(
        &file,
        "# known\n*remember_forever*\nactivations\nlost_on_*\n",
    )
    .unwrap();
    let ended = run(
        "leak_report",
        Some(&format!("1,suppress={}", file.display())),
    );
    assert!(!ended.err.contains("remember_forever"), "{}", ended.err);
    assert!(ended.err.contains("staging_area"), "{}", ended.err);
    // The stream that only the suppressed buffer keeps goes with it.
    assert!(
        ended.err.contains(
            "\ncuguard: leaked 5 MiB in 3 allocations, in 2 groups; \
             suppressed 12.50 MiB in 4 allocations and 1 stream, in 2 groups\n"
        ),
        "{}",
        ended.err
    );
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn reports_of_many_threads_do_not_mix() {
    const TEST: &str = "reports_of_many_threads_do_not_mix";
    if support::part().is_some() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let context = cuguard::Context::new(0).unwrap();
                        let leak = cuguard::DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
                        std::mem::forget(leak.with_label("mixed"));
                    }
                });
            }
        });
        return;
    }
    let output = support::child(TEST, "threads", &[("LEAK_REPORT", "json")]);
    let (_, err) = support::succeeded(&output);
    let lines: Vec<_> = err
        .lines()
        .filter(|line| line.contains("\"mixed\""))
        .collect();
    assert_eq!(lines.len(), 40, "{err}");
    lines.iter().for_each(|line| json::check(line).unwrap());
}

/// Handles have no type: it would only repeat the kind.
#[test]
fn a_leaked_pool_is_named_once() {
    let context = cuguard::Context::new(0).unwrap();
    let _pool = cuguard::DriverPool::new(&context).unwrap();
    let text = context.snapshot().display().to_string();
    assert!(text.contains("\nlive 1 memory pool\n"), "{text}");
}

/// So that the ages in them agree.
#[test]
fn the_reports_at_exit_are_of_one_moment() {
    const TEST: &str = "the_reports_at_exit_are_of_one_moment";
    if support::part().is_some() {
        for _ in 0..3 {
            let context = cuguard::Context::new(0).unwrap();
            std::mem::forget(cuguard::DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap());
        }
        return;
    }
    let output = support::child(TEST, "exit", &[("LEAK_REPORT", "json")]);
    let (_, text) = support::succeeded(&output);
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let seconds = lines.map(|line| {
        let rest = line.split("\"seconds\":").nth(1).unwrap();
        rest.split(',').next().unwrap()
    });
    let seconds: Vec<_> = seconds.collect();
    assert_eq!(seconds.len(), 3, "{text}");
    assert!(seconds.iter().all(|one| *one == seconds[0]), "{seconds:?}");
}

/// One process with late drops, and what it says.
fn late_drops(leak_report: &str) -> String {
    let variables = [("LEAK_REPORT", leak_report)];
    let output = support::child("late_drops_are_told_at_exit", "late", &variables);
    support::succeeded(&output).1
}

#[test]
fn late_drops_are_told_at_exit() {
    if support::part().is_some() {
        let context = cuguard::Context::new(0).unwrap();
        let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let stream = cuguard::Stream::new(&context).unwrap();
        context.close().unwrap();
        drop(buffer);
        drop(stream);
        // One without is not mentioned.
        let clean = cuguard::Context::new(0).unwrap();
        drop(cuguard::DeviceBuffer::<u8>::zeroed(&clean, 1000).unwrap());
        return;
    }
    let text = late_drops("1");
    let told = "2 guards were dropped after it was closed at ";
    assert_eq!(text.matches(told).count(), 1, "{text}");
    assert_eq!(text.matches("dropped after").count(), 1, "{text}");
    let line = text.lines().find(|line| line.contains(told)).unwrap();
    assert!(line.starts_with("cuguard: context 1 "), "{line}");
    let rest = ": 1000 B in 1 allocation and 1 stream; reported above as leaked";
    assert!(
        line.contains("tests/leak_report.rs:") && line.ends_with(rest),
        "{line}"
    );

    let text = late_drops("json");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(lines.len(), 3, "{text}");
    lines.iter().for_each(|line| json::check(line).unwrap());
    let of = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(of("\"reason\":\"late_drops\""), 1, "{text}");
    let last = lines[2];
    for words in [
        "\"reason\":\"late_drops\"",
        "\"leaked\":false",
        "\"late_drops\":[{\"kind\":\"device\",\"count\":1,\"bytes\":1000},\
         {\"kind\":\"stream\",\"count\":1,\"bytes\":0}]",
    ] {
        assert!(last.contains(words), "{words}\n{last}");
    }
    assert!(!late_drops("0").contains("dropped after"));

    // Nothing leaked by being late: the exit code stays. (What teardown found is a leak, so that is
    // suppressed.)
    let folder = scratch("late");
    let file = folder.join("patterns");
    std::fs::write(&file, "*\n").unwrap();
    let text = late_drops(&format!("1,exitcode=23,suppress={}", file.display()));
    assert!(text.contains(told), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_snapshot_says_whether_its_context_is_primary() -> cuguard::Result<()> {
    let primary = cuguard::Context::new(0)?;
    let dedicated = cuguard::Context::builder().dedicated().build()?;
    assert!(primary.snapshot().info.primary);
    assert!(!dedicated.snapshot().info.primary);
    Ok(())
}
