//! The settings of the report: `LEAK_REPORT` as the process had it when it started.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuguard_registry::{Level, MAX_DEPTH};
use cuguard_report::{ReportSettings, resolve_words};

use crate::end;

/// How many frames are captured at level `sites`: enough to leave the CUDA runtime and an allocator.
const SITE_FRAMES: usize = 24;

static FRAMES: AtomicUsize = AtomicUsize::new(MAX_DEPTH);

/// How many frames of a stack are captured. How many of them are shown, the report decides.
#[inline]
pub(crate) fn frames() -> usize {
    FRAMES.load(Ordering::Relaxed)
}

/// The settings. Unlike in a program that uses the cuguard crate, without `LEAK_REPORT` there is a report as text: the library
/// is preloaded for nothing else.
pub(crate) fn get() -> &'static ReportSettings {
    static SETTINGS: OnceLock<ReportSettings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let start = end::start();
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
                end::print(&format!("cuguard: LEAK_REPORT: {problem}\n"));
            }
        }
        let frames = match settings.named_level() {
            Some(Level::Counts) => 0,
            Some(Level::Sites) => SITE_FRAMES,
            _ => MAX_DEPTH,
        };
        FRAMES.store(frames, Ordering::Relaxed);
        match settings.is_on() || settings.is_silent() {
            true => settings,
            false => ReportSettings::text(),
        }
    })
}
