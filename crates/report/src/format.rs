//! Whether there is a report, and in which formats.

/// What is reported at the end of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportMode {
    /// No report. A leak is one line.
    Off,
    /// No report and no line.
    Silent,
    /// On, because the list has words such as `max=3`.
    Implied,
    /// On explicitly.
    On(Formats),
}

/// The formats that are set. With none of them the file's name decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Formats {
    pub(crate) text: bool,
    pub(crate) json: bool,
    /// Annotations of GitHub Actions.
    pub(crate) github: bool,
}

impl Formats {
    pub(crate) const TEXT: Self = Self::new(true, false, false);
    pub(crate) const JSON: Self = Self::new(false, true, false);
    pub(crate) const GITHUB: Self = Self::new(false, false, true);
    const NONE: Self = Self::new(false, false, false);

    const fn new(text: bool, json: bool, github: bool) -> Self {
        Self { text, json, github }
    }
}

impl ReportMode {
    pub(crate) fn is_on(self) -> bool {
        matches!(self, Self::Implied | Self::On(_))
    }

    /// The mode after one more word. `None` for a word of another setting.
    pub(crate) fn with_word(self, word: &str) -> Option<Self> {
        let mut formats = match self {
            Self::On(formats) => formats,
            _ => Formats::NONE,
        };
        match word.to_ascii_lowercase().as_str() {
            "0" | "off" | "no" | "false" => return Some(Self::Silent),
            "1" | "on" | "yes" | "true" => {}
            "text" => formats.text = true,
            "json" => formats.json = true,
            "github" => formats.github = true,
            _ => return None,
        }
        Some(Self::On(formats))
    }

    /// The formats to write, where the name of the file may say that it holds JSON.
    pub(crate) fn formats(self, is_json_file: bool) -> Formats {
        match self {
            Self::Off | Self::Silent => Formats::NONE,
            Self::On(formats) if formats != Formats::NONE => formats,
            _ if is_json_file => Formats::JSON,
            _ => Formats::TEXT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Formats, ReportMode};

    fn read(words: &[&str]) -> ReportMode {
        let report = words
            .iter()
            .try_fold(ReportMode::Off, |r, w| r.with_word(w));
        report.expect("known words")
    }

    #[test]
    fn words_add_up_and_the_last_on_or_off_holds() {
        for off in ["0", "off", "no", "false", "OFF", "No"] {
            assert_eq!(read(&["json", off]), ReportMode::Silent);
        }
        for on in ["1", "on", "yes", "true", "True"] {
            assert_eq!(read(&[on]).formats(false), Formats::TEXT);
            assert_eq!(read(&[on]).formats(true), Formats::JSON);
            assert_eq!(read(&["json", on]).formats(false), Formats::JSON);
        }
        let all = read(&["json", "text", "github"]).formats(false);
        assert!(all.text && all.json && all.github);
        assert_eq!(read(&["json", "0", "text"]).formats(true), Formats::TEXT);
        assert_eq!(read(&["github"]).formats(true), Formats::GITHUB);
        assert_eq!(ReportMode::Off.with_word("max=3"), None);
        assert!(
            ReportMode::Implied.is_on() && !ReportMode::Silent.is_on() && !ReportMode::Off.is_on()
        );
    }
}
