//! Reports of this process while it runs, for `cuguard dump`, `cuguard watch` and the signal of `dump-signal=`.
//!
//! The server's thread belongs to this library: searches leave it out. It reads the registry and never calls the driver. The
//! signal is handled in [`signals`], with those that end the process.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use cuguard_live::{Format, Options, Source};
use cuguard_registry::{PeakWatch, ResourceKind};
use cuguard_report::{DeviceFigures, ReportSettings, SiteNames, Stats, register_frames};
use cuguard_sync::clock;

use super::signals;
use crate::process::failure;
use crate::{cached, output, python, report, shortage, state};

/// As many call sites are added up at least: what is not asked for is counted.
const NAMED: usize = 512;

/// The records of this process.
struct Records {
    settings: &'static ReportSettings,
    names: Mutex<SiteNames>,
    /// Since the last request for the peak.
    watch: Mutex<Option<PeakWatch<'static>>>,
}

/// The figures by device, those of unknown ones first.
fn devices() -> Vec<DeviceFigures> {
    let mut devices: BTreeMap<Option<u32>, DeviceFigures> = BTreeMap::new();
    for (device, totals) in state::registry().device_totals() {
        let figures = devices.entry(device).or_default();
        (figures.live, figures.peak_bytes) = (totals.live(), totals.peak_bytes);
    }
    for (device, amount) in shortage::refused_by_device() {
        devices.entry(device).or_default().refused = amount;
    }
    for (device, bytes) in cached::known() {
        devices.entry(Some(device)).or_default().cached_bytes = Some(bytes);
    }
    devices
        .into_iter()
        .map(|(device, figures)| DeviceFigures { device, ..figures })
        .collect()
}

/// Starts the server, if reports are on.
pub(super) fn start(settings: &'static ReportSettings) {
    if !settings.is_on() {
        return;
    }
    // Lives as long as the process.
    let source = Box::leak(Box::new(Records {
        settings,
        names: Mutex::default(),
        watch: Mutex::default(),
    }));
    let started = cuguard_live::start(Options {
        source,
        // Handled with the signals that end the process.
        signal: None,
        // The reporting thread does that.
        ends_process: false,
    });
    if started.is_ok() {
        let signal = cuguard_live::number(settings.wanted_dump_signal());
        signals::set_dump_signal(signal.unwrap_or(0));
    }
}

impl Source for Records {
    fn dump(&self, format: Format, search: bool) -> String {
        let settings = self.settings.for_reply(format == Format::Json);
        let made = report::make_live(&settings, search, failure());
        made.text + &made.json
    }

    fn stats(&self, sites: usize) -> String {
        register_frames(python::resolve);
        let registry = state::registry();
        let totals = ResourceKind::ALL
            .iter()
            .map(|kind| (*kind, registry.totals(*kind)));
        let usage = registry.memory_usage_up_to(sites.max(NAMED));
        let stats = Stats {
            tool: "cuguard-audit",
            process: std::process::id(),
            command: cuguard_live::command_line(),
            time: Duration::from_nanos(clock::nanoseconds()),
            totals: totals.filter(|(_, totals)| totals.allocated != 0).collect(),
            sites: usage.sites.into_iter().map(|site| site.group).collect(),
            devices: devices(),
            ..Stats::default()
        };
        cached::ask();
        let mut names = cuguard_sync::lock(&self.names);
        stats.to_json(sites, &mut names)
    }

    fn peak(&self) -> Option<u64> {
        let mut watch = cuguard_sync::lock(&self.watch);
        // The next begins before the last ends: nothing is between them.
        let registry = state::registry();
        let next = PeakWatch::new(registry, u64::MAX);
        let since_start = || {
            // Exact where the program allocates one kind.
            let on_device = ResourceKind::ALL.iter().filter(|it| it.is_device_memory());
            on_device
                .map(|kind| registry.totals(*kind).peak_bytes)
                .sum()
        };
        let last = watch.replace(next);
        Some(last.map_or_else(since_start, |last| last.peak()))
    }

    fn write_report(&self) {
        output::write(&report::make_live(self.settings, true, failure()));
    }
}
