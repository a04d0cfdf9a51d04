//! The settings of the report: `LEAK_REPORT` as the process had it when it started.

use std::sync::OnceLock;

use cuguard_report::{ReportSettings, resolve_words};

use crate::stderr;

/// The settings. Unlike in a program that uses the cuguard crate, without `LEAK_REPORT` there is a report as text: the library
/// is preloaded for nothing else.
pub(crate) fn get() -> &'static ReportSettings {
    static SETTINGS: OnceLock<ReportSettings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let start = super::facts::start();
        let words = start.words.as_ref().map(|words| words.to_string_lossy());
        let words = words.unwrap_or_default();
        let words = match &start.folder {
            Some(folder) => resolve_words(&words, folder),
            None => words.into_owned(),
        };
        let (settings, problems) = ReportSettings::parse(&words);
        // `cuguard run` has checked the words.
        if start.run_folder.is_none() {
            for problem in problems {
                stderr::print(&format!("cuguard: LEAK_REPORT: {problem}\n"));
            }
        }
        match settings.is_on() || settings.is_silent() {
            true => settings,
            false => ReportSettings::text(),
        }
    })
}
