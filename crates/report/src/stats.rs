//! The figures of a running process, for `cuguard watch` and for [metrics](crate::Metrics): live bytes by kind and by device, and the
//! largest call sites. One line of JSON. `docs/live-schema.md` is its schema.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use cuguard_registry::{Group, Origin, PoolUsage, ResourceKind, Totals, naming_frames};

use crate::audit::user_frames;
use crate::figures::{DeviceFigures, Figures, KindFigures, SiteFigures};
use crate::frames::mark;
use crate::json::{list, pool, seconds};
use crate::json_value::{Value, object};
use crate::paths::Paths;
use crate::symbols::Symbols;

/// The version of the schema. It changes when a member is removed or changes its meaning.
const VERSION: u64 = 1;

/// The figures of a process at one moment.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::snapshot::Group;
/// use cuguard_report::{SiteNames, Stats};
///
/// let stats = Stats {
///     tool: "cuguard",
///     process: 42,
///     sites: vec![Group::new(ResourceKind::Device, "f32", 2, 4096)],
///     ..Stats::default()
/// };
/// let json = stats.to_json(10, &mut SiteNames::default());
/// assert!(json.starts_with(r#"{"version":1,"tool":"cuguard","process":42,"#));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Which library recorded: `cuguard` or `cuguard-audit`.
    pub tool: &'static str,
    /// The process.
    pub process: u32,
    /// Its command line.
    pub command: String,
    /// The time of these figures, from any fixed moment of the process.
    pub time: Duration,
    /// Figures by kind, for kinds that were ever allocated.
    pub totals: Vec<(ResourceKind, Totals)>,
    /// Figures by device.
    pub devices: Vec<DeviceFigures>,
    /// What the pools of the crate hold.
    pub pools: Vec<ContextPool>,
    /// What is alive by call site.
    pub sites: Vec<Group>,
}

/// A pool of a context.
#[derive(Clone, Debug, Default)]
pub struct ContextPool {
    /// The number of the context in the process.
    pub context: u64,
    /// The ordinal of its device, as the process sees it.
    pub device: u32,
    /// What it holds.
    pub usage: PoolUsage,
}

/// The names of call sites that were resolved before.
#[derive(Debug, Default)]
pub struct SiteNames {
    known: HashMap<Origin, Vec<Name>>,
}

/// What a frame of the program is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

/// More call sites than a person looks at. The table is emptied then.
const MOST: usize = 10_000;

impl SiteNames {
    /// The names of these call sites: the innermost function of the program that is not an allocation helper.
    fn of(&mut self, origins: &[Origin], is_audit: bool) -> Vec<Name> {
        let (mut symbols, paths) = (Symbols::default(), Paths::new());
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let stacks = origins.iter().map(|origin| {
            let known = self.known.entry(*origin);
            known
                .or_insert_with(|| frames(*origin, is_audit, &mut symbols, &paths))
                .clone()
        });
        let stacks: Vec<Vec<Name>> = stacks.collect();
        let keys = stacks.iter().map(|frames| {
            let keys = frames
                .iter()
                .map(|name| ((&name.function, &name.file), name.line));
            keys.collect::<Vec<_>>()
        });
        let named = naming_frames(&keys.collect::<Vec<_>>()).into_iter();
        let names = named.zip(stacks);
        names
            .map(|(at, mut frames)| {
                if at < frames.len() {
                    frames.swap_remove(at)
                } else {
                    Name::default()
                }
            })
            .collect()
    }
}

/// The same for the same stack trace, as long as the process runs. The name of a call site does not tell: it depends on the
/// others which of its frames is an allocation helper.
fn hash(origin: &Origin) -> u64 {
    let mut hasher = DefaultHasher::new();
    origin.hash(&mut hasher);
    hasher.finish()
}

/// The frames of the program at a call site, innermost first.
fn frames(origin: Origin, is_audit: bool, symbols: &mut Symbols, paths: &Paths) -> Vec<Name> {
    let mut frames = symbols.frames(origin.stack, false);
    mark(&mut frames);
    match is_audit {
        true => user_frames(&mut frames),
        false => frames.retain(|frame| frame.in_app),
    }
    let shorten = |file: &str| paths.shorten(file).into_owned();
    let names = frames.iter().map(|frame| Name {
        function: Some(frame.name().into_owned()),
        file: frame.symbol.file.as_deref().map(shorten),
        line: frame.symbol.line,
    });
    let mut names: Vec<_> = names.collect();
    // Exact, where the compiler recorded it.
    if let Some(site) = origin.site {
        if names.is_empty() {
            names.push(Name::default());
        }
        names[0].file = Some(shorten(site.file));
        names[0].line = Some(site.line);
    }
    names
}

impl Stats {
    /// Plain figures with at most `sites` call sites, the largest first.
    ///
    /// ```
    /// use cuguard_report::{SiteNames, Stats};
    ///
    /// let figures = Stats { process: 42, ..Stats::default() }.figures(10, &mut SiteNames::default());
    /// assert_eq!((figures.process, figures.sites_not_shown), (42, 0));
    /// ```
    #[must_use]
    pub fn figures(&self, sites: usize, names: &mut SiteNames) -> Figures {
        let (shown, sites_not_shown) = self.largest(sites);
        let names = self.names(&shown, names);
        let kinds = self.totals.iter().map(|(kind, totals)| KindFigures {
            kind: kind.name().to_owned(),
            on_device: kind.is_device_memory(),
            totals: *totals,
        });
        let sites = shown.iter().zip(names).map(|(group, name)| SiteFigures {
            kind: group.kind.name().to_owned(),
            amount: group.amount,
            label: group.label.clone(),
            function: name.function,
            file: name.file,
            line: name.line,
        });
        // In the command line, spaces separate words and are part of them.
        let is_own = self.process == std::process::id();
        let program = is_own.then(|| std::env::current_exe().ok()).flatten();
        Figures {
            process: self.process,
            command: self.command.clone(),
            program: program.map_or_else(String::new, |path| path.to_string_lossy().into_owned()),
            time: self.time,
            kinds: kinds.collect(),
            devices: self.devices.clone(),
            sites: sites.collect(),
            sites_not_shown,
        }
    }

    /// The largest call sites, and how many others there are.
    fn largest(&self, sites: usize) -> (Vec<&Group>, u64) {
        let mut largest: Vec<&Group> = self.sites.iter().collect();
        largest.sort_by_key(|group| group.size_order());
        let others = largest.len().saturating_sub(sites) as u64;
        largest.truncate(sites);
        (largest, others)
    }

    fn names(&self, shown: &[&Group], names: &mut SiteNames) -> Vec<Name> {
        let origins: Vec<Origin> = shown.iter().map(|group| group.origin).collect();
        names.of(&origins, self.tool == "cuguard-audit")
    }

    /// One line of JSON with at most `sites` call sites, the largest first, and a line break.
    #[must_use]
    pub fn to_json(&self, sites: usize, names: &mut SiteNames) -> String {
        let (shown, sites_not_shown) = self.largest(sites);
        let mut device = Totals::default();
        for (_, totals) in self
            .totals
            .iter()
            .filter(|(kind, _)| kind.is_device_memory())
        {
            device.bytes += totals.bytes;
            device.count += totals.count;
            device.allocated += totals.allocated;
        }
        let kinds = list(&self.totals, |(kind, totals)| {
            object! {
                "kind": kind.name(),
                "on_device": kind.is_device_memory(),
                "live_count": totals.count,
                "live_bytes": totals.bytes,
                "peak_bytes": totals.peak_bytes,
                "allocated_count": totals.allocated,
            }
        });
        let devices = list(&self.devices, |one| {
            object! {
                "device": one.device,
                "live_count": one.live.count,
                "live_bytes": one.live.bytes,
                "peak_bytes": one.peak_bytes,
                "cached_bytes": one.cached_bytes,
                "refused_count": one.refused.count,
                "refused_bytes": one.refused.bytes,
            }
        });
        let refused: u64 = self.devices.iter().map(|one| one.refused.count).sum();
        let names = self.names(&shown, names);
        let sites = shown.iter().zip(names).map(|(group, name)| {
            object! {
                "kind": group.kind.name(),
                "on_device": group.kind.is_device_memory(),
                "stack": format!("{:016x}", hash(&group.origin)).as_str(),
                "count": group.amount.count,
                "bytes": group.amount.bytes,
                "label": group.label.as_deref(),
                "function": name.function.as_deref(),
                "file": name.file.as_deref(),
                "line": name.line,
            }
        });
        let sites = Value::Array(sites.collect());
        object! {
            "version": VERSION,
            "tool": self.tool,
            "process": self.process,
            "command": self.command.as_str(),
            "seconds": seconds(self.time),
            "device_live_bytes": device.bytes,
            "device_live_count": device.count,
            "device_allocated_count": device.allocated,
            "refused_count": refused,
            "kinds": kinds,
            "devices": devices,
            "pools": list(&self.pools, |one| {
                let mut value = pool(&one.usage);
                value.push("context", one.context);
                value.push("device", one.device);
                value
            }),
            "sites": sites,
            "sites_not_shown": sites_not_shown,
        }
        .to_string()
            + "\n"
    }
}

#[cfg(test)]
mod tests {
    use cuguard_registry::{Group, ResourceKind, Totals};

    use super::{SiteNames, Stats};
    use crate::tests_support::read;

    #[test]
    fn the_largest_sites_come_first_and_host_memory_is_no_device_memory() {
        let totals = |bytes| Totals {
            count: 1,
            bytes,
            peak_bytes: bytes,
            allocated: 3,
        };
        let mut labelled = Group::new(ResourceKind::Device, "f32", 1, 200);
        labelled.label = Some("we\"ights".into());
        let stats = Stats {
            tool: "cuguard",
            totals: vec![
                (ResourceKind::Device, totals(300)),
                (ResourceKind::Pinned, totals(50)),
            ],
            sites: vec![
                Group::new(ResourceKind::Pinned, "f32", 1, 50),
                Group::new(ResourceKind::Device, "u8", 2, 100),
                labelled,
            ],
            ..Stats::default()
        };
        let json = read(&stats.to_json(2, &mut SiteNames::default()));
        assert_eq!(json["device_live_bytes"], 300);
        assert_eq!(json["sites"][0]["bytes"], 200);
        assert_eq!(json["sites"][0]["label"], "we\"ights");
        assert_eq!(json["sites"][1]["bytes"], 100);
        assert_eq!(json["sites_not_shown"], 1);
        assert_eq!(json["kinds"][1]["on_device"], false);
    }
}
