//! What is reported, and where: the settings of `LEAK_REPORT`, as data. They are neither read nor printed here.

use std::io;
use std::path::{Path, PathBuf};

use cuguard_recording::Policy as RecordPolicy;
use cuguard_registry::{MAX_DEPTH, TrackingLevel};

use crate::dump_signal::DumpSignal;
use crate::fail_on::FailOn;
use crate::format::{Formats, ReportMode};
use crate::pattern::{FilePattern, ParsePatternError};
use crate::suppress::Suppressions;

/// How many frames of each stack trace are recorded by default.
const DEPTH: usize = 32;

/// How many groups a text report shows by default.
pub(crate) const GROUPS: usize = 20;

/// The least size limit of a recording: so much every one may have.
pub(crate) const LEAST_LIMIT: u64 = 1 << 20;

/// What is reported when a context ends, and where: the settings of `LEAK_REPORT`, set by the program.
///
/// | word in `LEAK_REPORT` | here | meaning |
/// |---|---|---|
/// | unset, or nothing | [`off`](Self::off) | no report; a leak is one line in the log, or on standard error without a logger |
/// | `0`, `off`, `no`, `false` | [`silent`](Self::silent) | no report and no line; other words are ignored, and standard error names them |
/// | `1`, `on`, `yes`, `true` | [`text`](Self::text) | a report: text, unless another word or the name of the file says JSON |
/// | `text` | [`text`](Self::text) | text |
/// | `json` | [`json`](Self::json) | one line of JSON for each context |
/// | `github` | [`github`](Self::github) | annotations for GitHub Actions, on standard error: one error at the line of each leak |
/// | `file=PATTERN` | [`file`](Self::file) | text or JSON to a file instead of standard error, which gets one line: the sum and the file. `%p` is the process id, `%c` the number of the context, `%h` the name of the machine, `%r` the rank in a distributed job (`RANK`, `SLURM_PROCID`, `OMPI_COMM_WORLD_RANK` or `PMI_RANK`, the first that is set; else 0), `%%` a percent sign |
/// | `exitcode=N` | [`exit_code`](Self::exit_code) | the exit code when something leaked, 1 to 255 (0: leave it as it is) |
/// | `max=N` | [`max`](Self::max) | how many groups are shown; by default 20, and in JSON all |
/// | `depth=N` | [`depth`](Self::depth) | how many frames of each stack trace are recorded, 1 to 128; 32 by default. Frames of these crates do not count; in a stripped program, where they have no names, some more of the innermost frames are shown, which may be these |
/// | `frames=program`, `all` | [`all_frames`](Self::all_frames) | whether frames of these crates and of the runtime are shown too; `program` by default |
/// | `level=counts`, `sites`, `stacks` | [`level`](Self::level) | how much is recorded; `stacks` by default when there is a report, else `sites` |
/// | `sample=N` | [`sample`](Self::sample) | records one resource in N, from which the report estimates; 1 by default: all are recorded |
/// | `free_leaks=yes`, `no` | [`free_leaks`](Self::free_leaks) | whether teardown frees leaks; `yes` by default (also `true`, `on`, `1`; `false`, `off`, `0`) |
/// | `suppress=FILE` | [`suppress_file`](Self::suppress_file) | patterns of expected leaks, one a line, in the syntax of LeakSanitizer |
/// | `fail_on=lost+reachable+growth+oom+destroyed` | [`wanted_fail_on`](Self::wanted_fail_on) | for programs under `cuguard run`: which findings set the exit code, joined by `+`; `lost` by default. Leaks of guards are lost. The exit code is then 1, unless `exitcode` sets it |
/// | `python=yes`, `no` | [`wanted_python`](Self::wanted_python) | for programs under `cuguard run`: whether Python frames are recorded; `yes` by default |
/// | `dump-signal=USR1`, `USR2`, `HUP`, `IO`, `PWR`, `none` | [`dump_signal`](Self::dump_signal) | the signal that writes a report of the running process; `USR2` by default. A program that handles or ignores the signal is left alone |
/// | `record` | [`record`](Self::record) | records every allocation and free into a file, which `cuguard report` reads. `file=PATTERN` names this file then (`cuguard-%p.cgr` by default), and a report goes to standard error |
/// | `record-limit=SIZE` | [`record_limit`](Self::record_limit) | the most bytes of the recording, such as `256MiB`, at least 1 MiB, which less counts as; no limit by default |
/// | `record-policy=all`, `last`, `aggregate` | [`record_policy`](Self::record_policy) | at the limit: keep everything all the same; keep the last events (the default); leave out allocations that are freed soon. Without a limit everything is recorded, and standard error says so |
/// | `embed-symbols` | [`embed_symbols`](Self::embed_symbols) | writes the names of functions into the recording at exit |
/// | `colour=auto`, `always`, `never` | [`colour`](Self::colour) | colours; by default on a terminal only. `color` works too |
///
/// Words are separated by commas; of two that contradict each other the last applies. `text` and `json`
/// together give both: with a file the text goes to standard error and the JSON to the file. A file
/// whose name ends in `.json`, `.jsonl` or `.ndjson` gets JSON unless a format is set.
///
/// **The environment wins over the program.** `report`, `level` and `free_leaks` of `ContextBuilder` apply
/// to what no word of `LEAK_REPORT` sets. Format and file are one setting: a word for either replaces
/// both. Suppressions of both are used.
///
/// The first report of a process truncates the file, later ones are appended: a JSON file has one line
/// for each context (JSON Lines). Where several processes run at the same time, put `%p` into the name.
/// If the file cannot be written, the report goes to standard error with the reason.
///
/// ```
/// use cuguard::TrackingLevel;
/// use cuguard::report::ReportSettings;
///
/// let settings = ReportSettings::json().file("leaks-%p.json")?.max(20).exit_code(23);
/// let (same, problems) = ReportSettings::parse("json,file=leaks-%p.json,max=20,exitcode=23");
/// assert_eq!(settings, same);
/// assert!(problems.is_empty());
/// assert_eq!(settings.wanted_level(), Some(TrackingLevel::Stacks));
/// # Ok::<(), cuguard::report::ParsePatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "settings have no effect until a context uses them"]
pub struct ReportSettings {
    pub(crate) mode: ReportMode,
    pub(crate) file: Option<FilePattern>,
    /// 0 leaves the exit code unchanged.
    pub(crate) exit_code: Option<u8>,
    pub(crate) max: Option<usize>,
    pub(crate) depth: Option<usize>,
    pub(crate) all_frames: Option<bool>,
    pub(crate) level: Option<TrackingLevel>,
    pub(crate) sample: Option<u32>,
    pub(crate) free_leaks: Option<bool>,
    pub(crate) suppressions: Suppressions,
    pub(crate) colour: Option<Colour>,
    pub(crate) fail_on: Option<FailOn>,
    pub(crate) python: Option<bool>,
    pub(crate) dump_signal: Option<DumpSignal>,
    /// The file of the recording.
    pub(crate) record: Option<FilePattern>,
    pub(crate) record_limit: Option<u64>,
    pub(crate) record_policy: Option<RecordPolicy>,
    pub(crate) embed_symbols: Option<bool>,
}

/// When the text of a report is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Colour {
    /// On a terminal, unless the environment variable `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Always, also in files.
    Always,
    /// Never.
    Never,
}

impl Default for ReportSettings {
    fn default() -> Self {
        Self::off()
    }
}

impl ReportSettings {
    const fn of(mode: ReportMode) -> Self {
        Self {
            mode,
            file: None,
            exit_code: None,
            max: None,
            depth: None,
            all_frames: None,
            level: None,
            sample: None,
            free_leaks: None,
            suppressions: Suppressions::NONE,
            colour: None,
            fail_on: None,
            python: None,
            dump_signal: None,
            record: None,
            record_limit: None,
            record_policy: None,
            embed_symbols: None,
        }
    }

    /// No report. A leak is one line in the log, or on standard error without a logger.
    pub const fn off() -> Self {
        Self::of(ReportMode::Off)
    }

    /// No report and no line, like `LEAK_REPORT=0`.
    pub const fn silent() -> Self {
        Self::of(ReportMode::Silent)
    }

    /// Text with stack traces, on standard error.
    pub const fn text() -> Self {
        Self::of(ReportMode::On(Formats::TEXT))
    }

    /// JSON with stack traces, on standard error: one line for each context. `docs/leak-report-schema.md`
    /// is its schema.
    pub const fn json() -> Self {
        Self::of(ReportMode::On(Formats::JSON))
    }

    /// Annotations for GitHub Actions, on standard error: each leak is an error at its call site.
    pub const fn github() -> Self {
        Self::of(ReportMode::On(Formats::GITHUB))
    }

    /// Writes to a file instead of standard error. The first report of a process truncates the file, later
    /// ones are appended; a file that is the program's own output, such as `/dev/stderr`, is never
    /// truncated.
    ///
    /// # Errors
    ///
    /// [`ParsePatternError`]: the pattern is empty, or has an unknown percent sequence.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// assert!(ReportSettings::text().file("leaks-%p.txt").is_ok());
    /// assert!(ReportSettings::text().file("leaks-%z.txt").is_err());
    /// ```
    pub fn file(mut self, pattern: &str) -> Result<Self, ParsePatternError> {
        self.file = Some(FilePattern::new(pattern)?);
        Ok(self)
    }

    /// The exit code of the process when something leaked. 0 leaves it unchanged.
    pub fn exit_code(mut self, code: u8) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Shows at most this many groups of leaks, escaped resources and failed frees. 20 by default, in JSON all.
    pub fn max(mut self, groups: usize) -> Self {
        self.max = Some(groups);
        self
    }

    /// Records this many frames of each stack trace, 1 to 128, not counting those of these crates.
    ///
    /// ```
    /// assert_eq!(cuguard::report::ReportSettings::text().depth(1000).wanted_depth(), 128);
    /// ```
    pub fn depth(mut self, frames: usize) -> Self {
        self.depth = Some(frames.clamp(1, MAX_DEPTH));
        self
    }

    /// Whether frames of these crates, of the standard library and of the runtime are shown too.
    pub fn all_frames(mut self, all: bool) -> Self {
        self.all_frames = Some(all);
        self
    }

    /// How much is recorded.
    ///
    /// ```
    /// use cuguard::TrackingLevel;
    /// use cuguard::report::ReportSettings;
    ///
    /// let settings = ReportSettings::text().level(TrackingLevel::Sites);
    /// assert_eq!(settings.wanted_level(), Some(TrackingLevel::Sites));
    /// ```
    pub fn level(mut self, level: TrackingLevel) -> Self {
        self.level = Some(level);
        self
    }

    /// Records one resource in `one_in`, for programs that allocate very many. The choice is random and
    /// different in each run: a single leak is counted in every run and named in one run of `one_in`. The
    /// figures of groups are estimates; totals are exact. 1, the default, and 0 record all.
    pub fn sample(mut self, one_in: u32) -> Self {
        self.sample = Some(one_in.max(1));
        self
    }

    /// Whether teardown frees leaks, unless `ContextBuilder::free_leaks` is set. If not, other leak checkers
    /// see them too.
    pub fn free_leaks(mut self, free_leaks: bool) -> Self {
        self.free_leaks = Some(free_leaks);
        self
    }

    /// Hides leaks that match this pattern; one line counts them. The pattern is searched in the names of
    /// functions, files and modules on the stack trace, and in type and label; `*` matches anything, `^` the
    /// beginning and `$` the end of a name. A prefix `leak:` is skipped, as in files of LeakSanitizer.
    /// Patterns that match nothing are listed at exit.
    pub fn suppress(mut self, pattern: &str) -> Self {
        self.suppressions.add(pattern);
        self
    }

    /// [`suppress`](Self::suppress) for each line of a file. Empty lines and lines that start with `#` are
    /// skipped.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    ///
    /// ```
    /// let missing = cuguard::report::ReportSettings::text().suppress_file("/does/not/exist");
    /// assert!(missing.is_err());
    /// ```
    pub fn suppress_file(mut self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.suppressions.read(path.as_ref())?;
        Ok(self)
    }

    /// When the text is coloured.
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = Some(colour);
        self
    }

    /// The signal that writes a report of the running process. Only `LEAK_REPORT` turns that on: a program without the variable
    /// handles no signal for reports.
    ///
    /// ```
    /// use cuguard::report::{DumpSignal, ReportSettings};
    ///
    /// let settings = ReportSettings::text().dump_signal(DumpSignal::None);
    /// assert_eq!(settings.wanted_dump_signal(), DumpSignal::None);
    /// assert_eq!(ReportSettings::text().wanted_dump_signal(), DumpSignal::Usr2);
    /// ```
    pub fn dump_signal(mut self, signal: DumpSignal) -> Self {
        self.dump_signal = Some(signal);
        self
    }

    /// The signal that writes a report of the running process.
    #[must_use]
    pub fn wanted_dump_signal(&self) -> DumpSignal {
        self.dump_signal.unwrap_or_default()
    }

    /// Whether there is a report.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.mode.is_on()
    }

    /// Whether even the one line about a leak is off.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// assert!(ReportSettings::parse("0").0.is_silent() && !ReportSettings::off().is_silent());
    /// ```
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.mode == ReportMode::Silent
    }

    /// The level of these settings: the one that is set, or *stacks* when there is a report or a recording.
    ///
    /// ```
    /// use cuguard::TrackingLevel;
    /// use cuguard::report::ReportSettings;
    ///
    /// assert_eq!(ReportSettings::off().wanted_level(), None);
    /// assert_eq!(ReportSettings::text().wanted_level(), Some(TrackingLevel::Stacks));
    /// ```
    #[must_use]
    pub fn wanted_level(&self) -> Option<TrackingLevel> {
        let wants_stacks = self.is_on() || self.record.is_some();
        self.level.or(wants_stacks.then_some(TrackingLevel::Stacks))
    }

    /// How many frames of each stack trace are recorded.
    ///
    /// ```
    /// assert_eq!(cuguard::report::ReportSettings::text().wanted_depth(), 32);
    /// ```
    #[must_use]
    pub fn wanted_depth(&self) -> usize {
        self.depth.unwrap_or(DEPTH)
    }

    /// One resource in this many is recorded.
    #[must_use]
    pub fn wanted_sample(&self) -> u32 {
        self.sample.unwrap_or(1)
    }

    /// Whether teardown frees leaks, where that is set.
    #[must_use]
    pub fn wanted_free_leaks(&self) -> Option<bool> {
        self.free_leaks
    }

    /// The same settings for a report that is returned as one text or one line of JSON, and written nowhere.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::parse("json,file=x.json,max=3").0;
    /// assert_eq!(settings.for_reply(false).wanted_formats(), [true, false, false]);
    /// ```
    pub fn for_reply(&self, json: bool) -> Self {
        let formats = Formats {
            text: !json,
            json,
            github: false,
        };
        Self {
            mode: ReportMode::On(formats),
            file: None,
            colour: Some(Colour::Never),
            ..self.clone()
        }
    }

    /// The formats to write.
    pub(crate) fn formats(&self) -> Formats {
        let is_json = self.file.as_ref().is_some_and(FilePattern::is_json);
        self.mode.formats(is_json)
    }

    /// The exit code of a process that leaked.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// assert_eq!(ReportSettings::text().exit_code(23).wanted_exit_code(), Some(23));
    /// assert_eq!(ReportSettings::text().exit_code(0).wanted_exit_code(), None);
    /// ```
    #[must_use]
    pub fn wanted_exit_code(&self) -> Option<u8> {
        self.exit_code.filter(|code| *code != 0)
    }

    /// Which findings set the exit code of a program under `cuguard run`.
    ///
    /// ```
    /// let (settings, _) = cuguard::report::ReportSettings::parse("fail_on=lost+growth");
    /// let fail_on = settings.wanted_fail_on();
    /// assert!(fail_on.lost && fail_on.growth && !fail_on.reachable);
    /// ```
    #[must_use]
    pub fn wanted_fail_on(&self) -> FailOn {
        self.fail_on.unwrap_or_default()
    }

    /// Whether Python frames of a program under `cuguard run` are recorded.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// assert!(ReportSettings::text().wanted_python());
    /// assert!(!ReportSettings::parse("1,python=no").0.wanted_python());
    /// ```
    #[must_use]
    pub fn wanted_python(&self) -> bool {
        self.python.unwrap_or(true)
    }

    /// Whether a report is written as text, as JSON, and as annotations for GitHub Actions.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// let (settings, _) = ReportSettings::parse("1,file=leaks.json");
    /// assert_eq!(settings.wanted_formats(), [false, true, false]);
    /// assert_eq!(ReportSettings::off().wanted_formats(), [false; 3]);
    /// ```
    #[must_use]
    pub fn wanted_formats(&self) -> [bool; 3] {
        let formats = self.formats();
        [formats.text, formats.json, formats.github]
    }

    /// The file of a process and a context, if reports go to a file.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// let settings = ReportSettings::text().file("leaks-%p.txt")?;
    /// assert_eq!(settings.file_of(42, 1), Some("leaks-42.txt".into()));
    /// # Ok::<(), cuguard::report::ParsePatternError>(())
    /// ```
    #[must_use]
    pub fn file_of(&self, process: u32, context: u64) -> Option<PathBuf> {
        let file = self.file.as_ref();
        file.map(|pattern| pattern.path(process, context))
    }

    /// How many groups a text report shows.
    ///
    /// ```
    /// assert_eq!(cuguard::report::ReportSettings::text().max(3).shown(), 3);
    /// ```
    #[must_use]
    pub fn shown(&self) -> usize {
        self.max.unwrap_or(GROUPS)
    }

    pub(crate) fn wanted_colour(&self) -> Colour {
        self.colour.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::ReportSettings;
    use crate::Problem;

    #[test]
    fn the_format_follows_the_words_and_the_file() {
        let formats = |text| {
            let formats = ReportSettings::parse(text).0.formats();
            (formats.text, formats.json)
        };
        assert_eq!(formats("0"), (false, false));
        assert_eq!(formats("1"), (true, false));
        assert_eq!(formats("1,json"), (false, true));
        assert_eq!(formats("json,1"), (false, true));
        assert_eq!(formats("text,json"), (true, true));
        assert_eq!(formats("1,file=x.json"), (false, true));
        assert_eq!(formats("file=x.txt"), (true, false));
        assert_eq!(formats("text,file=x.json"), (true, false));
        assert_eq!(formats("github"), (false, false));
    }

    #[test]
    fn a_file_of_suppressions_that_is_not_there_is_named() {
        let (settings, problems) = ReportSettings::parse("1,suppress=/does/not/exist");
        assert!(settings.is_on());
        assert!(matches!(&problems[..], [Problem::CannotRead { .. }]));
        let text = problems[0].to_string();
        assert!(
            text.starts_with("cannot read the suppressions in /does/not/exist: "),
            "{text}"
        );
    }
}
