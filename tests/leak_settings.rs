//! What `LEAK_REPORT` sets, in real processes: no silent leak, and no surprising setting.
//!
//! Each test runs itself again as a child, which leaks.

use std::path::PathBuf;

use cuguard::{Context, DeviceBuffer, DriverPool, Stream, TrackingLevel};

use crate::support::*;
use cuguard::report::ReportSettings;

/// The line about a leak where nobody asked for a report.
const HINT: &str = "; LEAK_REPORT=1 shows where";

/// A context that leaks one buffer, which has a label.
fn leak(label: &str) {
    let context = context().unwrap();
    let buffer = DeviceBuffer::<u8>::zeroed(&context, 1024).unwrap();
    std::mem::forget(buffer.with_label(label));
    context.close().unwrap();
}

/// What a child wrote on standard error.
#[track_caller]
fn err(test: &str, part: &str, leak_report: Option<&str>) -> String {
    let variables: Vec<_> = leak_report
        .map(|words| ("LEAK_REPORT", words))
        .into_iter()
        .collect();
    succeeded(&child(test, part, &variables)).1
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("cuguard-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// Lines of this crate's, without the one about the simulated GPU.
fn lines(err: &str) -> Vec<&str> {
    let lines = err.lines().filter(|line| line.starts_with("cuguard: "));
    lines.filter(|line| !line.contains("simulated")).collect()
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        eprintln!("logged {}: {}", record.level(), record.args());
    }
    fn flush(&self) {}
}

#[test]
fn a_leak_is_one_line_for_each_context() {
    const TEST: &str = "a_leak_is_one_line_for_each_context";
    match part().as_deref() {
        None => {}
        Some("closed") => {
            leak("one");
            leak("two");
            return drop(context().unwrap());
        }
        Some("never closed") => {
            let context = context().unwrap();
            let buffer = DeviceBuffer::<u8>::zeroed(&context, 1024).unwrap();
            return std::mem::forget((context, buffer));
        }
        Some(level) => {
            log::set_logger(&Logger).unwrap();
            log::set_max_level(level.parse().unwrap());
            return leak("one");
        }
    }
    let text = err(TEST, "closed", None);
    let told = lines(&text);
    assert_eq!(told.len(), 2, "{text}");
    for (line, number) in told.iter().zip(1..) {
        let start = format!("cuguard: leaked 1 KiB in 1 allocation (context {number}, closed");
        assert!(line.starts_with(&start) && line.ends_with(HINT), "{line}");
    }
    let text = err(TEST, "never closed", None);
    let start = "cuguard: leaked 1 KiB in 1 allocation (context 1, never closed";
    assert!(
        matches!(lines(&text)[..], [line] if line.starts_with(start) && line.ends_with(HINT)),
        "{text}"
    );
    // Nothing else turns it off, and these words do.
    for words in ["0", "off", "no", "false", "Off"] {
        for part in ["closed", "never closed", "warn"] {
            let text = err(TEST, part, Some(words));
            assert!(!text.contains("leaked"), "{words}: {text}");
            assert!(!text.contains("LEAK_REPORT"), "{words}: {text}");
        }
    }
    assert_eq!(lines(&err(TEST, "closed", Some(""))).len(), 2);

    // A logger that takes warnings gets it, and nobody else.
    let text = err(TEST, "warn", None);
    assert_eq!(text.matches(HINT).count(), 1, "{text}");
    assert!(
        text.contains("logged WARN: cuguard: leaked 1 KiB"),
        "{text}"
    );
    // One that shows errors only does not swallow it.
    let text = err(TEST, "error", None);
    assert_eq!(lines(&text).len(), 1, "{text}");
}

/// It costs memory, and may be kept in a `static`: a report tells it, and it is no leak.
#[test]
fn a_context_without_resources_that_is_never_dropped() {
    const TEST: &str = "a_context_without_resources_that_is_never_dropped";
    if part().is_some() {
        std::mem::forget(context().unwrap());
        return;
    }
    let text = err(TEST, "forget", Some("1,exitcode=23"));
    let notice = "the context itself held device memory until exit: forgotten, or in a static";
    assert!(
        text.contains("never closed: no resource leaked\n"),
        "{text}"
    );
    assert!(text.contains(notice), "{text}");
    let text = err(TEST, "forget", None);
    assert!(lines(&text).is_empty(), "{text}");
}

#[test]
fn the_environment_wins_over_the_program() {
    const TEST: &str = "the_environment_wins_over_the_program";
    if let Some(part) = part() {
        let builder = match part.as_str() {
            "off" => Context::builder().report(ReportSettings::off()),
            "text" => Context::builder().report(ReportSettings::text()),
            "level" => Context::builder().level(TrackingLevel::Counts),
            "free_leaks" => Context::builder().free_leaks(true),
            "exit code" => {
                Context::builder().report(ReportSettings::json().exit_code(9).suppress("expected"))
            }
            other => panic!("{other}"),
        };
        let observer = Context::builder().dedicated().build().unwrap();
        let other = Context::new(0).unwrap();
        let context = builder.build().unwrap();
        let free = observer.memory().unwrap().free;
        for label in ["a label", "expected"] {
            let buffer = DeviceBuffer::<u8>::zeroed(&context, 32 << 20).unwrap();
            std::mem::forget(buffer.with_label(label));
        }
        context.close().unwrap();
        let lost = free.saturating_sub(observer.memory().unwrap().free);
        println!("lost {} MiB", lost >> 20);
        return drop(other);
    }
    // It turns a report on that the program has off, and off that the program has on.
    assert!(err(TEST, "off", Some("1")).contains("\"a label\""));
    assert!(err(TEST, "off", Some("max=3")).contains("\"a label\""));
    assert!(!err(TEST, "text", Some("0")).contains("leaked"));
    assert!(err(TEST, "text", None).contains("\"a label\""));
    // The level, where it is named.
    let text = err(TEST, "level", Some("1"));
    assert!(text.contains("counted without a record"), "{text}");
    let text = err(TEST, "level", Some("1,level=sites"));
    assert!(text.contains("leak_settings.rs:"), "{text}");
    if simulated(TEST) {
        let lost = |words| {
            let output = child(TEST, "free_leaks", &[("LEAK_REPORT", words)]);
            succeeded(&output).0
        };
        assert!(lost("1").contains("lost 0 MiB"));
        assert!(lost("1,free_leaks=no").contains("lost 64 MiB"));
    }
    // What it does not name is the program's.
    let output = child(TEST, "exit code", &[("LEAK_REPORT", "text,max=5")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(9), "{text}");
    assert!(!text.contains("{\"version\""), "{text}");
    assert!(text.contains("suppressed 32 MiB in 1 allocation"), "{text}");
    let output = child(TEST, "exit code", &[("LEAK_REPORT", "exitcode=0")]);
    let (_, text) = succeeded(&output);
    assert!(text.contains("{\"version\""), "{text}");
}

#[test]
fn a_file_is_told_on_standard_error() {
    const TEST: &str = "a_file_is_told_on_standard_error";
    if part().is_some() {
        leak("one");
        return drop(context().unwrap());
    }
    let folder = scratch("file");
    for (words, name) in [("text", "a.txt"), ("1", "a.json"), ("json", "b")] {
        let path = folder.join(name);
        let text = err(TEST, "", Some(&format!("{words},file={}", path.display())));
        let told = lines(&text);
        let [leaked, clean] = told[..] else {
            panic!("{text}");
        };
        let end = format!("; report in {}", path.display());
        assert!(leaked.starts_with("cuguard: leaked 1 KiB in 1 allocation (context 1"));
        assert!(
            clean.starts_with("cuguard: nothing leaked (context 2"),
            "{clean}"
        );
        for line in [leaked, clean] {
            assert!(
                line.ends_with(&end) && !line.contains("shows where"),
                "{line}"
            );
        }
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"one\""));
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn twenty_groups_are_shown() {
    const TEST: &str = "twenty_groups_are_shown";
    if let Some(groups) = part() {
        let context = context().unwrap();
        for number in 0..groups.parse().unwrap() {
            let buffer = DeviceBuffer::<u8>::zeroed(&context, 1).unwrap();
            std::mem::forget(buffer.with_label(&format!("number {number}")));
        }
        return;
    }
    let shown = |text: &str| text.matches(", \"number ").count();
    for (groups, words, all, line) in [
        (
            "300",
            "1,level=sites",
            20,
            "… 20 of 300 groups shown; max=300 shows all\n",
        ),
        (
            "300",
            "1,level=sites,max=299",
            299,
            "… 299 of 300 groups shown",
        ),
        (
            "1",
            "1,level=sites,max=0",
            0,
            "… 0 of 1 group shown; max=1 shows all\n",
        ),
    ] {
        let text = err(TEST, groups, Some(words));
        assert_eq!(shown(&text), all, "{text}");
        assert!(text.contains(line), "{text}");
    }
    let text = err(TEST, "20", Some("1,level=sites"));
    assert!(
        shown(&text) == 20 && !text.contains("of 20 groups"),
        "{text}"
    );
    // A reader of JSON wants all, unless it says otherwise.
    let labels = |words| {
        err(TEST, "300", Some(words))
            .matches("\"label\":\"number")
            .count()
    };
    assert_eq!(labels("json,level=sites"), 300);
    assert_eq!(labels("json,level=sites,max=20"), 20);
}

/// <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>
#[test]
fn github_gets_annotations() {
    const TEST: &str = "github_gets_annotations";
    if part().is_some() {
        return leak("100%, sure: yes");
    }
    let text = err(TEST, "", Some("github"));
    let found: Vec<_> = text.lines().filter(|line| line.starts_with("::")).collect();
    let [line] = found[..] else {
        panic!("{text}");
    };
    let (properties, message) = line
        .strip_prefix("::error ")
        .unwrap()
        .split_once("::")
        .unwrap();
    let properties: Vec<_> = properties.split(',').collect();
    let value = |name: &str| {
        let found = properties.iter().find_map(|p| p.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name} is not in {line}"))
    };
    assert!(value("file=").ends_with("tests/leak_settings.rs"), "{line}");
    assert!(value("line=").parse::<u32>().is_ok() && value("col=").parse::<u32>().is_ok());
    assert_eq!(
        value("title="),
        "cuguard%3A leaked 1 KiB in 1 allocation of device memory"
    );
    assert!(message.contains(", u8, \"100%25, sure: yes\"%0A"), "{line}");
    assert!(message.contains("leak  "), "{line}");
    assert!(message.contains("tests/leak_settings.rs:"), "{line}");
    // The log has the sum, and nothing that a runner would take for a command.
    assert!(lines(&text)[0].starts_with("cuguard: leaked 1 KiB in 1 allocation (context 1"));
    // With text it is both.
    let both = err(TEST, "", Some("text,github"));
    assert!(both.contains("\n::error ") && both.contains("cuguard: leak report for"));
}

#[test]
fn files_of_leak_sanitizer_are_suppressions() {
    const TEST: &str = "files_of_leak_sanitizer_are_suppressions";
    #[inline(never)]
    fn known_to_leak() {
        leak("a");
        std::hint::black_box(());
    }
    if let Some(part) = part() {
        known_to_leak();
        if part == "more" {
            leak("surprising");
        }
        return;
    }
    let folder = scratch("suppressions");
    let run = |part: &str, patterns: &str| {
        let file = folder.join("patterns");
        std::fs::write(&file, patterns).unwrap();
        let words = format!("1,exitcode=3,suppress={}", file.display());
        let output = child(TEST, part, &[("LEAK_REPORT", &words)]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let program = std::env::current_exe().unwrap();
    let module = program.file_name().unwrap().to_str().unwrap().to_owned();
    // Function, file, module; parts of names, stars, anchors.
    for pattern in [
        "leak:known_to_leak",
        "leak:known_*_leak",
        "known_to",
        "leak:leak_settings.rs$",
        "leak:tests/leak_settings",
        &format!("leak:{module}"),
        "leak:^u8$",
    ] {
        let (code, text) = run("", &format!("# known\n\n{pattern}\n"));
        assert_eq!(code, Some(0), "{pattern}: {text}");
        assert!(text.contains("suppressed 1 KiB in 1 allocation"), "{text}");
        // That would not be true.
        assert!(!text.contains("nothing leaked"), "{text}");
        assert!(!text.contains("matched no leak"), "{text}");
    }
    // This crate's own functions are on every stack, and count for nothing.
    for pattern in [
        "leak:registry/src/call_site.rs",
        "leak:^nown_to_leak",
        "leak:known$",
        "leak:Registry",
    ] {
        let (code, text) = run("", &format!("{pattern}\n"));
        assert_eq!(code, Some(3), "{pattern}: {text}");
        let line = format!("cuguard: 1 suppression matched no leak: {pattern:?}\n");
        assert!(text.ends_with(&line), "{text}");
    }
    // One that another context uses is not called unused.
    let (code, text) = run(
        "more",
        "leak:known_to_leak\nleak:nothing_like_it\nleak:nor_this\n",
    );
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("\"surprising\""), "{text}");
    let line = "cuguard: 2 suppressions matched no leak: \"leak:nothing_like_it\" and \
                \"leak:nor_this\"\n";
    assert_eq!(text.matches(line).count(), 1, "{text}");
    let _ = std::fs::remove_dir_all(&folder);
}

/// A stream and a pool that only a leaked buffer keeps are no leaks of their own.
#[test]
fn what_a_leak_keeps_is_listed_under_it() {
    const TEST: &str = "what_a_leak_keeps_is_listed_under_it";
    if let Some(part) = part() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let pool = DriverPool::new(&context).unwrap();
        let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1024).unwrap();
        std::mem::forget(buffer);
        if part == "forgotten" {
            std::mem::forget((stream, pool));
        } else if part == "closed" {
            stream.close().unwrap();
            pool.close().unwrap();
        }
        return;
    }
    for part in ["dropped", "closed"] {
        let text = err(TEST, part, Some("1"));
        assert!(
            text.contains("\n  indirect: 1 stream, kept by this\n"),
            "{text}"
        );
        assert!(
            text.contains("\n  indirect: 1 memory pool, kept by this\n"),
            "{text}"
        );
        assert!(!text.contains("\nleaked 1 stream"), "{text}");
        assert!(!text.contains("\nleaked 1 memory pool"), "{text}");
        let sum = "leaked 1 KiB in 1 allocation, 1 stream and 1 memory pool, in 1 group";
        assert!(text.contains(sum), "{text}");
    }
    // Those that were forgotten themselves are leaks themselves.
    let text = err(TEST, "forgotten", Some("1"));
    assert!(text.contains("\nleaked 1 stream") && text.contains("\nleaked 1 memory pool"));
    assert!(!text.contains("indirect"), "{text}");
}

/// The message of a failed check says what was checked, and shows that alone.
#[test]
fn a_failed_check_shows_what_the_code_leaked() {
    let context = context().unwrap();
    let message = |check: &dyn Fn()| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        let panic = panic.expect_err("something leaked");
        panic.downcast_ref::<String>().expect("a text").clone()
    };
    let _kept = DeviceBuffer::<u8>::zeroed(&context, 3000)
        .unwrap()
        .with_label("kept");
    let text = message(&|| cuguard::assert_no_leaks!(context));
    assert!(!text.contains("checkpoint"), "{text}");
    assert!(
        text.contains("the context is not empty") && text.contains("\"kept\""),
        "{text}"
    );

    let escaped = DeviceBuffer::<u8>::zeroed(&context, 50)
        .unwrap()
        .with_label("escaped");
    let escaped = escaped.into_raw();
    let text = message(&|| {
        cuguard::assert_no_leaks!(context, {
            let buffer = DeviceBuffer::<u16>::zeroed(&context, 10).unwrap();
            std::mem::forget(buffer.with_label("new"));
        });
    });
    assert!(
        text.contains("the code leaked") && text.contains("\"new\""),
        "{text}"
    );
    // What was there before is nobody's business, in groups, totals or sums.
    for words in ["kept", "escaped", "2.93 KiB", "3020", "allocated   peak"] {
        assert!(!text.contains(words), "{words}\n{text}");
    }
    assert!(
        text.contains("20 B in 1 allocation of device memory, u16"),
        "{text}"
    );
    // SAFETY: the address was released above, with this length.
    drop(unsafe { DeviceBuffer::<u8>::from_raw(&context, escaped, 50) });
}
