//! The recording that `LEAK_REPORT` or the program asks for: its settings, its begin and its end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use cuguard_recording::{Embedded, Options, Policy, Site};

use crate::foreign;
use crate::output;
use crate::pattern::{self, FilePattern, ParsePatternError};
use crate::phrase::printable;
use crate::run_records::FOLDER;
use crate::settings::{LEAST_LIMIT, ReportSettings};
use crate::symbols::Symbols;

impl ReportSettings {
    /// Records every allocation and free of the process into a file, which `cuguard report` reads; like
    /// `LEAK_REPORT=record,file=PATTERN`. The first context of the process starts the recording: settings of later ones
    /// do not change it. Implies stack traces.
    ///
    /// `%p` is the process id, `%h` the name of the machine, `%r` the rank in a distributed job.
    ///
    /// # Errors
    ///
    /// [`ParsePatternError`]: the pattern is empty, or has an unknown percent sequence.
    ///
    /// ```
    /// use cuguard::TrackingLevel;
    /// use cuguard::report::ReportSettings;
    ///
    /// let settings = ReportSettings::off().record("run-%p.cgr")?;
    /// assert_eq!(settings.wanted_level(), Some(TrackingLevel::Stacks));
    /// assert!(ReportSettings::off().record("run-%z.cgr").is_err());
    /// # Ok::<(), cuguard::report::ParsePatternError>(())
    /// ```
    pub fn record(mut self, pattern: &str) -> Result<Self, ParsePatternError> {
        self.record = Some(FilePattern::new(pattern)?);
        Ok(self)
    }

    /// Limits the size of the recording to this many bytes; like `record-limit=256MiB`. Less than 1 MiB counts as 1 MiB.
    ///
    /// What happens at the limit is set by [`record_policy`](Self::record_policy); by default the last events are kept.
    pub fn record_limit(mut self, bytes: u64) -> Self {
        self.record_limit = Some(bytes);
        self
    }

    /// What happens when the recording reaches its size limit; like `record-policy=all|last|aggregate`. Without a
    /// [`record_limit`](Self::record_limit), everything is recorded, and standard error says so where another policy is set.
    ///
    /// ```
    /// use cuguard::report::{RecordPolicy, ReportSettings};
    ///
    /// let settings = ReportSettings::off().record("run.cgr")?;
    /// let settings = settings.record_limit(256 << 20).record_policy(RecordPolicy::Aggregate);
    /// let (same, _) = ReportSettings::parse("record,file=run.cgr,record-limit=256MiB,record-policy=aggregate");
    /// assert_eq!(settings.recording_file(), same.recording_file());
    /// # Ok::<(), cuguard::report::ParsePatternError>(())
    /// ```
    pub fn record_policy(mut self, policy: Policy) -> Self {
        self.record_policy = Some(policy);
        self
    }

    /// Whether the names of functions are written into the recording when the process exits, for a machine that does not
    /// have the program; like `embed-symbols`.
    pub fn embed_symbols(mut self, embed: bool) -> Self {
        self.embed_symbols = Some(embed);
        self
    }

    /// The file of the recording, if there is one.
    ///
    /// ```
    /// use cuguard::report::ReportSettings;
    ///
    /// let (settings, _) = ReportSettings::parse("record,file=run-100%%.cgr");
    /// assert_eq!(settings.recording_file(), Some("run-100%.cgr".into()));
    /// assert_eq!(ReportSettings::text().recording_file(), None);
    /// ```
    #[must_use]
    pub fn recording_file(&self) -> Option<PathBuf> {
        let pattern = self.record.as_ref()?;
        Some(pattern.path(std::process::id(), 1))
    }

    /// How the recording is made, if there is one. A recording that exists is replaced, but not among the
    /// processes of one `cuguard run`: the process id is then appended to the name.
    ///
    /// ```
    /// let (settings, _) = cuguard::report::ReportSettings::parse("record,record-limit=8MiB");
    /// assert_eq!(settings.recording_options().unwrap().limit, 8 << 20);
    /// ```
    #[must_use]
    pub fn recording_options(&self) -> Option<Options> {
        let options = Options::new(self.recording_file()?);
        let options = match self.record_limit {
            None => options,
            Some(bytes) => {
                let policy = self.record_policy.unwrap_or(Policy::Last);
                options.limit(bytes.max(LEAST_LIMIT), policy)
            }
        };
        let embed = self.embed_symbols.unwrap_or(false);
        // `cuguard run` has removed the file of an earlier run: what is there now is of another process of this one.
        let is_alone = std::env::var_os(FOLDER).is_none();
        let options = options.replace(is_alone).rank(pattern::rank());
        Some(options.keep_addresses(embed))
    }

    /// The policy that has no effect. The limit may be the program's and the policy the environment's: neither is enough
    /// to know.
    fn policy_without_limit(&self) -> Option<Policy> {
        let policy = self.record_policy.filter(|policy| *policy != Policy::All);
        policy.filter(|_| self.record_limit.is_none())
    }
}

/// Whether the recording gets names of functions at its end.
static EMBED: AtomicBool = AtomicBool::new(false);

/// Whether the lines about the recording are not printed.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Starts the recording that the settings ask for. The first call with a recording counts. Where it fails, standard error
/// says why, and the program goes on without.
pub fn start_recording(settings: &ReportSettings) {
    if let Some(options) = settings.recording_options() {
        start_once(
            &options,
            settings.policy_without_limit(),
            settings.is_silent(),
        );
    }
}

/// [`start_recording`] with options that the caller changed.
pub fn start_recording_with(options: &Options) {
    start_once(options, None, false);
}

fn start_once(options: &Options, without_effect: Option<Policy>, silent: bool) {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        if let Some(policy) = without_effect {
            let line = format!(
                "cuguard: record-policy={policy} has no effect without record-limit=SIZE, such as record-limit=256MiB: the recording has no limit\n"
            );
            output::print(&line, false);
        }
        cuguard_recording::register_foreign(|address| {
            let number = Some(address).filter(|address| foreign::is_foreign(*address))?;
            let frame = foreign::resolve(number)?;
            Some((frame.function, frame.file, frame.line))
        });
        EMBED.store(options.keep_addresses, Ordering::Relaxed);
        SILENT.store(silent, Ordering::Relaxed);
        if let Err(error) = cuguard_registry::start_recording(options) {
            output::print(
                &format!("cuguard: {error}; the program goes on without a recording\n"),
                false,
            );
        }
    });
}

/// A context records at level *counts*: where there is a recording, one line on standard error says that the context's
/// resources are not in it. Level and recording may be set in different places, so that neither setting is wrong by
/// itself. Not if the settings of the recording are silent.
pub fn warn_of_counts() {
    static WARNED: Once = Once::new();
    let silent = SILENT.load(Ordering::Relaxed);
    if let Some(path) = cuguard_recording::path().filter(|_| !silent) {
        WARNED.call_once(|| {
            let line = format!(
                "cuguard: a context has level counts: its resources are not in the recording {}; levels sites and stacks record them\n",
                printable(&path.to_string_lossy())
            );
            output::print(&line, false);
        });
    }
}

/// Ends the recording, when the process exits. Resolves the names of functions, if that is asked for.
pub fn end_recording() {
    if !cuguard_recording::is_on() {
        return;
    }
    if EMBED.load(Ordering::Relaxed) {
        let mut symbols = Symbols::default();
        let addresses = cuguard_recording::addresses().into_iter();
        let embedded = addresses.map(|address| embedded(&mut symbols, address));
        cuguard_recording::embed_symbols(embedded.filter(|one| !one.functions.is_empty()));
    }
    cuguard_registry::end_recording();
}

/// Prints where the recording is, when the process exits. Not if the settings are silent, nor under `cuguard run`, which prints it
/// after all processes have ended.
pub fn announce_recording() {
    let silent = SILENT.load(Ordering::Relaxed) || std::env::var_os(FOLDER).is_some();
    if let Some(path) = cuguard_recording::path().filter(|_| !silent) {
        let path = path.to_string_lossy();
        let line = format!("cuguard: recording in {}\n", printable(&path));
        output::print(&line, true);
    }
}

/// The functions at an address.
fn embedded(symbols: &mut Symbols, address: u64) -> Embedded {
    let frames = symbols.frames(&[address as usize], true);
    let function = |symbol: &crate::symbols::Symbol| {
        let site = |file: &String| Site {
            file: file.clone(),
            line: symbol.line.unwrap_or(0),
            column: symbol.column.unwrap_or(0),
        };
        let site = symbol.file.as_ref().map(site);
        symbol.function.clone().map(|function| (function, site))
    };
    let functions = frames.iter().filter_map(|frame| function(&frame.symbol));
    Embedded {
        address,
        functions: functions.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, ReportSettings};

    #[test]
    fn a_policy_needs_a_limit_but_for_all() {
        for (words, expected) in [
            ("record", None),
            ("record,record-policy=all", None),
            ("record,record-policy=last", Some(Policy::Last)),
            ("record,record-policy=aggregate", Some(Policy::Aggregate)),
            ("record,record-policy=last,record-limit=8MiB", None),
        ] {
            let (settings, problems) = ReportSettings::parse(words);
            assert_eq!(problems, [], "{words}");
            assert_eq!(settings.policy_without_limit(), expected, "{words}");
        }
    }
}
