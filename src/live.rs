//! Reports of this process while it runs, for `cuguard dump`, `cuguard watch` and the signal of `dump-signal=`.
//!
//! The server's thread reads registries and never calls the driver. It starts with the first context, if `LEAK_REPORT`
//! turns reports on. When another process of the user runs short of memory, that process asks this one to release the
//! idle memory of its pools, and a thread other than the server's releases it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuguard_live::{Format, Options, Source};
use cuguard_registry::{ResourceKind, Snapshot, SnapshotReason, Totals};
use cuguard_report::{self as report, ContextPool, Report, ReportSettings, SiteNames, Stats};
use cuguard_sync::{clock, process};

use crate::core::lock::lock;
use crate::core::{ContextState, idle, open_contexts};

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
        let mut stats = Stats {
            tool: "cuguard",
            process: std::process::id(),
            command: cuguard_live::command_line(),
            time: Duration::from_nanos(clock::nanoseconds()),
            ..Stats::default()
        };
        let contexts = open_contexts::all();
        for kind in ResourceKind::ALL.iter().copied() {
            let mut sum = Totals::default();
            for totals in contexts.iter().map(|state| state.registry.totals(kind)) {
                sum.count += totals.count;
                sum.bytes += totals.bytes;
                sum.peak_bytes += totals.peak_bytes;
                sum.allocated += totals.allocated;
            }
            if sum.allocated != 0 {
                stats.totals.push((kind, sum));
            }
        }
        for state in &contexts {
            let pools = state.pools_of_cuguard().usage().into_iter();
            stats.pools.extend(pools.map(|usage| ContextPool {
                context: state.number,
                device: state.device,
                usage,
            }));
            let usage = state.registry.memory_usage();
            stats
                .sites
                .extend(usage.sites.into_iter().map(|site| site.group));
        }
        let mut names = lock(&self.names);
        stats.to_json(sites, names.get_or_insert_default())
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
