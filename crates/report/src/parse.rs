//! The words of `LEAK_REPORT`.

use std::path::PathBuf;
use std::str::FromStr;

use cuguard_registry::{MAX_DEPTH, TrackingLevel};

use crate::format::ReportMode;
use crate::pattern::FilePattern;
use crate::problem::{Problem, VALUES};
use crate::settings::{Colour, LEAST_LIMIT, ReportSettings};

/// The environment variable.
pub(crate) const VARIABLE: &str = "LEAK_REPORT";

impl ReportSettings {
    /// Parses a list of words as in `LEAK_REPORT`. Returns the settings that the usable words make, and
    /// what cannot be used. Reads files of suppressions.
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
        let mut parsed = parse(text);
        for path in parsed.suppress_files {
            if let Err(error) = parsed.settings.suppressions.read(&path) {
                let reason = error.to_string();
                parsed.problems.push(Problem::CannotRead { path, reason });
            }
        }
        (parsed.settings, parsed.problems)
    }
}

/// A list of words, before files are read.
#[derive(Default)]
struct Parsed {
    settings: ReportSettings,
    suppress_files: Vec<PathBuf>,
    problems: Vec<Problem>,
    /// Whether there is the word `record`.
    record: bool,
}

/// An empty list sets nothing. One with `0` in it turns everything off. Any other turns the report on,
/// also one without a known word: a misspelled word must not hide the report.
fn parse(list: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let words = || list.split(',').map(str::trim);
    if list.trim().is_empty() {
        return parsed;
    }
    if let Some(off) = words().find(|word| is_off(word)) {
        let others = words().filter(|word| !word.is_empty() && !is_off(word));
        let words: Vec<_> = others.map(str::to_owned).collect();
        if !words.is_empty() {
            let off = off.to_owned();
            parsed.problems.push(Problem::Ignored { off, words });
        }
        parsed.settings = ReportSettings::silent();
        return parsed;
    }
    parsed.settings.mode = ReportMode::Implied;
    for word in words() {
        let problem = if word.is_empty() {
            let list = list.to_owned();
            Some(Problem::EmptyWord { list }).filter(|problem| !parsed.problems.contains(problem))
        } else {
            let problem = parsed.apply(word).err();
            problem.map(|problem| match word.contains(';') {
                true => Problem::BadValue {
                    word: word.to_owned(),
                    why: "words are separated by commas".to_owned(),
                },
                false => problem,
            })
        };
        parsed.problems.extend(problem);
    }
    if parsed.record {
        parsed.note_least_limit();
        // The file is that of the recording, wherever it stands in the list.
        let settings = &mut parsed.settings;
        settings.record = settings.file.take().or(FilePattern::of_recording().ok());
        // It would be without any allocation.
        if settings
            .level
            .take_if(|level| *level == TrackingLevel::Counts)
            .is_some()
        {
            parsed.problems.push(Problem::BadValue {
                word: "level=counts".to_owned(),
                why: "a recording needs call sites; beside record, level is one of sites, stacks"
                    .to_owned(),
            });
        }
    }
    parsed
}

fn is_off(word: &str) -> bool {
    ReportMode::Off.with_word(word) == Some(ReportMode::Silent)
}

impl Parsed {
    /// A recording that starts in spite of a limit that is too small has the least one.
    fn note_least_limit(&mut self) {
        if self.settings.record_limit != Some(LEAST_LIMIT) {
            return;
        }
        for problem in &mut self.problems {
            if let Problem::BadValue { word, why } = problem
                && word.starts_with("record-limit")
            {
                why.push_str("; the recording's limit is 1 MiB");
            }
        }
    }

    fn apply(&mut self, word: &str) -> Result<(), Problem> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (word, None),
        };
        let bad = |why: String| Problem::BadValue {
            word: word.to_owned(),
            why,
        };
        let settings = &mut self.settings;
        if let Some(mode) = settings.mode.with_word(name) {
            if value.is_some() {
                return Err(bad(format!("{name} takes no value")));
            }
            settings.mode = mode;
            return Ok(());
        }
        if let "record" | "embed-symbols" = name {
            if value.is_some() {
                return Err(bad(format!("{name} takes no value")));
            }
            match name {
                "record" => self.record = true,
                _ => settings.embed_symbols = Some(true),
            }
            return Ok(());
        }
        if name == "reclaim" {
            return Err(bad("`reclaim` is now `free_leaks`".to_owned()));
        }
        let name = match name {
            "color" => "colour",
            "dump_signal" => "dump-signal",
            name => name,
        };
        let known = VALUES.iter().find(|(known, _)| *known == name);
        let Some((_, expected)) = known else {
            let word = word.to_owned();
            return Err(Problem::UnknownWord { word });
        };
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            let name = word.split('=').next().unwrap_or_default().trim_end();
            return Err(bad(format!("{name} needs a value: {expected}")));
        };
        let not_expected = || match expected.strip_prefix("one of ") {
            Some(choices) => bad(format!("{value:?} is none of {choices}")),
            None => bad(format!("{value:?} is not {expected}")),
        };
        match (name, value) {
            ("file", _) => {
                let pattern = FilePattern::new(value).map_err(|error| bad(error.to_string()))?;
                settings.file = Some(pattern);
            }
            ("exitcode", _) => settings.exit_code = Some(number(value).ok_or_else(not_expected)?),
            ("max", _) => {
                let max: u64 = number(value).ok_or_else(not_expected)?;
                settings.max = Some(max.try_into().unwrap_or(usize::MAX));
            }
            ("depth", _) => {
                let depth = number(value).filter(|depth| (1..=MAX_DEPTH).contains(depth));
                settings.depth = Some(depth.ok_or_else(not_expected)?);
            }
            ("sample", _) => {
                let sample = number(value).filter(|one_in| *one_in != 0);
                settings.sample = Some(sample.ok_or_else(not_expected)?);
            }
            ("suppress", _) => self.suppress_files.push(value.into()),
            ("level", _) => settings.level = Some(value.parse().map_err(|_| not_expected())?),
            ("frames", "program") => settings.all_frames = Some(false),
            ("frames", "all") => settings.all_frames = Some(true),
            ("free_leaks", "yes" | "true" | "on" | "1") => settings.free_leaks = Some(true),
            ("free_leaks", "no" | "false" | "off" | "0") => settings.free_leaks = Some(false),
            ("dump-signal", _) => {
                settings.dump_signal = Some(value.parse().map_err(|_| not_expected())?);
            }
            ("python", "yes" | "true" | "on" | "1") => settings.python = Some(true),
            ("python", "no" | "false" | "off" | "0") => settings.python = Some(false),
            ("fail_on", _) => settings.fail_on = Some(value.parse().map_err(|_| not_expected())?),
            ("record-limit", _) => {
                let limit = bytes(value).ok_or_else(not_expected)?;
                // A wish for a small file must not become one without a limit.
                settings.record_limit = Some(limit.max(LEAST_LIMIT));
                if limit < LEAST_LIMIT {
                    return Err(not_expected());
                }
            }
            ("record-policy", _) => {
                settings.record_policy = Some(value.parse().map_err(|_| not_expected())?);
            }
            ("colour", "auto") => settings.colour = Some(Colour::Auto),
            ("colour", "always") => settings.colour = Some(Colour::Always),
            ("colour", "never") => settings.colour = Some(Colour::Never),
            _ => return Err(not_expected()),
        }
        Ok(())
    }
}

/// A number in digits alone, without a sign.
fn number<N: FromStr>(value: &str) -> Option<N> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| digits)
}

/// A size in bytes: digits, and a unit of 1024, 1024² or 1024³ bytes (`K`, `KiB`, `M`, `MiB`, `G`, `GiB`).
fn bytes(value: &str) -> Option<u64> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = value.split_at(digits);
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    number::<u64>(count)?.checked_mul(unit)
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
