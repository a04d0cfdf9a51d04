//! Which setting holds: what the environment names, else what the program says.

use super::form::{Forms, Report};
use super::settings::ReportSettings;
use cuguard_registry::Level;

impl ReportSettings {
    /// The settings of a context: those of `LEAK_REPORT`, and for what it does not name those that
    /// the program gave.
    pub fn of_context(program: Option<Self>) -> Self {
        let environment = Self::from_env();
        match program {
            Some(program) => program.under(environment),
            None => environment.clone(),
        }
    }

    /// The level that was named, and not one that follows from a report.
    pub fn named_level(&self) -> Option<Level> {
        self.level
    }

    /// These settings where others, which win, do not name one.
    fn under(self, over: &Self) -> Self {
        // Form and file are one setting: whoever asks for text on the command line does not want it
        // in a file that the program names.
        let names_form = matches!(over.report, Report::Silent | Report::On(_));
        let (report, file) = if names_form || over.file.is_some() {
            (over.report, over.file.clone())
        } else if over.report == Report::Implied && !self.report.is_on() {
            (Report::On(Forms::default()), self.file)
        } else {
            (self.report, self.file)
        };
        let mut suppressions = over.suppressions.clone();
        suppressions.append(self.suppressions);
        Self {
            report,
            file,
            exit_code: over.exit_code.or(self.exit_code),
            max: over.max.or(self.max),
            depth: over.depth.or(self.depth),
            all_frames: over.all_frames.or(self.all_frames),
            level: over.level.or(self.level),
            sample: over.sample.or(self.sample),
            free_leaks: over.free_leaks.or(self.free_leaks),
            suppress_files: Vec::new(),
            suppressions,
            colour: over.colour.or(self.colour),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ReportSettings;
    use cuguard_registry::Level;

    fn under(program: &ReportSettings, environment: &str) -> ReportSettings {
        let (environment, problems) = ReportSettings::parse(environment);
        assert_eq!(problems, []);
        program.clone().under(&environment)
    }

    #[test]
    fn what_the_environment_names_wins_and_the_rest_is_the_programs() {
        let program = ReportSettings::json()
            .file("leaks.json")
            .unwrap()
            .exit_code(7)
            .max(3)
            .depth(5)
            .level(Level::Sites)
            .suppress("cache");
        assert_eq!(under(&program, ""), program);
        for (words, expected) in [
            ("exitcode=9", program.clone().exit_code(9)),
            ("exitcode=0,max=4", program.clone().exit_code(0).max(4)),
            (
                "level=stacks,depth=6",
                program.clone().level(Level::Stacks).depth(6),
            ),
        ] {
            assert_eq!(under(&program, words), expected, "{words}");
        }
        // Text on the command line is not for the program's file.
        let text = under(&program, "text");
        assert!(text.file.is_none() && text.forms().text && !text.forms().json);
        assert_eq!(
            (text.max, text.wanted_exit_code(), text.wanted_depth()),
            (Some(3), Some(7), 5)
        );
        let silent = under(&program, "off");
        assert!(!silent.is_on());
        assert_eq!(silent.wanted_level(), Some(Level::Sites));
        let elsewhere = under(&program, "file=other.txt");
        assert!(elsewhere.forms().text && elsewhere.file != program.file);
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
            assert!(both.suppressions().find(|s| s.matches(name)).is_some());
        }
        std::fs::remove_file(file).unwrap();
    }
}
