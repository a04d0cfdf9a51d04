//! Settings of the report that make no sense, at the entries that the tests in src/report and
//! tests/leak_report.rs leave out: each is named together with what would do, the rest of the
//! settings holds, the program runs on, and its report is not lost.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use cuguard::report::Report;

use cuguard::{DeviceBuffer, Result, TrackingLevel};

use crate::support::*;
use cuguard::report::ReportSettings;

#[test]
fn numbers_that_are_none_are_named() {
    for word in [
        "max=18446744073709551616",
        "max=99999999999999999999999999999999",
        "exitcode=-1",
        "exitcode=1e2",
        "exitcode=0x17",
        "exitcode=+23",
        "exitcode=\u{663}",
        "depth=999999",
        "depth=129",
        "depth=1 2",
        "sample=1.5",
        "sample=-0",
    ] {
        let (settings, problems) = ReportSettings::parse(&format!("1,{word}"));
        assert_eq!(settings.wanted_depth(), 32, "{word}");
        assert_eq!(problems.len(), 1, "{word}: {problems:?}");
        let (words, value) = (problems[0].to_string(), word.split_once('=').unwrap().1);
        assert!(
            words.starts_with(&format!("cannot use {word:?}: {value:?} is not a number")),
            "{words}"
        );
    }
    // The functions take the nearest number.
    assert_eq!(ReportSettings::text().depth(0).wanted_depth(), 1);
    assert_eq!(ReportSettings::text().depth(usize::MAX).wanted_depth(), 128);
    let text = ReportSettings::text;
    assert_eq!(text().sample(0), text().sample(1));
    let words = "everything"
        .parse::<TrackingLevel>()
        .unwrap_err()
        .to_string();
    assert!(
        words.contains("\"everything\"") && words.contains("counts, sites, stacks"),
        "{words}"
    );
}

#[test]
fn patterns_of_files_that_mean_nothing_are_named() {
    for (pattern, named) in [
        ("", "no file name"),
        ("a%", "%"),
        ("%q.txt", "%q"),
        ("%P", "%P"),
        ("%%%", "%"),
    ] {
        let words = ReportSettings::text()
            .file(pattern)
            .unwrap_err()
            .to_string();
        assert!(words.contains(named), "{pattern:?}: {words}");
        // What would do.
        assert!(
            pattern.is_empty() || words.contains("%p"),
            "{pattern:?}: {words}"
        );
    }
}

/// A folder of its own, which goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("cuguard-bad-input-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn suppressions_that_cannot_be_read_are_named() {
    let folder = Folder::new("suppress");
    let missing = folder.0.join("missing");
    for path in [folder.0.as_path(), &missing, Path::new("/dev/null/x")] {
        let word = format!("1,suppress={},max=3", path.display());
        let (settings, problems) = ReportSettings::parse(&word);
        assert_eq!(settings.max(3), ReportSettings::parse("1,max=3").0);
        let words: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = format!("cannot read the suppressions in {}: ", path.display());
        assert!(
            words.len() == 1 && words[0].starts_with(&expected),
            "{words:?}"
        );
        assert!(ReportSettings::text().suppress_file(path).is_err());
    }
}

/// Patterns that are no text match nothing, and the others hold; so they do among very many.
#[test]
fn suppressions_of_any_bytes_are_taken() -> Result<()> {
    let _turn = turn();
    let folder = Folder::new("suppressions");
    let context = context()?;
    let _one = DeviceBuffer::<u8>::zeroed(&context, 10)?.with_label("expected");
    let _two = DeviceBuffer::<u8>::zeroed(&context, 20)?.with_label("surprising");
    let report = |bytes: &[u8]| {
        let file = folder.file("patterns", bytes);
        let settings = ReportSettings::text().suppress_file(file).unwrap();
        context.snapshot().to_text(&settings)
    };
    for bytes in [
        &b"\xff\xfe*\nexpected\n"[..],
        b"\0\0\nexpected",
        b"\r\nexpected\r\n\xf0\x28",
    ] {
        let text = report(bytes);
        assert!(
            !text.contains("\"expected\"") && text.contains("\"surprising\""),
            "{text}"
        );
    }
    let text = report("*a*b*c*d*e\n".repeat(200_000).as_bytes());
    assert!(
        text.contains("\"expected\"") && text.contains("\"surprising\""),
        "{text}"
    );
    // Each way to match the stars, one after the other: this would not end.
    let _three = DeviceBuffer::<u8>::zeroed(&context, 30)?.with_label(&"a".repeat(200));
    let text = report(format!("{}b\nexpected\n", "*a".repeat(50)).as_bytes());
    assert!(
        text.contains("\"aaaa") && !text.contains("\"expected\""),
        "{text}"
    );
    Ok(())
}

/// A child that leaks, with a variable that need not be text. What it wrote on standard error.
#[track_caller]
fn leaks(test: &str, leak_report: &OsStr) -> String {
    let output = cuguard_testing::test_command(test)
        .env("CHILD", "leaks")
        .env("LEAK_REPORT", leak_report)
        .output()
        .expect("a child can be started");
    succeeded(&output).1
}

/// What that child does.
fn leak() {
    let context = context().unwrap();
    std::mem::forget(
        DeviceBuffer::<u8>::zeroed(&context, 10)
            .unwrap()
            .with_label("left behind"),
    );
}

/// Bytes that are no text among words that are.
#[test]
fn a_variable_that_is_no_text_is_told() {
    const TEST: &str = "a_variable_that_is_no_text_is_told";
    if part().is_some() {
        return leak();
    }
    let value = OsString::from_vec(b"1,level=sites,\xff\xfe,max=\xff,,max=7".to_vec());
    let err = leaks(TEST, &value);
    for words in [
        "LEAK_REPORT: \"1,level=sites,\u{fffd}\u{fffd},max=\u{fffd},,max=7\" is not valid Unicode",
        "unknown word \"\u{fffd}\u{fffd}\"; known words: 0 (off, no, false), 1 (on",
        "cannot use \"max=\u{fffd}\": \"\u{fffd}\" is not a number of groups",
        "there is an empty word in",
        "\"left behind\"",
    ] {
        assert_eq!(err.matches(words).count(), 1, "{words}\n{err}");
    }
}

/// Where the file cannot be written, standard error gets the report, after a line that names it.
#[test]
fn files_that_cannot_be_written_are_told() {
    const TEST: &str = "files_that_cannot_be_written_are_told";
    if part().is_some() {
        return leak();
    }
    let folder = Folder::new("files");
    let too_long = folder.0.join("x".repeat(5000));
    let below_a_file = folder.file("plain", b"").join("report.txt");
    for path in [Path::new("/dev/full"), &folder.0, &too_long, &below_a_file] {
        let value = format!("1,level=sites,file={}", path.display());
        let err = leaks(TEST, value.as_ref());
        let line = format!(
            "cuguard: cannot write the leak report to {}: ",
            path.display()
        );
        assert_eq!(err.matches(&line).count(), 1, "{err}");
        assert_eq!(err.matches("\"left behind\"").count(), 1, "{err}");
    }
    // A pattern that means nothing is told at once, and the report goes to standard error.
    let err = leaks(TEST, "1,level=sites,file=leaks-%d.txt".as_ref());
    assert!(
        err.contains("cannot use \"file=leaks-%d.txt\": %d means nothing"),
        "{err}"
    );
    assert_eq!(err.matches("\"left behind\"").count(), 1, "{err}");
    let err = leaks(TEST, "1,level=sites,file=".as_ref());
    for words in [
        "%p is the process id",
        "%c the context",
        "%% a percent sign",
    ] {
        assert!(err.contains(words), "{words}\n{err}");
    }
}
