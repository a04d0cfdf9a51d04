//! `LEAK_REPORT` in the environment, which wins over the settings of the program.

use std::sync::OnceLock;

use cuguard_registry::TrackingLevel;

use crate::format::{Formats, ReportMode};
use crate::output;
use crate::parse::VARIABLE;
use crate::problem::Problem;
use crate::settings::ReportSettings;

impl ReportSettings {
    /// The settings in `LEAK_REPORT`. The variable is read once; standard error names what cannot be
    /// used, and the rest applies.
    ///
    /// ```
    /// let settings = cuguard::report::ReportSettings::from_env();
    /// println!("LEAK_REPORT turns a report on: {}", settings.is_on());
    /// ```
    pub fn from_env() -> &'static Self {
        static SETTINGS: OnceLock<ReportSettings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let Some(value) = std::env::var_os(VARIABLE) else {
                return Self::off();
            };
            let text = value.to_string_lossy();
            let (settings, mut problems) = Self::parse(&text);
            if value.to_str().is_none() {
                let text = text.into_owned();
                problems.insert(0, Problem::NotUnicode { text });
            }
            output::print_problems(&problems);
            settings
        })
    }

    /// The settings of a context: those of `LEAK_REPORT`, and of the program for what that does not set.
    pub fn of_context(program: Option<Self>) -> Self {
        let environment = Self::from_env();
        match program {
            Some(program) => program.overridden_by(environment),
            None => environment.clone(),
        }
    }

    /// The level that was set explicitly. A recording needs stack traces, and so sets one.
    #[must_use]
    pub fn named_level(&self) -> Option<TrackingLevel> {
        self.level
            .or(self.record.as_ref().map(|_| TrackingLevel::Stacks))
    }

    fn overridden_by(self, other: &Self) -> Self {
        // Format and file are one setting: `LEAK_REPORT=text` must not go to a file that the program
        // names.
        let sets_format = matches!(other.mode, ReportMode::Silent | ReportMode::On(_));
        let (mode, file) = if sets_format || other.file.is_some() {
            (other.mode, other.file.clone())
        } else if other.mode == ReportMode::Implied && !self.mode.is_on() {
            (ReportMode::On(Formats::default()), self.file)
        } else {
            (self.mode, self.file)
        };
        let mut suppressions = other.suppressions.clone();
        suppressions.append(self.suppressions);
        Self {
            mode,
            file,
            exit_code: other.exit_code.or(self.exit_code),
            max: other.max.or(self.max),
            depth: other.depth.or(self.depth),
            all_frames: other.all_frames.or(self.all_frames),
            level: other.level.or(self.level),
            sample: other.sample.or(self.sample),
            free_leaks: other.free_leaks.or(self.free_leaks),
            suppressions,
            colour: other.colour.or(self.colour),
            fail_on: other.fail_on.or(self.fail_on),
            python: other.python.or(self.python),
            dump_signal: other.dump_signal.or(self.dump_signal),
            record: match other.mode {
                ReportMode::Silent => None,
                _ => other.record.clone().or(self.record),
            },
            record_limit: other.record_limit.or(self.record_limit),
            record_policy: other.record_policy.or(self.record_policy),
            embed_symbols: other.embed_symbols.or(self.embed_symbols),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ReportSettings;
    use cuguard_registry::TrackingLevel;

    fn under(program: &ReportSettings, environment: &str) -> ReportSettings {
        let (environment, problems) = ReportSettings::parse(environment);
        assert_eq!(problems, []);
        program.clone().overridden_by(&environment)
    }

    #[test]
    fn what_the_environment_names_wins_and_the_rest_is_the_programs() {
        let program = ReportSettings::json()
            .file("leaks.json")
            .unwrap()
            .exit_code(7)
            .max(3)
            .depth(5)
            .level(TrackingLevel::Sites)
            .suppress("cache");
        assert_eq!(under(&program, ""), program);
        for (words, expected) in [
            ("exitcode=9", program.clone().exit_code(9)),
            ("exitcode=0,max=4", program.clone().exit_code(0).max(4)),
            (
                "level=stacks,depth=6",
                program.clone().level(TrackingLevel::Stacks).depth(6),
            ),
        ] {
            assert_eq!(under(&program, words), expected, "{words}");
        }
        // Text on the command line is not for the program's file.
        let text = under(&program, "text");
        assert!(text.file.is_none() && text.formats().text && !text.formats().json);
        assert_eq!(
            (text.max, text.wanted_exit_code(), text.wanted_depth()),
            (Some(3), Some(7), 5)
        );
        let silent = under(&program, "off");
        assert!(!silent.is_on());
        assert_eq!(silent.wanted_level(), Some(TrackingLevel::Sites));
        let elsewhere = under(&program, "file=other.txt");
        assert!(elsewhere.formats().text && elsewhere.file != program.file);
    }

    #[test]
    fn a_word_turns_on_what_the_program_turned_off() {
        for words in ["1", "max=3", "json"] {
            assert!(under(&ReportSettings::off(), words).is_on(), "{words}");
            assert!(under(&ReportSettings::silent(), words).is_on(), "{words}");
        }
        assert!(!under(&ReportSettings::off(), "").is_on());
    }

    #[test]
    fn suppressions_of_both_are_used() {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("cuguard-precedence-{}", std::process::id()));
        std::fs::write(&file, "leak:from_the_file\n").unwrap();
        let program = ReportSettings::text().suppress("from_the_program");
        let both = under(&program, &format!("1,suppress={}", file.display()));
        for name in ["app::from_the_file", "app::from_the_program"] {
            assert!(both.suppressions.find(|s| s.matches(name)).is_some());
        }
        std::fs::remove_file(file).unwrap();
    }
}
