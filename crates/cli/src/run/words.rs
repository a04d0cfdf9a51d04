//! The words of `LEAK_REPORT` for the program: those of the environment, and those of the options, which win.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cuguard_report::{ReportSettings, discards_reports, open_report_file, resolve_words};

use super::failure::Failure;
use super::options::{AuditOptions, Format};

/// The words, and what they mean.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    settings: ReportSettings,
    /// The file, if all processes write to the same.
    file: Option<PathBuf>,
    /// Whether `--output` names that.
    has_output: bool,
    /// The file of the recording, if its name does not depend on the process.
    recording: Option<PathBuf>,
}

/// Words for the format, which `--report` and `--output` replace.
const FORMATS: [&str; 11] = [
    "0", "off", "no", "false", "1", "on", "yes", "true", "text", "json", "github",
];
/// Words of a recording.
const RECORDING: [&str; 4] = ["record", "record-limit", "record-policy", "embed-symbols"];
const OFF: [&str; 4] = ["0", "off", "no", "false"];

/// How a recording begins.
const MAGIC: &[u8] = b"CUGUARDR";

fn name(word: &str) -> &str {
    word.split('=').next().unwrap_or_default().trim()
}

fn is_format(word: &str) -> bool {
    FORMATS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// The exit code where `--fail-on` names findings, and nothing names the code.
pub(super) const FAILED: u8 = 1;

fn is_off(word: &str) -> bool {
    OFF.iter().any(|off| off.eq_ignore_ascii_case(word))
}

/// The words for the program. A word of the environment that cannot be used is an error.
pub(super) fn compose(
    options: &AuditOptions,
    environment: Option<&OsStr>,
) -> Result<Words, Failure> {
    let mut problems = Vec::new();
    let list = environment.unwrap_or_default().to_string_lossy();
    let folder = env::current_dir().unwrap_or_default();
    let list = resolve_words(&list, &folder);
    let replaces_format = options.report.is_some() || options.output.is_some();
    // Who asks for a report or an exit code wants it, though the environment turns all reports off.
    let replaces_off = replaces_format
        || options.exitcode.is_some()
        || options.fail_on.is_some()
        || options.record.is_some()
        || options.metrics.listen.is_some();
    let mut words: Vec<String> = Vec::new();
    let records = list.split(',').any(|word| word.trim() == "record");
    for word in list
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        // `file` names the recording where there is one.
        let names_recording = name(word) == "file" && records && options.output.is_none();
        if replaces_format && (is_format(word) || name(word) == "file") && !names_recording {
            continue;
        }
        if options.output.is_some() && RECORDING.contains(&name(word)) {
            continue;
        }
        if replaces_off && is_off(word) {
            continue;
        }
        let (_, unusable) = ReportSettings::parse(word);
        problems.extend(unusable.iter().map(ToString::to_string));
        words.push(word.to_owned());
    }
    if !problems.is_empty() {
        return Err(Failure::Words { problems });
    }
    // As without this command, `0` turns everything off.
    if words.iter().any(|word| is_off(word)) {
        words = vec!["0".to_owned()];
    } else {
        for option in option_words(options, &folder)? {
            // Suppressions of both are used; of other words the last one counts, but one is enough.
            if name(&option) != "suppress" {
                words.retain(|word| name(word) != name(&option));
            }
            words.push(option);
        }
        let has = |wanted: &str| words.iter().any(|word| name(word) == wanted);
        if has("fail_on") && !has("exitcode") {
            words.push(format!("exitcode={FAILED}"));
        }
    }
    if words.is_empty() {
        words.push("1".to_owned());
    }
    let text = words.join(",");
    // Each word can be used, but not all of them together.
    let (settings, problems) = ReportSettings::parse(&text);
    if !problems.is_empty() {
        let problems = problems.iter().map(ToString::to_string).collect();
        return Err(Failure::Words { problems });
    }
    let shared = (settings.file_of(1, 0) == settings.file_of(2, 0)).then(|| settings.file_of(1, 0));
    let file = shared.flatten();
    // The last one counts.
    let pattern = words.iter().rev().find(|word| name(word) == "file");
    let depends = pattern.is_none_or(|pattern| pattern.replace("%%", "").contains("%p"));
    let recording = settings.recording_file().filter(|_| !depends);
    Ok(Words {
        text,
        settings,
        file,
        has_output: options.output.is_some(),
        recording,
    })
}

/// The words that options stand for.
fn option_words(options: &AuditOptions, folder: &Path) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    if let Some(format) = options.report {
        let word = match format {
            Format::Text => "text",
            Format::Json => "json",
            Format::Github => "github",
        };
        words.push(word.to_owned());
    }
    if let Some(path) = &options.output {
        let failure = |why: String| Failure::Output {
            path: path.clone(),
            why,
        };
        if options.report == Some(Format::Github) {
            let why = "annotations are printed; a file has the report as text or json";
            return Err(failure(why.to_owned()));
        }
        if path.as_os_str() == "-" {
            let why = "it is not a file name; without --output reports go to standard error";
            return Err(failure(why.to_owned()));
        }
        let name = value(path, folder, true).map_err(failure)?;
        let word = format!("file={name}");
        if let Some(problem) = ReportSettings::parse(&word).1.first() {
            return Err(failure(problem.to_string()));
        }
        words.push(word);
    }
    words.extend(recording_words(options, folder)?);
    for path in &options.suppress {
        let failure = |why: String| Failure::Suppress {
            path: path.clone(),
            why,
        };
        let name = value(path, folder, false).map_err(failure)?;
        std::fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
        words.push(format!("suppress={name}"));
    }
    words.extend(options.exitcode.map(|code| format!("exitcode={code}")));
    words.extend(options.fail_on.map(|fail_on| format!("fail_on={fail_on}")));
    let level = [(options.stacks, "stacks"), (options.sites, "sites")];
    let level = level.into_iter().find(|(set, _)| *set);
    words.extend(level.map(|(_, level)| format!("level={level}")));
    words.extend(options.no_python.then(|| "python=no".to_owned()));
    Ok(words)
}

/// The words of a recording.
fn recording_words(options: &AuditOptions, folder: &Path) -> Result<Vec<String>, Failure> {
    let Some(path) = &options.record else {
        return Ok(Vec::new());
    };
    let failure = |why: String| Failure::Record {
        path: path.clone(),
        why,
    };
    let name = value(path, folder, true).map_err(failure)?;
    let mut words = vec!["record".to_owned(), format!("file={name}")];
    let values = [
        ("record-limit", &options.record_limit),
        ("record-policy", &options.record_policy),
    ];
    for (name, value) in values {
        words.extend(value.as_ref().map(|value| format!("{name}={value}")));
    }
    words.extend(options.embed_symbols.then(|| "embed-symbols".to_owned()));
    for word in &words {
        if let Some(problem) = ReportSettings::parse(word).1.first() {
            return Err(failure(problem.to_string()));
        }
    }
    Ok(words)
}

/// The absolute name of a file, as the value of a word.
fn value(path: &Path, folder: &Path, is_pattern: bool) -> Result<String, String> {
    let unusable = |path: &Path| {
        let path = path.to_str().ok_or("the name is not valid Unicode")?;
        match path.contains(',') {
            true => Err(
                "the absolute name has a comma, which separates words of LEAK_REPORT".to_owned(),
            ),
            false => Ok(path.to_owned()),
        }
    };
    let name = unusable(path)?;
    if path.is_absolute() {
        return Ok(name);
    }
    let mut folder = unusable(folder)?;
    if is_pattern {
        folder = folder.replace('%', "%%");
    }
    Ok(format!("{}/{name}", folder.trim_end_matches('/')))
}

impl Words {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn settings(&self) -> &ReportSettings {
        &self.settings
    }

    /// Removes the recording of an earlier run, and checks that a file can be created in its place. Nothing but a recording is
    /// removed.
    pub(super) fn prepare_recording(&self) -> Result<(), Failure> {
        let Some(path) = &self.recording else {
            return Ok(());
        };
        let failure = |why: String| Failure::Record {
            path: path.clone(),
            why,
        };
        match std::fs::File::open(path) {
            Ok(mut file) => {
                let mut start = Vec::new();
                let read = file.by_ref().take(8).read_to_end(&mut start);
                read.map_err(|error| failure(error.to_string()))?;
                if !start.is_empty() && start != MAGIC {
                    return Err(failure("the file exists and is not a recording".to_owned()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let created = std::fs::File::create_new(path);
                created.map_err(|error| failure(error.to_string()))?;
            }
            Err(error) => return Err(failure(error.to_string())),
        }
        std::fs::remove_file(path).map_err(|error| failure(error.to_string()))
    }

    /// The file of the recording, if its name does not depend on the process.
    pub(super) fn recording(&self) -> Option<&Path> {
        self.recording.as_deref()
    }

    /// Whether nobody wants reports, nor their summary: findings still set the exit code.
    pub(super) fn discards_reports(&self) -> bool {
        self.file.as_deref().is_some_and(discards_reports)
    }

    /// Truncates the file that all processes append their reports to, and checks that a file can be written.
    pub(super) fn prepare_file(&self) -> Result<(), Failure> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let failure = |error: std::io::Error| {
            let (path, why) = (path.clone(), error.to_string());
            match self.has_output {
                true => Failure::Output { path, why },
                false => Failure::File { path, why },
            }
        };
        // Opening a pipe waits for its reader, and the reports do that; devices have nothing to truncate.
        let info = std::fs::metadata(path);
        if info.as_ref().is_ok_and(|info| !info.is_file()) && !path.is_dir() {
            return Ok(());
        }
        let file = open_report_file(path).map_err(failure)?;
        let info = file.metadata().map_err(failure)?;
        // Standard output may be this file, with output that is not a report.
        let own = ["/proc/self/fd/1", "/proc/self/fd/2"].into_iter();
        let mut own = own.filter_map(|own| std::fs::metadata(own).ok());
        if !own.any(|own| (own.dev(), own.ino()) == (info.dev(), info.ino())) {
            file.set_len(0).map_err(failure)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::super::Options;
    use super::{Failure, Words, compose};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn compose_words(environment: Option<&str>, arguments: &[&str]) -> Result<Words, Failure> {
        let command = ["run"].iter().chain(arguments).chain(&["--", "program"]);
        let options = Command::try_parse_from(command)
            .expect("good options")
            .options;
        compose(&options.audit, environment.map(OsStr::new))
    }

    fn words(environment: Option<&str>, arguments: &[&str]) -> Words {
        compose_words(environment, arguments).expect("good words")
    }

    #[test]
    fn options_win_over_the_environment() {
        for (environment, arguments, expected) in [
            (None, &[][..], "1"),
            (Some(""), &[], "1"),
            (Some("json,max=3"), &[], "json,max=3"),
            (Some("json,max=3"), &["--report", "text"], "max=3,text"),
            (Some("json,file=/x"), &["--report", "github"], "github"),
            (Some("json,file=/x"), &["--output", "/y%p"], "file=/y%p"),
            (
                Some("exitcode=3,level=counts"),
                &["--exitcode", "4", "--sites"],
                "exitcode=4,level=sites",
            ),
            (
                Some("1"),
                &["--fail-on", "lost,growth", "--no-python"],
                "1,fail_on=lost+growth,python=no,exitcode=1",
            ),
            (
                Some("python=yes,1"),
                &["--stacks", "--no-python"],
                "1,level=stacks,python=no",
            ),
            (Some("0,max=3"), &["--exitcode", "3"], "max=3,exitcode=3"),
            (Some("Off"), &["--report", "json"], "json"),
            (Some("no"), &["--output", "/x"], "file=/x"),
            (Some("0"), &["--fail-on", "lost"], "fail_on=lost,exitcode=1"),
            // How much is recorded does not matter without a report.
            (Some("0,max=3"), &["--sites", "--no-python"], "0"),
            (Some("fail_on=growth"), &[], "fail_on=growth,exitcode=1"),
            (
                Some("exitcode=0"),
                &["--fail-on", "lost"],
                "exitcode=0,fail_on=lost",
            ),
        ] {
            let words = words(environment, arguments);
            assert_eq!(words.text(), expected, "{environment:?} {arguments:?}");
        }
    }

    #[test]
    fn names_are_absolute() {
        let folder = std::env::current_dir().expect("there is a folder");
        let folder = folder.to_str().expect("Unicode");
        let words = words(Some("file=x"), &[]);
        assert_eq!(words.text(), format!("file={folder}/x"));
    }

    #[test]
    fn bad_words_of_the_environment_are_errors() {
        let words = compose_words(Some("bogus,file=x,max=-1"), &[]);
        let failure = words.expect_err("bad words");
        assert_eq!(failure.code(), 2);
        let text = failure.to_string();
        assert!(
            text.starts_with("LEAK_REPORT: unknown word \"bogus\"; known words: 0 (off"),
            "{text}"
        );
        assert!(
            text.contains("; LEAK_REPORT: cannot use \"max=-1\": "),
            "{text}"
        );
        // Also where an option replaces what a good word would set.
        assert!(compose_words(Some("exitcode=many"), &["--exitcode", "3"]).is_err());
        assert!(compose_words(Some("0,bogus"), &[]).is_err());
    }

    #[test]
    fn names_that_no_word_can_have_are_errors() {
        for (arguments, error) in [
            (
                ["--output", "/a,b"],
                "--output /a,b: the absolute name has a comma, which separates words of LEAK_REPORT",
            ),
            (
                ["--output", "-"],
                "--output -: it is not a file name; without --output reports go to standard error",
            ),
            (
                ["--report=github", "--output=/a"],
                "--output /a: annotations are printed; a file has the report as text or json",
            ),
            (
                ["--output", "/a%q"],
                "--output /a%q: cannot use \"file=/a%q\": %q means nothing; %p is the process id, %c the context, %h the machine, %r the rank, %% a percent sign",
            ),
            (
                ["--suppress", "/does/not/exist"],
                "--suppress /does/not/exist: No such file or directory (os error 2)",
            ),
        ] {
            let command = ["run"].iter().chain(&arguments).chain(&["--", "program"]);
            let options = Command::try_parse_from(command)
                .expect("good options")
                .options;
            let failure = compose(&options.audit, None).expect_err("a name that cannot be used");
            assert_eq!(failure.to_string(), error);
            assert_eq!(failure.code(), 2);
        }
    }

    #[test]
    fn only_a_file_of_all_processes_is_prepared() {
        assert!(words(None, &["--output", "/x"]).file.is_some());
        assert!(words(None, &["--output", "/x-%p"]).file.is_none());
        assert!(words(None, &[]).file.is_none());
    }
}
