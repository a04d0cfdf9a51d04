//! Which processes are asked, and their replies as metrics.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use cuguard::snapshot::{Amount, Totals};
use cuguard_live::{AskError, Request, ask_within};
use cuguard_report::{DeviceFigures, Figures, KindFigures, Metrics, SiteFigures};
use serde::Deserialize;

use crate::live_process::descendants;

/// How long a process is waited for: for a scrape, as Prometheus waits for 10 s by default. A process that has not named its call
/// sites before may take longer, and has the names at the next one.
pub(super) const OF_SCRAPE: Duration = Duration::from_secs(5);
/// The same where the metrics are printed once.
pub(super) const ONCE: Duration = Duration::from_secs(60);
/// How many processes are asked at once: one that is stopped keeps none of the others from being asked.
const AT_ONCE: usize = 64;

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

    /// The metrics of this moment; and where no process has any, why the first one has none.
    pub(super) fn text(&mut self, patience: Duration) -> (String, Option<AskError>) {
        let sites = self.metrics.wanted_sites();
        let (mut figures, mut silent, mut problem) = (Vec::new(), 0, None);
        for processes in self.which.processes().chunks(AT_ONCE) {
            for (process, result) in ask_all(processes, Request::Stats { sites }, patience) {
                match result {
                    Ok(texts) => {
                        figures.extend(texts.iter().filter_map(|text| read(process, text)))
                    }
                    Err(error) => {
                        let is_missing = matches!(
                            error,
                            AskError::NoServer { .. }
                                | AskError::NoProcess { .. }
                                | AskError::OtherUser { .. }
                        );
                        silent += u64::from(!is_missing);
                        problem.get_or_insert(error);
                    }
                }
            }
        }
        let problem = problem.filter(|_| figures.is_empty());
        (self.metrics.text(&figures, silent), problem)
    }
}

/// Asks processes at the same time.
fn ask_all(
    processes: &[u32],
    request: Request,
    patience: Duration,
) -> Vec<(u32, Result<Vec<String>, AskError>)> {
    thread::scope(|scope| {
        let asked = processes.iter().map(|process| {
            let ask = move || ask_within(*process, request, patience);
            let asking = thread::Builder::new().spawn_scoped(scope, ask);
            (*process, asking)
        });
        let asked: Vec<_> = asked.collect();
        let replies = asked.into_iter().map(|(process, asking)| {
            let failed = |error| Err(AskError::Connection { process, error });
            let reply = match asking {
                Ok(asking) => asking
                    .join()
                    .unwrap_or_else(|_| failed(io::ErrorKind::Other.into())),
                Err(error) => failed(error),
            };
            (process, reply)
        });
        replies.collect()
    })
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
        time: Duration::try_from_secs_f64(reply.seconds).unwrap_or_default(),
        kinds: kinds.collect(),
        devices: devices.collect(),
        sites: sites.collect(),
        sites_not_shown: reply.sites_not_shown,
    })
}

#[cfg(test)]
mod tests {
    use cuguard::ResourceKind;
    use cuguard::snapshot::{Amount, Group, Totals};
    use cuguard_report::{DeviceFigures, SiteNames, Stats};

    use super::read;

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
            process: 7,
            command: "./train".to_owned(),
            time: std::time::Duration::from_millis(2500),
            totals: vec![(ResourceKind::Device, totals)],
            devices: vec![unknown, known],
            sites: vec![Group::new(ResourceKind::Device, "f32", 2, 3000); 3],
            ..Stats::default()
        };
        let mut names = SiteNames::default();
        let text = stats.to_json(2, &mut names);
        assert_eq!(read(7, &text), Some(stats.figures(2, &mut names)));
        assert!(text.contains("\"refused_count\":2,"), "{text}");
    }

    #[test]
    fn other_replies_are_left_out() {
        assert!(read(7, "{}").is_none() && read(7, "").is_none());
        let old = r#"{"command":"a","seconds":1e300,"kinds":[],"sites":[],"sites_not_shown":0}"#;
        assert!(read(7, old).is_some_and(|figures| figures.devices.is_empty()));
    }
}
