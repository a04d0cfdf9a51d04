//! What is reported, and where: the settings behind `LEAK_REPORT`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::form::{Forms, Report};
use super::output;
use super::parse::{self, Problem};
use super::pattern::{FilePattern, PatternError};
use super::prepare::View;
use super::suppress::Suppressions;
use cuguard_registry::{Level, MAX_DEPTH};

/// The environment variable that users set.
pub(super) const VARIABLE: &str = "LEAK_REPORT";

/// How many frames of each stack are kept by default.
const DEPTH: usize = 32;

/// How many groups of each sort a person is shown by default.
const GROUPS: usize = 20;

/// What is reported when a context ends, and where: what `LEAK_REPORT` sets, for a program that
/// has settings of its own.
///
/// | word in `LEAK_REPORT` | here | meaning |
/// |---|---|---|
/// | unset, or nothing | [`off`](Self::off) | no report; a leak is one line in the log, or on standard error where no logger takes it |
/// | `0`, `off`, `no`, `false` | [`silent`](Self::silent) | no report and no line, whatever other words there are: they are ignored, and standard error names them |
/// | `1`, `on`, `yes`, `true` | [`text`](Self::text) | a report: text, unless another word or the file's name says JSON |
/// | `text` | [`text`](Self::text) | text for people |
/// | `json` | [`json`](Self::json) | one line of JSON for each context |
/// | `github` | [`github`](Self::github) | annotations for GitHub Actions, on standard error: one error at the line of each leak |
/// | `file=PATTERN` | [`file`](Self::file) | text or JSON into a file instead of standard error, which gets one line: the sum and the file. `%p` is the process id, `%c` the number of the context, `%%` a percent sign |
/// | `exitcode=N` | [`exit_code`](Self::exit_code) | the exit code when something leaked, 1 to 255 (0: leave it as it is) |
/// | `max=N` | [`max`](Self::max) | how many groups are shown; by default 20, and in JSON all |
/// | `depth=N` | [`depth`](Self::depth) | how many frames of each stack are kept, 1 to 128; 32 by default. Frames of this crate do not count; in a stripped program, where they have no names, some of the innermost frames are kept in addition, as they may be this crate's |
/// | `frames=program`, `all` | [`all_frames`](Self::all_frames) | whether frames of this crate and of the runtime are shown too; `program` by default |
/// | `level=counts`, `sites`, `stacks` | [`level`](Self::level) | how much is recorded; `stacks` by default when there is a report, else `sites` |
/// | `sample=N` | [`sample`](Self::sample) | records one in N of the resources, which stands for the others in the report; 1 by default: all are recorded |
/// | `free_leaks=yes`, `no` | [`free_leaks`](Self::free_leaks) | whether teardown frees what was forgotten; `yes` by default |
/// | `suppress=FILE` | [`suppress_file`](Self::suppress_file) | patterns of leaks that are expected, one a line, as LeakSanitizer has them |
/// | `colour=auto`, `always`, `never` | [`colour`](Self::colour) | colours; by default on a terminal only. `color` works too |
///
/// Words are separated by commas; of two that contradict each other the last holds. `text` and `json`
/// together give both: with a file the text goes to standard error and the JSON into the file. A
/// file whose name ends in `.json`, `.jsonl` or `.ndjson` gets JSON when neither is asked for.
///
/// **The environment wins over the program.** What a word of `LEAK_REPORT` sets holds, whatever the
/// program gives to [`ContextBuilder`](crate::ContextBuilder): its
/// [`report`](crate::ContextBuilder::report), [`level`](crate::ContextBuilder::level) and
/// [`free_leaks`](crate::ContextBuilder::free_leaks) hold for what no word sets. Form and file are one
/// setting: a word for either replaces both. Suppressions of both are used.
///
/// The first report of a process begins the file anew, further ones of the same process are
/// appended; so a file of JSON has one line for each context (JSON Lines). Where several processes
/// run at the same time, put `%p` into the name. When the file cannot be written, standard error
/// says so and gets the report.
///
/// ```
/// use cuguard::Level;
/// use cuguard::report::ReportSettings;
///
/// let settings = ReportSettings::json().file("leaks-%p.json")?.max(20).exit_code(23);
/// let (same, problems) = ReportSettings::parse("json,file=leaks-%p.json,max=20,exitcode=23");
/// assert_eq!(settings, same);
/// assert!(problems.is_empty());
/// assert_eq!(settings.wanted_level(), Some(Level::Stacks));
/// # Ok::<(), cuguard::report::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "settings do nothing until a context gets them"]
pub struct ReportSettings {
    pub(super) report: Report,
    pub(super) file: Option<FilePattern>,
    /// 0: leave it as it is.
    pub(super) exit_code: Option<u8>,
    pub(super) max: Option<usize>,
    pub(super) depth: Option<usize>,
    pub(super) all_frames: Option<bool>,
    pub(super) level: Option<Level>,
    pub(super) sample: Option<u32>,
    pub(super) free_leaks: Option<bool>,
    pub(super) suppress_files: Vec<PathBuf>,
    pub(super) suppressions: Suppressions,
    pub(super) colour: Option<Colour>,
}

/// When a report has colours.
///
/// ```
/// use cuguard::report::{Colour, ReportSettings};
///
/// let plain = ReportSettings::text().colour(Colour::Never);
/// # let _ = plain;
/// ```
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
    const fn of(report: Report) -> Self {
        Self {
            report,
            file: None,
            exit_code: None,
            max: None,
            depth: None,
            all_frames: None,
            level: None,
            sample: None,
            free_leaks: None,
            suppress_files: Vec::new(),
            suppressions: Suppressions::NONE,
            colour: None,
        }
    }

    /// No report. A leak is one line in the log, or on standard error where no logger takes it.
    ///
    /// ```
    /// assert!(!cuguard::report::ReportSettings::off().is_on());
    /// ```
    pub const fn off() -> Self {
        Self::of(Report::Off)
    }

    /// No report and no line, as by `LEAK_REPORT=0`.
    ///
    /// ```
    /// assert!(!cuguard::report::ReportSettings::silent().is_on());
    /// ```
    pub const fn silent() -> Self {
        Self::of(Report::Silent)
    }

    /// Text for people, with stacks, on standard error.
    ///
    /// ```
    /// assert!(cuguard::report::ReportSettings::text().is_on());
    /// ```
    pub const fn text() -> Self {
        Self::of(Report::On(Forms::TEXT))
    }

    /// JSON, with stacks, on standard error: one line for each context. `docs/leak-report-schema.md`
    /// says what is in it.
    ///
    /// ```
    /// assert!(cuguard::report::ReportSettings::json().is_on());
    /// ```
    pub const fn json() -> Self {
        Self::of(Report::On(Forms::JSON))
    }

    /// Annotations for GitHub Actions on standard error: each leak is an error at the line that
    /// made it.
    ///
    /// ```
    /// assert!(cuguard::report::ReportSettings::github().is_on());
    /// ```
    pub const fn github() -> Self {
        Self::of(Report::On(Forms::GITHUB))
    }

    /// What `LEAK_REPORT` says. It is read once; what it says wrong is told on standard error, and
    /// the rest of it holds.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::from_env();
    /// println!("a report was asked for: {}", settings.is_on());
    /// ```
    pub fn from_env() -> &'static Self {
        static SETTINGS: OnceLock<ReportSettings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let Some(value) = std::env::var_os(VARIABLE) else {
                return Self::off();
            };
            let (settings, problems) = match value.into_string() {
                Ok(text) => Self::parse(&text),
                Err(value) => {
                    let text = value.to_string_lossy();
                    let (settings, mut problems) = Self::parse(&text);
                    let text = text.into_owned();
                    problems.insert(0, Problem::NotUnicode { text });
                    (settings, problems)
                }
            };
            output::tell(&problems);
            settings
        })
    }

    /// Reads a list of words as `LEAK_REPORT` has it. What cannot be used is answered beside the
    /// settings that the rest makes. Files of suppressions are read at once.
    ///
    /// ```
    /// let (settings, problems) = cuguard::report::ReportSettings::parse("1,colour=purple,max=3");
    /// assert!(settings.is_on());
    /// assert_eq!(
    ///     problems[0].to_string(),
    ///     "cannot use \"colour=purple\": \"purple\" is none of auto, always, never"
    /// );
    /// ```
    pub fn parse(text: &str) -> (Self, Vec<Problem>) {
        let (mut settings, mut problems) = parse::parse(text);
        problems.extend(settings.load_suppressions());
        (settings, problems)
    }

    /// Into a file instead of standard error. The first report of a process begins the file anew, and
    /// others are appended; a file that the program's own output goes to, such as `/dev/stderr`, is
    /// only appended to.
    ///
    /// # Errors
    ///
    /// The pattern is empty, or has a percent sign that means nothing.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// assert!(ReportSettings::text().file("leaks-%p.txt").is_ok());
    /// assert!(ReportSettings::text().file("leaks-%z.txt").is_err());
    /// ```
    pub fn file(mut self, pattern: &str) -> Result<Self, PatternError> {
        self.file = Some(FilePattern::new(pattern)?);
        Ok(self)
    }

    /// The exit code of the process when something leaked. 0 leaves it as it is.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::text().exit_code(23);
    /// # let _ = settings;
    /// ```
    pub fn exit_code(mut self, code: u8) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Shows so many groups of each sort, and says of how many. By default 20, and in JSON all.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::text().max(20);
    /// # let _ = settings;
    /// ```
    pub fn max(mut self, groups: usize) -> Self {
        self.max = Some(groups);
        self
    }

    /// Keeps so many frames of each stack, 1 to 128, without those of this crate.
    ///
    /// ```
    /// assert_eq!(cuguard::report::ReportSettings::text().depth(1000).wanted_depth(), 128);
    /// ```
    pub fn depth(mut self, frames: usize) -> Self {
        self.depth = Some(frames.clamp(1, MAX_DEPTH));
        self
    }

    /// Whether frames of this crate, of the standard library and of the runtime are shown too.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::json().all_frames(true);
    /// # let _ = settings;
    /// ```
    pub fn all_frames(mut self, all: bool) -> Self {
        self.all_frames = Some(all);
        self
    }

    /// How much is recorded.
    ///
    /// ```
    /// use cuguard::Level;
    /// use cuguard::report::ReportSettings;
    ///
    /// let settings = ReportSettings::text().level(Level::Sites);
    /// assert_eq!(settings.wanted_level(), Some(Level::Sites));
    /// ```
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// Records one in so many of the resources that are created, for programs that create very many.
    /// Which ones is random, and different in each run: one resource that leaks is named in one run of so
    /// many, and counted in all. The figures of the groups are estimates; the totals stay exact. 1, the default, records all
    /// of them; 0 counts as 1.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::text().sample(100);
    /// # let _ = settings;
    /// ```
    pub fn sample(mut self, one_in: u32) -> Self {
        self.sample = Some(one_in.max(1));
        self
    }

    /// Whether teardown frees what was forgotten, unless the
    /// [builder](crate::ContextBuilder::free_leaks) of the context says otherwise. Without, other
    /// tools that look for leaks see them too.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::text().free_leaks(false);
    /// # let _ = settings;
    /// ```
    pub fn free_leaks(mut self, free_leaks: bool) -> Self {
        self.free_leaks = Some(free_leaks);
        self
    }

    /// Leaves out leaks that match this pattern, and counts them in one line. It is searched in the
    /// names of functions, files and modules on the stack, and in type and label; `*` stands for
    /// anything, `^` is the beginning and `$` the end of the name. `leak:` before the pattern is
    /// skipped, as LeakSanitizer has it. Patterns that match nothing are listed when the process ends.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::text().suppress("my_app::cache::*");
    /// # let _ = settings;
    /// ```
    pub fn suppress(mut self, pattern: &str) -> Self {
        self.suppressions.add(pattern);
        self
    }

    /// [`suppress`](Self::suppress) for each line of a file. Empty lines and lines that begin with
    /// `#` are skipped.
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

    /// When there are colours.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::text().colour(cuguard::report::Colour::Never);
    /// # let _ = settings;
    /// ```
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = Some(colour);
        self
    }

    /// Whether there is a report.
    ///
    /// ```
    /// assert!(cuguard::report::ReportSettings::json().is_on());
    /// ```
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.report.is_on()
    }

    /// Whether also the one line about a leak is unwanted.
    pub(super) fn is_silent(&self) -> bool {
        self.report == Report::Silent
    }

    /// The level that these settings ask for: what was said, else *stacks* when there is a report.
    ///
    /// ```
    /// use cuguard::Level;
    /// use cuguard::report::ReportSettings;
    ///
    /// assert_eq!(ReportSettings::off().wanted_level(), None);
    /// assert_eq!(ReportSettings::text().wanted_level(), Some(Level::Stacks));
    /// ```
    #[must_use]
    pub fn wanted_level(&self) -> Option<Level> {
        self.level.or(self.is_on().then_some(Level::Stacks))
    }

    /// How many frames of each stack are kept.
    ///
    /// ```
    /// assert_eq!(cuguard::report::ReportSettings::text().wanted_depth(), 32);
    /// ```
    #[must_use]
    pub fn wanted_depth(&self) -> usize {
        self.depth.unwrap_or(DEPTH)
    }

    /// Of how many things that are made one is recorded.
    pub fn wanted_sample(&self) -> u32 {
        self.sample.unwrap_or(1)
    }

    /// Whether teardown is to free what was forgotten, if anybody said so.
    pub fn wanted_free_leaks(&self) -> Option<bool> {
        self.free_leaks
    }

    pub(super) fn suppressions(&self) -> &Suppressions {
        &self.suppressions
    }

    /// What of a snapshot is shown.
    pub(super) fn view(&self) -> View<'_> {
        View {
            suppressions: &self.suppressions,
            all_frames: self.all_frames.unwrap_or(false),
            depth: self.wanted_depth(),
        }
    }

    /// Reads the files of suppressions that were named in a list of words.
    fn load_suppressions(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for path in std::mem::take(&mut self.suppress_files) {
            if let Err(error) = self.suppressions.read(&path) {
                let reason = error.to_string();
                problems.push(Problem::CannotRead { path, reason });
            }
        }
        problems
    }

    /// The forms that are to be written.
    pub(super) fn forms(&self) -> Forms {
        let to_json = self.file.as_ref().is_some_and(FilePattern::is_json);
        self.report.forms(to_json)
    }

    /// The exit code of a process that leaked.
    pub(super) fn wanted_exit_code(&self) -> Option<u8> {
        self.exit_code.filter(|code| *code != 0)
    }

    /// How many groups a person is shown.
    pub(super) fn shown(&self) -> usize {
        self.max.unwrap_or(GROUPS)
    }

    pub(super) fn wanted_colour(&self) -> Colour {
        self.colour.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::ReportSettings;
    use crate::parse::Problem;

    #[test]
    fn the_form_follows_the_words_and_the_file() {
        let forms = |text| {
            let forms = ReportSettings::parse(text).0.forms();
            (forms.text, forms.json)
        };
        assert_eq!(forms("0"), (false, false));
        assert_eq!(forms("1"), (true, false));
        assert_eq!(forms("1,json"), (false, true));
        assert_eq!(forms("json,1"), (false, true));
        assert_eq!(forms("text,json"), (true, true));
        assert_eq!(forms("1,file=x.json"), (false, true));
        assert_eq!(forms("file=x.txt"), (true, false));
        assert_eq!(forms("text,file=x.json"), (true, false));
        assert_eq!(forms("github"), (false, false));
    }

    #[test]
    fn a_file_of_suppressions_that_is_not_there_is_named() {
        let (settings, problems) = ReportSettings::parse("1,suppress=/does/not/exist");
        assert!(settings.is_on() && settings.suppress_files.is_empty());
        assert!(matches!(&problems[..], [Problem::CannotRead { .. }]));
        let text = problems[0].to_string();
        assert!(
            text.starts_with("cannot read the suppressions in /does/not/exist: "),
            "{text}"
        );
    }
}
