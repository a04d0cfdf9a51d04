//! The figures of processes as metrics, in Prometheus' text format (version 0.0.4).
//!
//! They are made from [`Figures`], which `cuguard watch` shows as well: nothing is counted twice. The number of series is
//! bounded. Devices and kinds are few. Of call sites, each process has at most as many at a time as are asked for, and in its
//! life ten times as many: generated code may have names without end. What is not shown is in one series `other` for each kind,
//! so that the call sites of a kind add up to what is alive of it. Labels that a program gives its memory are not in the names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use cuguard_registry::{Amount, ResourceKind};

use crate::figures::{DeviceFigures, Figures, KindFigures, SiteFigures};
use crate::phrase::printable;

/// How many different call sites a process shows in its life, for each that it shows at a time.
const NAMES_FOR_EACH: usize = 10;

/// The longest function in the name of a call site, in characters: instances of generic functions have long names.
const LONGEST: usize = 120;

/// The call site that is the sum of all that have no series of their own.
const OTHER: &str = "other";

/// Writes the figures of processes as metrics, in Prometheus' text format.
///
/// Keep one for all scrapes: it remembers which call sites have been shown, so that their number stays bounded.
///
/// ```
/// use cuguard_registry::{Amount, Totals};
/// use cuguard_report::{Figures, KindFigures, Metrics};
///
/// let device = KindFigures {
///     kind: "device".to_owned(),
///     on_device: true,
///     totals: Totals { count: 2, bytes: 4096, peak_bytes: 8192, allocated: 5 },
/// };
/// let figures = Figures { process: 42, kinds: vec![device], ..Figures::default() };
/// let text = Metrics::new(20).text(&[figures], 0);
/// assert!(text.contains("cuguard_memory_live_bytes{pid=\"42\",kind=\"device\"} 4096\n"));
/// assert!(text.contains("cuguard_frees_total{pid=\"42\",kind=\"device\"} 3\n"));
/// ```
#[derive(Debug)]
pub struct Metrics {
    sites: usize,
    /// The call sites that have had a series, by process.
    shown: BTreeMap<u32, BTreeSet<String>>,
}

/// All figures of one process.
#[derive(Default)]
struct Process<'a> {
    program: &'a str,
    kinds: BTreeMap<Kind<'a>, KindFigures>,
    devices: BTreeMap<Option<u32>, DeviceFigures>,
    /// By kind and name.
    sites: BTreeMap<(Kind<'a>, String), Amount>,
}

/// A kind in the order of reports, and its name. Kinds of later versions come last.
type Kind<'a> = (usize, &'a str);

fn kind(name: &str) -> Kind<'_> {
    let known = ResourceKind::ALL
        .iter()
        .position(|kind| kind.name() == name);
    (known.unwrap_or(usize::MAX), name)
}

/// Whether it is memory: of a kind of a later version, whether it has bytes on a device.
fn is_memory((index, _): Kind<'_>, figures: &KindFigures) -> bool {
    let known = ResourceKind::ALL.get(index);
    known.map_or(figures.on_device, |kind| kind.is_memory())
}

impl<'a> Process<'a> {
    fn add(&mut self, figures: &'a Figures) {
        self.program = program(figures);
        for more in &figures.kinds {
            let sum = self.kinds.entry(kind(&more.kind)).or_default();
            sum.on_device |= more.on_device;
            let (sum, more) = (&mut sum.totals, &more.totals);
            sum.count = sum.count.saturating_add(more.count);
            sum.bytes = sum.bytes.saturating_add(more.bytes);
            sum.peak_bytes = sum.peak_bytes.saturating_add(more.peak_bytes);
            sum.allocated = sum.allocated.saturating_add(more.allocated);
        }
        for more in &figures.devices {
            let sum = self.devices.entry(more.device).or_default();
            sum.live += more.live;
            sum.peak_bytes = sum.peak_bytes.saturating_add(more.peak_bytes);
            sum.refused += more.refused;
            if let Some(more) = more.cached_bytes {
                let cached = sum.cached_bytes.unwrap_or(0).saturating_add(more);
                sum.cached_bytes = Some(cached);
            }
        }
        for site in figures.sites.iter().filter(|site| site.amount.bytes != 0) {
            *self
                .sites
                .entry((kind(&site.kind), name(site)))
                .or_default() += site.amount;
        }
    }

    /// The largest call sites, and what is left of each kind of memory.
    fn largest(
        &self,
        most: usize,
        shown: &mut BTreeSet<String>,
    ) -> BTreeMap<(Kind<'a>, &str), Amount> {
        let memory = self.kinds.iter();
        let memory = memory.filter(|(kind, figures)| is_memory(**kind, figures));
        let mut rows: BTreeMap<_, _> = memory
            .map(|(kind, figures)| ((*kind, OTHER), figures.totals.live()))
            .collect();
        let mut sites: Vec<_> = self.sites.iter().collect();
        // Stable: of the same size, by name.
        sites.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.bytes));
        let mut room = most;
        for ((kind, name), amount) in sites {
            let is_known = shown.contains(name);
            let may_be_shown = is_known || shown.len() < most.saturating_mul(NAMES_FOR_EACH);
            let Some(other) = rows
                .get_mut(&(*kind, OTHER))
                .filter(|_| room != 0 && may_be_shown)
            else {
                continue;
            };
            *other -= *amount;
            room -= 1;
            if !is_known {
                shown.insert(name.clone());
            }
            rows.insert((*kind, name.as_str()), *amount);
        }
        rows
    }
}

/// The name of a call site, which is not [`OTHER`]: it has a space, or a function of that name is in no file.
fn name(site: &SiteFigures) -> String {
    let function = site.function.as_deref().map(|function| {
        let short: String = function.chars().take(LONGEST).collect();
        match short.len() < function.len() {
            true => short + "…",
            false => short,
        }
    });
    let name = SiteFigures {
        function,
        ..site.clone()
    }
    .name();
    match name == OTHER {
        true => format!("{OTHER} ()"),
        false => name,
    }
}

/// One metric: its name, type and description, then its series.
struct Family<'t>(&'t mut String, &'static str);

impl<'t> Family<'t> {
    fn new(text: &'t mut String, name: &'static str, kind: &str, help: &str) -> Self {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Self(text, name)
    }

    fn row(&mut self, labels: &[(&str, &str)], value: u64) {
        let Self(text, name) = self;
        text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let begin = if index == 0 { '{' } else { ',' };
            let _ = write!(text, "{begin}{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// A label's value, without control characters.
fn escaped(value: &str) -> Cow<'_, str> {
    let value = printable(value);
    match value.contains(['\\', '"']) {
        true => value.replace('\\', "\\\\").replace('"', "\\\"").into(),
        false => value,
    }
}

/// The file name of a program. Not its arguments: they may have secrets, which everyone who can scrape would see.
fn program(figures: &Figures) -> &str {
    let path = match figures.program.as_str() {
        "" => figures.command.split(' ').next().unwrap_or_default(),
        path => path,
    };
    path.rsplit('/').next().unwrap_or_default()
}

impl Metrics {
    /// With at most so many call sites of a process at a time.
    #[must_use]
    pub const fn new(sites: usize) -> Self {
        Self {
            sites,
            shown: BTreeMap::new(),
        }
    }

    /// Shows at most so many call sites of a process at a time from now on. Those that have been shown stay known.
    ///
    /// ```
    /// let mut metrics = cuguard_report::Metrics::new(20);
    /// let wanted = metrics.wanted_sites();
    /// metrics.set_sites(0);
    /// assert!(metrics.wanted_sites() < wanted);
    /// ```
    pub const fn set_sites(&mut self, sites: usize) {
        self.sites = sites;
    }

    /// How many call sites [`Stats`](crate::Stats) should have for these metrics: several may have one name.
    ///
    /// ```
    /// assert!(cuguard_report::Metrics::new(20).wanted_sites() > 20);
    /// ```
    #[must_use]
    pub const fn wanted_sites(&self) -> usize {
        self.sites.saturating_mul(2).saturating_add(16)
    }

    /// The metrics of processes. `silent` is how many processes did not reply.
    pub fn text(&mut self, figures: &[Figures], silent: u64) -> String {
        let mut processes: BTreeMap<u32, Process<'_>> = BTreeMap::new();
        for one in figures {
            processes.entry(one.process).or_default().add(one);
        }
        self.shown
            .retain(|process, _| processes.contains_key(process));
        let mut text = String::new();
        let mut all = Family::new(
            &mut text,
            "cuguard_processes",
            "gauge",
            "Processes with figures.",
        );
        all.row(&[], processes.len() as u64);
        let help = "Processes that did not reply in time.";
        Family::new(&mut text, "cuguard_processes_silent", "gauge", help).row(&[], silent);
        let processes: Vec<_> = processes
            .iter()
            .map(|(id, process)| (id.to_string(), *id, process))
            .collect();
        let help = "1 for each process, with the file name of its program.";
        let mut info = Family::new(&mut text, "cuguard_process_info", "gauge", help);
        for (pid, _, process) in &processes {
            info.row(&[("pid", pid), ("command", process.program)], 1);
        }
        for (name, kind, help, value) in DEVICES {
            let mut family = Family::new(&mut text, name, kind, help);
            for (pid, _, process) in &processes {
                for (device, figures) in &process.devices {
                    let device = device.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
                    if let Some(value) = value(figures) {
                        family.row(&[("pid", pid), ("device", &device)], value);
                    }
                }
            }
        }
        for (name, kind, help, only_memory, value) in KINDS {
            let mut family = Family::new(&mut text, name, kind, help);
            for (pid, _, process) in &processes {
                let kinds = process.kinds.iter();
                for (kind, figures) in
                    kinds.filter(|(kind, figures)| !only_memory || is_memory(**kind, figures))
                {
                    family.row(&[("pid", pid), ("kind", kind.1)], value(figures));
                }
            }
        }
        let sites: Vec<_> = processes
            .iter()
            .map(|(pid, id, process)| {
                let shown = self.shown.entry(*id).or_default();
                (pid, process.largest(self.sites, shown))
            })
            .collect();
        for (name, help, value) in SITES {
            let mut family = Family::new(&mut text, name, "gauge", help);
            for (pid, rows) in &sites {
                for ((kind, site), amount) in rows {
                    family.row(
                        &[("pid", pid), ("kind", kind.1), ("site", site)],
                        value(amount),
                    );
                }
            }
        }
        text
    }
}

/// A metric of devices: name, type, description, value.
type OfDevice = (
    &'static str,
    &'static str,
    &'static str,
    fn(&DeviceFigures) -> Option<u64>,
);

const DEVICES: [OfDevice; 6] = [
    (
        "cuguard_device_memory_live_bytes",
        "gauge",
        "Device memory that is allocated and not freed.",
        |it| Some(it.live.bytes),
    ),
    (
        "cuguard_device_memory_live_allocations",
        "gauge",
        "Allocations of device memory that are not freed.",
        |it| Some(it.live.count),
    ),
    (
        "cuguard_device_memory_peak_bytes",
        "gauge",
        "The most device memory that was allocated at one time since the process started. Of the crate an upper bound: the peaks of kinds and contexts are added.",
        |it| Some(it.peak_bytes),
    ),
    (
        "cuguard_device_memory_cached_bytes",
        "gauge",
        "Device memory that memory pools hold and no allocation uses. Under cuguard run of pools of the driver; of the crate of its own pools, and absent without one.",
        |it| it.cached_bytes,
    ),
    (
        "cuguard_refused_allocations_total",
        "counter",
        "Allocations that failed for lack of memory; of host memory, and of a device that is not known, with the device \"unknown\".",
        |it| Some(it.refused.count),
    ),
    (
        "cuguard_refused_bytes_total",
        "counter",
        "The bytes that these allocations asked for.",
        |it| Some(it.refused.bytes),
    ),
];

/// A metric of kinds: name, type, description, whether it is of memory alone, value.
type OfKind = (
    &'static str,
    &'static str,
    &'static str,
    bool,
    fn(&KindFigures) -> u64,
);

const KINDS: [OfKind; 5] = [
    (
        "cuguard_memory_live_bytes",
        "gauge",
        "Memory that is allocated and not freed, by kind; with pinned host memory.",
        true,
        |it| it.totals.bytes,
    ),
    (
        "cuguard_memory_peak_bytes",
        "gauge",
        "The most memory of a kind that was allocated at one time since the process started. Of the crate an upper bound: the peaks of contexts are added.",
        true,
        |it| it.totals.peak_bytes,
    ),
    (
        "cuguard_live_resources",
        "gauge",
        "Allocations, streams, events, modules and other resources that are alive.",
        false,
        |it| it.totals.count,
    ),
    (
        "cuguard_allocations_total",
        "counter",
        "Resources that were allocated or created.",
        false,
        |it| it.totals.allocated,
    ),
    (
        "cuguard_frees_total",
        "counter",
        "Resources that were freed or destroyed.",
        false,
        |it| it.totals.allocated.saturating_sub(it.totals.count),
    ),
];

/// A metric of call sites: name, description, value.
type OfSite = (&'static str, &'static str, fn(&Amount) -> u64);

const SITES: [OfSite; 2] = [
    (
        "cuguard_call_site_live_bytes",
        "Memory that is allocated and not freed, by the call sites that hold most; the site \"other\" is the rest.",
        |it| it.bytes,
    ),
    (
        "cuguard_call_site_live_allocations",
        "The allocations of these call sites that are not freed.",
        |it| it.count,
    ),
];

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
