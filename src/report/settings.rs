//! What is reported, and where: the settings behind `LEAK_REPORT`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::output;
use super::parse::{self, Problem};
use super::pattern::{FilePattern, PatternError};
use super::suppress::Suppressions;
use crate::registry::{Level, MAX_DEPTH};

/// The environment variable that users set.
pub(super) const VARIABLE: &str = "LEAK_REPORT";

/// How many frames of each stack are kept unless somebody says otherwise.
const DEPTH: usize = 32;

/// What is reported when a context ends, and where: what `LEAK_REPORT` sets, for a program that
/// wants to decide itself.
///
/// | word in `LEAK_REPORT` | here | meaning |
/// |---|---|---|
/// | `0`, or nothing | [`off`](Self::off) | no report; a leak is one warning in the log |
/// | `1` | [`text`](Self::text) | a report: text, unless another word says JSON |
/// | `text` | [`text`](Self::text) | text for people |
/// | `json` | [`json`](Self::json) | one line of JSON for each context |
/// | `file=PATTERN` | [`file`](Self::file) | into a file instead of standard error: `%p` is the process id, `%c` the number of the context, `%%` a percent sign |
/// | `exitcode=N` | [`exit_code`](Self::exit_code) | the exit code when something leaked, 1 to 255 (0: leave it as it is) |
/// | `max=N` | [`max`](Self::max) | how many groups are shown; without, all |
/// | `depth=N` | [`depth`](Self::depth) | how many frames of each stack are kept, 1 to 128; 32 by default |
/// | `level=counts`, `sites`, `stacks` | [`level`](Self::level) | how much is recorded; `stacks` by default when there is a report, else `sites` |
/// | `sample=N` | [`sample`](Self::sample) | records one in N of the things that are made, which stands for the others in the report; 1 by default: all are recorded |
/// | `reclaim=yes`, `no` | [`reclaim`](Self::reclaim) | whether teardown frees what was forgotten; `yes` by default |
/// | `suppress=FILE` | [`suppress_file`](Self::suppress_file) | patterns of leaks that are expected, one a line |
/// | `colour=auto`, `always`, `never` | [`colour`](Self::colour) | colours; by default on a terminal only. `color` works too |
///
/// Words are separated by commas; where two contradict each other, the last holds. `text` and `json`
/// together give both: with a file the text goes to standard error and the JSON into the file. A
/// file whose name ends in `.json`, `.jsonl` or `.ndjson` gets JSON when neither is asked for.
///
/// The first report of a process begins the file anew, further ones of the same process are
/// appended; so a file of JSON has one line for each context (JSON Lines). Where several processes
/// run at the same time, put `%p` into the name. When the file cannot be written, standard error
/// says so and gets the report.
///
/// ```
/// use cuguard::{Level, ReportSettings};
///
/// let settings = ReportSettings::json().file("leaks-%p.json")?.max(20).exit_code(23);
/// let (same, problems) = ReportSettings::parse("json,file=leaks-%p.json,max=20,exitcode=23");
/// assert_eq!(settings, same);
/// assert!(problems.is_empty());
/// assert_eq!(settings.wanted_level(), Some(Level::Stacks));
/// # Ok::<(), cuguard::PatternError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "settings do nothing until a context gets them"]
pub struct ReportSettings {
    pub(super) report: Report,
    pub(super) file: Option<FilePattern>,
    pub(super) exit_code: Option<u8>,
    pub(super) max: Option<usize>,
    pub(super) depth: usize,
    pub(super) level: Option<Level>,
    pub(super) sample: u32,
    pub(super) reclaim: Option<bool>,
    pub(super) suppress_files: Vec<PathBuf>,
    pub(super) suppressions: Suppressions,
    pub(super) colour: Colour,
}

/// Whether there is a report, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Off,
    /// On, and nobody said in which form.
    On,
    Text,
    Json,
    Both,
}

/// When a report has colours.
///
/// ```
/// use cuguard::{Colour, ReportSettings};
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
            depth: DEPTH,
            level: None,
            sample: 1,
            reclaim: None,
            suppress_files: Vec::new(),
            suppressions: Suppressions::NONE,
            colour: Colour::Auto,
        }
    }

    /// No report. A leak is one warning in the log.
    ///
    /// ```
    /// assert!(!cuguard::ReportSettings::off().is_on());
    /// ```
    pub const fn off() -> Self {
        Self::of(Report::Off)
    }

    /// Text for people, with stacks, on standard error.
    ///
    /// ```
    /// assert!(cuguard::ReportSettings::text().is_on());
    /// ```
    pub const fn text() -> Self {
        Self::of(Report::Text)
    }

    /// JSON, with stacks, on standard error: one line for each context. `docs/leak-report-schema.md`
    /// says what is in it.
    ///
    /// ```
    /// assert!(cuguard::ReportSettings::json().is_on());
    /// ```
    pub const fn json() -> Self {
        Self::of(Report::Json)
    }

    /// What `LEAK_REPORT` says. It is read once; what it says wrong is told on standard error, and
    /// the rest of it holds.
    ///
    /// ```
    /// let settings = cuguard::ReportSettings::from_env();
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
    /// let (settings, problems) = cuguard::ReportSettings::parse("1,colour=purple,max=3");
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
    /// use cuguard::ReportSettings;
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
    /// let settings = cuguard::ReportSettings::text().exit_code(23);
    /// # let _ = settings;
    /// ```
    pub fn exit_code(mut self, code: u8) -> Self {
        self.exit_code = Some(code).filter(|code| *code != 0);
        self
    }

    /// Shows so many groups, and how many more there are.
    ///
    /// ```
    /// let settings = cuguard::ReportSettings::text().max(20);
    /// # let _ = settings;
    /// ```
    pub fn max(mut self, groups: usize) -> Self {
        self.max = Some(groups);
        self
    }

    /// Keeps so many frames of each stack, 1 to 128.
    ///
    /// ```
    /// assert_eq!(cuguard::ReportSettings::text().depth(1000).wanted_depth(), 128);
    /// ```
    pub fn depth(mut self, frames: usize) -> Self {
        self.depth = frames.clamp(1, MAX_DEPTH);
        self
    }

    /// How much is recorded.
    ///
    /// ```
    /// use cuguard::{Level, ReportSettings};
    ///
    /// let settings = ReportSettings::text().level(Level::Sites);
    /// assert_eq!(settings.wanted_level(), Some(Level::Sites));
    /// ```
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// Records one in so many of the things that are made, for programs that make very many. The
    /// figures of the groups are estimates then; the totals stay exact. 1, the default, records all
    /// of them; 0 counts as 1.
    ///
    /// ```
    /// let settings = cuguard::ReportSettings::text().sample(100);
    /// # let _ = settings;
    /// ```
    pub fn sample(mut self, one_in: u32) -> Self {
        self.sample = one_in.max(1);
        self
    }

    /// Whether teardown frees what was forgotten, unless the
    /// [builder](crate::ContextBuilder::reclaim) of the context says otherwise. Without, other
    /// tools that look for leaks see them too.
    ///
    /// ```
    /// let settings = cuguard::ReportSettings::text().reclaim(false);
    /// # let _ = settings;
    /// ```
    pub fn reclaim(mut self, reclaim: bool) -> Self {
        self.reclaim = Some(reclaim);
        self
    }

    /// Leaves out leaks that match this pattern, and counts them in one line. It is compared with
    /// the names of functions, files, types and labels as a whole; `*` stands for anything.
    ///
    /// ```
    /// let settings = cuguard::ReportSettings::text().suppress("my_app::cache::*");
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
    /// let missing = cuguard::ReportSettings::text().suppress_file("/does/not/exist");
    /// assert!(missing.is_err());
    /// ```
    pub fn suppress_file(mut self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.suppressions.read(path.as_ref())?;
        Ok(self)
    }

    /// When there are colours.
    ///
    /// ```
    /// let settings = cuguard::ReportSettings::text().colour(cuguard::Colour::Never);
    /// # let _ = settings;
    /// ```
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = colour;
        self
    }

    /// Whether there is a report.
    ///
    /// ```
    /// assert!(cuguard::ReportSettings::json().is_on());
    /// ```
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.report != Report::Off
    }

    /// The level that these settings ask for: what was said, else *stacks* when there is a report.
    ///
    /// ```
    /// use cuguard::{Level, ReportSettings};
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
    /// assert_eq!(cuguard::ReportSettings::text().wanted_depth(), 32);
    /// ```
    #[must_use]
    pub fn wanted_depth(&self) -> usize {
        self.depth
    }

    /// Of how many things that are made one is recorded.
    pub(crate) fn wanted_sample(&self) -> u32 {
        self.sample
    }

    /// Whether teardown is to free what was forgotten, if anybody said so.
    pub(crate) fn wanted_reclaim(&self) -> Option<bool> {
        self.reclaim
    }

    pub(super) fn suppressions(&self) -> &Suppressions {
        &self.suppressions
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

    /// Whether the report is to have text, and JSON.
    pub(super) fn forms(&self) -> (bool, bool) {
        match self.report {
            Report::Off => (false, false),
            Report::On if self.file.as_ref().is_some_and(FilePattern::is_json) => (false, true),
            Report::On | Report::Text => (true, false),
            Report::Json => (false, true),
            Report::Both => (true, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ReportSettings;
    use crate::report::parse::Problem;

    #[test]
    fn the_form_follows_the_words_and_the_file() {
        let forms = |text| ReportSettings::parse(text).0.forms();
        assert_eq!(forms("0"), (false, false));
        assert_eq!(forms("1"), (true, false));
        assert_eq!(forms("1,json"), (false, true));
        assert_eq!(forms("json,1"), (false, true));
        assert_eq!(forms("text,json"), (true, true));
        assert_eq!(forms("1,file=x.json"), (false, true));
        assert_eq!(forms("file=x.txt"), (true, false));
        assert_eq!(forms("text,file=x.json"), (true, false));
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
