//! Whether there is a report, and in which forms.

/// What is reported at the end of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// No report. A leak is one line.
    Off,
    /// No report and no line.
    Silent,
    /// On, because a list of words has other words in it, such as `max=3`.
    Implied,
    /// On, because somebody asked for it.
    On(Forms),
}

/// The forms that were asked for. With none of them the file's name decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forms {
    pub(super) text: bool,
    pub(super) json: bool,
    /// Annotations for GitHub's runner.
    pub(super) github: bool,
}

impl Forms {
    pub(super) const TEXT: Self = Self {
        text: true,
        json: false,
        github: false,
    };
    pub(super) const JSON: Self = Self {
        text: false,
        json: true,
        github: false,
    };
    pub(super) const GITHUB: Self = Self {
        text: false,
        json: false,
        github: true,
    };
    const NONE: Self = Self {
        text: false,
        json: false,
        github: false,
    };

    fn and(self, other: Self) -> Self {
        Self {
            text: self.text || other.text,
            json: self.json || other.json,
            github: self.github || other.github,
        }
    }
}

impl Report {
    pub(super) fn is_on(self) -> bool {
        matches!(self, Self::Implied | Self::On(_))
    }

    /// What one more word of a list makes of it. `None` where the word is about something else.
    pub(super) fn with_word(self, word: &str) -> Option<Self> {
        let more = match word.to_ascii_lowercase().as_str() {
            "0" | "off" | "no" | "false" => return Some(Self::Silent),
            "1" | "on" | "yes" | "true" => Forms::NONE,
            "text" => Forms::TEXT,
            "json" => Forms::JSON,
            "github" => Forms::GITHUB,
            _ => return None,
        };
        let known = match self {
            Self::On(forms) => forms,
            _ => Forms::NONE,
        };
        Some(Self::On(known.and(more)))
    }

    /// The forms to write, with `to_json` for a file whose name says that it holds JSON.
    pub(super) fn forms(self, to_json: bool) -> Forms {
        match self {
            Self::Off | Self::Silent => Forms::NONE,
            Self::On(forms) if forms != Forms::NONE => forms,
            Self::Implied | Self::On(_) if to_json => Forms::JSON,
            Self::Implied | Self::On(_) => Forms::TEXT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Forms, Report};

    fn read(words: &[&str]) -> Report {
        let report = words.iter().try_fold(Report::Off, |r, w| r.with_word(w));
        report.expect("known words")
    }

    #[test]
    fn words_add_up_and_the_last_on_or_off_holds() {
        for off in ["0", "off", "no", "false", "OFF", "No"] {
            assert_eq!(read(&["json", off]), Report::Silent);
        }
        for on in ["1", "on", "yes", "true", "True"] {
            assert_eq!(read(&[on]).forms(false), Forms::TEXT);
            assert_eq!(read(&[on]).forms(true), Forms::JSON);
            assert_eq!(read(&["json", on]).forms(false), Forms::JSON);
        }
        let all = read(&["json", "text", "github"]).forms(false);
        assert!(all.text && all.json && all.github);
        assert_eq!(read(&["json", "0", "text"]).forms(true), Forms::TEXT);
        assert_eq!(read(&["github"]).forms(true), Forms::GITHUB);
        assert_eq!(Report::Off.with_word("max=3"), None);
        assert!(Report::Implied.is_on() && !Report::Silent.is_on() && !Report::Off.is_on());
    }
}
