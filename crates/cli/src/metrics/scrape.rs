//! Which processes are asked, and their replies as metrics.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use cuguard::snapshot::{Amount, Totals};
use cuguard_live::{AskError, Request, ask_within};
use cuguard_report::{DeviceFigures, Figures, KindFigures, Metrics, SiteFigures};
use serde::Deserialize;

use crate::live_process::{descendants, is_running};

/// The time limit of a scrape, for all processes together: Prometheus waits for 10 s by default. A process that has not named its
/// call sites before may take longer, and has the names at the next one.
const OF_SCRAPE: Duration = Duration::from_secs(5);
/// The same where the metrics are printed once.
const ONCE: Duration = Duration::from_secs(60);
/// How many processes are asked at once: those that are stopped keep none of the others from being asked.
const AT_ONCE: usize = 512;

/// Which processes are asked.
#[derive(Debug)]
pub(crate) enum Which {
    /// All of this user.
    OfUser,
    /// These, and those that they started.
    Trees(Vec<u32>),
    /// Those that have the library of a run loaded, by the folder of the run.
    OfRun(PathBuf),
}

/// Asks processes for their figures.
#[derive(Debug)]
pub(super) struct Scrape {
    which: Which,
    metrics: Metrics,
}

impl Scrape {
    pub(super) fn new(which: Which, top: u16) -> Self {
        Self {
            which,
            metrics: Metrics::new(top.into()),
        }
    }

    /// The metrics of this moment; or why no process has any.
    pub(super) fn once(&mut self) -> Result<String, String> {
        let (text, problem) = self.text(Instant::now() + ONCE);
        match problem {
            None => Ok(text),
            Some(problem) => Err(problem),
        }
    }

    /// The metrics of this moment, as far as processes reply in time; and where no process has any, why.
    fn text(&mut self, until: Instant) -> (String, Option<String>) {
        let sites = self.metrics.wanted_sites();
        let (mut figures, mut silent, mut problem) = (Vec::new(), 0, None);
        for (process, result) in ask_all(self.which.processes(), Request::Stats { sites }, until) {
            match result {
                Ok(texts) => figures.extend(texts.iter().filter_map(|text| read(process, text))),
                Err(error) => {
                    let is_missing = is_missing(&error);
                    silent += u64::from(!is_missing);
                    // Who names a process wants to know why there are no figures of it. Of others, sockets may be left.
                    if !(is_missing && matches!(self.which, Which::OfUser)) {
                        problem.get_or_insert_with(|| error.to_string());
                    }
                }
            }
        }
        let problem = figures.is_empty().then(|| {
            problem.unwrap_or_else(|| {
                "no running process of this user has metrics: start one under `cuguard run`, or one that uses the cuguard crate with \
                 LEAK_REPORT=1"
                    .to_owned()
            })
        });
        (self.metrics.text(&figures, silent), problem)
    }
}

/// A scrape for several clients.
#[derive(Debug)]
pub(super) struct Shared {
    scrape: Mutex<Scrape>,
    latest: Latest,
}

/// The text of the last scrape that was begun; empty as long as it runs.
#[derive(Debug, Default)]
struct Latest(Mutex<Arc<OnceLock<String>>>);

impl Latest {
    /// The result of the scrape that runs, or else of this one.
    fn or_begin(&self, scrape: impl FnOnce() -> String) -> String {
        let result = {
            let mut latest = cuguard_sync::lock(&self.0);
            if latest.get().is_some() {
                *latest = Arc::default();
            }
            Arc::clone(&latest)
        };
        result.get_or_init(scrape).clone()
    }
}

impl Shared {
    pub(super) fn new(scrape: Scrape) -> Self {
        Self {
            scrape: Mutex::new(scrape),
            latest: Latest::default(),
        }
    }

    /// The metrics of this moment. While a scrape runs, its result is waited for in place of beginning another: clients would
    /// otherwise wait for each other, and with a process that is stopped for longer than Prometheus does.
    pub(super) fn text(&self) -> String {
        self.latest.or_begin(|| {
            let mut scrape = cuguard_sync::lock(&self.scrape);
            scrape.text(Instant::now() + OF_SCRAPE).0
        })
    }
}

/// Whether a process has no metrics, in contrast to one that does not reply.
const fn is_missing(error: &AskError) -> bool {
    matches!(
        error,
        AskError::NoServer { .. } | AskError::NoProcess { .. } | AskError::OtherUser { .. }
    )
}

/// Asks processes at the same time.
fn ask_all(
    processes: Vec<u32>,
    request: Request,
    until: Instant,
) -> impl Iterator<Item = (u32, Result<Vec<String>, AskError>)> {
    let replies: Vec<_> = processes.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(process) = processes.get(index)
        {
            let _ = replies[index].set(ask_until(*process, request, until));
        }
    };
    thread::scope(|scope| {
        for _ in 1..processes.len().min(AT_ONCE) {
            // With fewer threads, fewer processes are asked at once.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let replies = replies.into_iter().filter_map(OnceLock::into_inner);
    processes.into_iter().zip(replies)
}

/// Asks a process. One that ends meanwhile does not exist: it is not one that does not reply.
fn ask_until(process: u32, request: Request, until: Instant) -> Result<Vec<String>, AskError> {
    let left = || until.saturating_duration_since(Instant::now());
    let mut reply = ask_within(process, request, left());
    // A process that ends closes its connections first, and is no longer listening when it is asked again.
    if matches!(reply, Err(AskError::Connection { .. })) && !left().is_zero() {
        reply = ask_within(process, request, left());
    }
    match reply {
        Err(AskError::Connection { .. }) if !is_running(process) => {
            Err(AskError::NoProcess { process })
        }
        reply => reply,
    }
}

impl Which {
    fn processes(&self) -> Vec<u32> {
        let mut processes = match self {
            Self::OfUser => cuguard_live::processes(),
            Self::Trees(roots) => {
                let trees = roots
                    .iter()
                    .flat_map(|root| [vec![*root], descendants(*root)].concat());
                trees.collect()
            }
            Self::OfRun(folder) => of_run(folder),
        };
        // In the order of the arguments; a tree may be in another.
        let mut seen = std::collections::HashSet::new();
        processes.retain(|process| seen.insert(*process));
        processes
    }
}

/// The processes that have left a record in the folder of a run. Each record is a line of fields: what it is, the process, …
fn of_run(folder: &Path) -> Vec<u32> {
    let records = fs::read(folder.join("records")).unwrap_or_default();
    let records = String::from_utf8_lossy(&records);
    let processes = records
        .lines()
        .filter_map(|record| record.split('\t').nth(1));
    processes
        .filter_map(|process| process.parse().ok())
        .collect()
}

/// The path of the program of a process, which may have been removed. Empty where it cannot be read.
fn program_of(process: u32) -> String {
    let path = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    let path = path.to_string_lossy();
    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
}

/// A reply, as far as it matters here (docs/live-schema.md).
#[derive(Debug, Deserialize)]
struct Reply {
    command: String,
    seconds: f64,
    kinds: Vec<Kind>,
    // A program may contain an older version of the crate.
    #[serde(default)]
    devices: Vec<Device>,
    sites: Vec<Site>,
    sites_not_shown: u64,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: String,
    on_device: bool,
    live_count: u64,
    live_bytes: u64,
    peak_bytes: u64,
    allocated_count: u64,
}

#[derive(Debug, Deserialize)]
struct Device {
    device: Option<u32>,
    live_count: u64,
    live_bytes: u64,
    peak_bytes: u64,
    cached_bytes: Option<u64>,
    refused_count: u64,
    refused_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Site {
    kind: String,
    count: u64,
    bytes: u64,
    label: Option<String>,
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

/// The figures in a reply; `None` of one that cannot be read.
fn read(process: u32, text: &str) -> Option<Figures> {
    let reply: Reply = serde_json::from_str(text).ok()?;
    let kinds = reply.kinds.into_iter().map(|it| KindFigures {
        kind: it.kind,
        on_device: it.on_device,
        totals: Totals {
            count: it.live_count,
            bytes: it.live_bytes,
            peak_bytes: it.peak_bytes,
            allocated: it.allocated_count,
        },
    });
    let devices = reply.devices.into_iter().map(|it| DeviceFigures {
        device: it.device,
        live: Amount::new(it.live_count, it.live_bytes),
        peak_bytes: it.peak_bytes,
        cached_bytes: it.cached_bytes,
        refused: Amount::new(it.refused_count, it.refused_bytes),
    });
    let sites = reply.sites.into_iter().map(|it| SiteFigures {
        kind: it.kind,
        amount: Amount::new(it.count, it.bytes),
        label: it.label,
        function: it.function,
        file: it.file,
        line: it.line,
    });
    Some(Figures {
        process,
        command: reply.command,
        program: program_of(process),
        time: Duration::try_from_secs_f64(reply.seconds).unwrap_or_default(),
        kinds: kinds.collect(),
        devices: devices.collect(),
        sites: sites.collect(),
        sites_not_shown: reply.sites_not_shown,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use cuguard::ResourceKind;
    use cuguard::snapshot::{Amount, Group, Totals};
    use cuguard_report::{DeviceFigures, SiteNames, Stats};

    use super::{Latest, read};

    #[test]
    fn clients_share_the_scrape_that_runs() {
        let (latest, begun) = (Latest::default(), AtomicU32::new(0));
        let (end, ended) = mpsc::channel();
        let scrape = |ended: Option<mpsc::Receiver<()>>| {
            latest.or_begin(|| {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                // Until its sender is dropped.
                let _ = ended.map(|ended| ended.recv());
                number.to_string()
            })
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| scrape(Some(ended)));
            while begun.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let others = [(); 3].map(|()| scope.spawn(|| scrape(None)));
            // The first and the others have it, and `latest` itself.
            while Arc::strong_count(&cuguard_sync::lock(&latest.0)) < 5 {
                thread::yield_now();
            }
            drop(end);
            assert_eq!(first.join().expect("no panic"), "0");
            for other in others {
                assert_eq!(other.join().expect("no panic"), "0");
            }
        });
        assert_eq!(scrape(None), "1");
    }

    #[test]
    fn figures_survive_their_json() {
        let totals = Totals {
            count: 2,
            bytes: 3000,
            peak_bytes: 4000,
            allocated: 9,
        };
        let known = DeviceFigures {
            device: Some(1),
            live: Amount::new(2, 3000),
            peak_bytes: 4000,
            cached_bytes: Some(96),
            refused: Amount::new(1, 1 << 40),
        };
        let unknown = DeviceFigures {
            refused: Amount::new(1, 0),
            ..DeviceFigures::default()
        };
        let stats = Stats {
            tool: "cuguard",
            process: std::process::id(),
            command: "./train".to_owned(),
            time: std::time::Duration::from_millis(2500),
            totals: vec![(ResourceKind::Device, totals)],
            devices: vec![unknown, known],
            sites: vec![Group::new(ResourceKind::Device, "f32", 2, 3000); 3],
            ..Stats::default()
        };
        let mut names = SiteNames::default();
        let text = stats.to_json(2, &mut names);
        let figures = stats.figures(2, &mut names);
        assert!(figures.program.starts_with('/'), "{}", figures.program);
        assert_eq!(read(stats.process, &text), Some(figures));
        assert!(text.contains("\"refused_count\":2,"), "{text}");
    }

    #[test]
    fn other_replies_are_left_out() {
        assert!(read(7, "{}").is_none() && read(7, "").is_none());
        let old = r#"{"command":"a","seconds":1e300,"kinds":[],"sites":[],"sites_not_shown":0}"#;
        assert!(read(7, old).is_some_and(|figures| figures.devices.is_empty()));
    }
}
