//! Reports of this process while it runs, for `cuguard dump`, `cuguard watch` and the signal of `dump-signal=`.
//!
//! The server's thread reads registries and never calls the driver. It starts with the first context, if `LEAK_REPORT`
//! turns reports on. When another process of the user runs short of memory, that process asks this one to release the
//! idle memory of its pools, and a thread other than the server's releases it.
//!
//! [`metrics`] has the same figures for a program that serves them itself. There is no HTTP server here: a program that is
//! scraped mostly has one, a library should not listen at a port because of a variable in the environment, and
//! `cuguard metrics` serves those that have none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuguard_live::{Format, Options, Source};
use cuguard_registry::{ResourceKind, Snapshot, SnapshotReason, Totals};
use cuguard_report::{
    self as report, ContextPool, DeviceFigures, Metrics, Report, ReportSettings, SiteNames, Stats,
};
use cuguard_sync::{clock, process};

use crate::core::lock::lock;
use crate::core::{ContextState, ended, idle, open_contexts};
use crate::exit;

/// The open contexts of this process.
struct Contexts {
    names: Mutex<Option<SiteNames>>,
}

static CONTEXTS: Contexts = Contexts {
    names: Mutex::new(None),
};

/// Starts the server, once, if `LEAK_REPORT` turns reports on.
pub(crate) fn start() {
    let settings = ReportSettings::from_env();
    if !settings.is_on() || process::is_exiting() {
        return;
    }
    let started = cuguard_live::start(Options {
        source: &CONTEXTS,
        signal: cuguard_live::number(settings.wanted_dump_signal()),
        ends_process: true,
    });
    if let Err(error) = started {
        log::warn!(
            "cuguard: `cuguard dump` and `cuguard watch` cannot reach this process: {error}"
        );
    }
}

/// Snapshots of the open contexts, by their numbers, with the settings of each.
fn snapshots() -> Vec<(Snapshot, ReportSettings)> {
    let mut contexts = open_contexts::all();
    contexts.sort_by_key(|state| state.number);
    let one = |state: &Arc<ContextState>| {
        (
            state.snapshot(SnapshotReason::Requested),
            state.report.clone(),
        )
    };
    contexts.iter().map(one).collect()
}

impl Source for Contexts {
    /// A report for each open context. There is no search: guards free what they own.
    fn dump(&self, format: Format, _search: bool) -> String {
        let snapshots = snapshots();
        let reports = snapshots.iter().map(|(snapshot, settings)| match format {
            Format::Json => snapshot.to_json() + "\n",
            Format::Text => snapshot.to_text(settings),
        });
        let text: String = reports.collect();
        match (format, text.is_empty()) {
            (Format::Text, true) => {
                let process = std::process::id();
                format!("cuguard: process {process} has no open context\n")
            }
            _ => text,
        }
    }

    fn stats(&self, sites: usize) -> String {
        let mut names = lock(&self.names);
        stats().to_json(sites, names.get_or_insert_default())
    }

    fn trim(&self, device: [u8; 16]) -> u64 {
        idle::release_on_thread(device)
    }

    fn write_report(&self) {
        for (snapshot, settings) in snapshots() {
            report::write_requested(&snapshot, &settings);
        }
    }
}

/// The figures of a process that has not opened a context.
fn no_stats() -> Stats {
    Stats {
        tool: "cuguard",
        process: std::process::id(),
        command: cuguard_live::command_line(),
        time: Duration::from_nanos(clock::nanoseconds()),
        ..Stats::default()
    }
}

/// The figures of this process.
fn stats() -> Stats {
    let mut stats = no_stats();
    let (contexts, ended) = open_contexts::all_and_ended();
    // By device and kind.
    let mut sums: BTreeMap<u32, [Totals; ResourceKind::COUNT]> = BTreeMap::new();
    for state in &contexts {
        let sums = sums.entry(state.device).or_default();
        for kind in ResourceKind::ALL {
            let (sum, totals) = (&mut sums[kind.index()], state.registry.totals(*kind));
            sum.count += totals.count;
            sum.bytes += totals.bytes;
            sum.peak_bytes += totals.peak_bytes;
            sum.allocated += totals.allocated;
        }
    }
    for (device, allocated) in ended {
        let sums = sums.entry(device).or_default();
        for (sum, allocated) in sums.iter_mut().zip(allocated) {
            sum.allocated += allocated;
        }
    }
    for (device, sums) in &mut sums {
        let mut peaks = sums.map(|sum| sum.peak_bytes);
        ended::raise_peaks(*device, &mut peaks);
        for (sum, peak) in sums.iter_mut().zip(peaks) {
            sum.peak_bytes = peak;
        }
    }
    for kind in ResourceKind::ALL {
        let mut all = Totals::default();
        for sums in sums.values() {
            let totals = sums[kind.index()];
            all.count += totals.count;
            all.bytes += totals.bytes;
            all.peak_bytes += totals.peak_bytes;
            all.allocated += totals.allocated;
        }
        if all.allocated != 0 {
            stats.totals.push((*kind, all));
        }
    }
    let mut devices: BTreeMap<Option<u32>, DeviceFigures> = BTreeMap::new();
    for (device, sums) in sums {
        let figures = devices.entry(Some(device)).or_default();
        let kinds = ResourceKind::ALL.iter();
        for kind in kinds.filter(|kind| kind.is_device_memory()) {
            let totals = sums[kind.index()];
            figures.live += totals.live();
            figures.peak_bytes += totals.peak_bytes;
        }
    }
    for (device, amount) in ended::REFUSALS.all() {
        devices.entry(device).or_default().refused = amount;
    }
    for state in &contexts {
        let pools = state.pools_of_cuguard();
        // What other pools keep is not known without a call of the driver.
        if pools.any() {
            let figures = devices.entry(Some(state.device)).or_default();
            figures.cached_bytes.get_or_insert(0);
        }
        for usage in pools.usage() {
            let figures = devices.entry(Some(state.device)).or_default();
            *figures.cached_bytes.get_or_insert(0) += usage.idle();
            stats.pools.push(ContextPool {
                context: state.number,
                device: state.device,
                usage,
            });
        }
        let usage = state.registry.memory_usage();
        let sites = usage.sites.into_iter().map(|site| site.group);
        stats.sites.extend(sites);
    }
    let devices = devices.into_iter();
    let devices = devices.map(|(device, figures)| DeviceFigures { device, ..figures });
    stats.devices = devices.collect();
    stats
}

/// The figures of this process as metrics, in Prometheus' text format: live, peak and cached bytes of each device, allocations
/// that failed for lack of memory, live bytes and counts of each kind, and live bytes of the `call_sites` call sites that hold
/// most; the rest of each kind is the call site `other`. For the HTTP server of the program, as
/// `text/plain; version=0.0.4`; `cuguard metrics` serves a program that has none.
///
/// `LEAK_REPORT` need not be set. The driver is not called. Takes time for each live record, so once in some seconds is often
/// enough. [The guide](crate::guide::recordings#metrics) lists the metrics. In a forked child of a process that has used CUDA
/// there are no figures of memory: the child can use none, and that of its parent is in the parent's metrics.
///
/// ```
/// use cuguard::prelude::*;
///
/// # fn main() -> cuguard::Result<()> {
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// let context = Context::new(0)?;
/// let weights = DeviceBuffer::from_slice(&context, &[0_u8; 512])?;
/// let text = cuguard::report::metrics(20);
/// assert!(text.contains("cuguard_device_memory_live_bytes{"));
/// # drop(weights);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn metrics(call_sites: usize) -> String {
    /// The names of call sites, and the metrics with which they were shown.
    static SHOWN: Mutex<Option<(SiteNames, Metrics)>> = Mutex::new(None);

    // Before any lock: in a forked child a thread that does not exist may hold it.
    if !exit::owns_contexts() {
        let figures = no_stats().figures(0, &mut SiteNames::default());
        return Metrics::new(0).text(&[figures], 0);
    }
    let stats = stats();
    let mut shown = lock(&SHOWN);
    let new = || (SiteNames::default(), Metrics::new(call_sites));
    let (names, metrics) = shown.get_or_insert_with(new);
    metrics.set_sites(call_sites);
    let figures = stats.figures(metrics.wanted_sites(), names);
    metrics.text(&[figures], 0)
}
