//! Each cause as text: in short, and with the numbers and call sites behind it.

use super::causes::Cause;
use super::facts::OutOfMemory;
use super::text::{Page, plain, pool_line};
use crate::phrase::{count, list_some};
use crate::size::ByteSize;
use crate::words::{age, when};
use cuguard_registry::{PAGE, SiteUsage, TrackingLevel};

/// How many pids are in a line.
const PIDS: usize = 3;
/// How many processes have a line of their own.
const PROCESSES: usize = 8;

impl OutOfMemory {
    /// A cause in a few words.
    pub(super) fn short(&self, cause: &Cause) -> String {
        let size = ByteSize(cause.bytes());
        match cause {
            Cause::LargerThanDevice { total, .. } => {
                format!("larger than the device, which has {}", ByteSize(*total))
            }
            Cause::MemoryLimit { limit, held } => match self.request.bytes {
                Some(request) if request > *limit => format!(
                    "{} were requested, and the limit is {}",
                    ByteSize(request),
                    ByteSize(*limit)
                ),
                Some(request)
                    if held.saturating_add(request) <= *limit
                        && self.limit.is_some_and(|limit| limit.of_pool) =>
                {
                    format!(
                        "it holds {} of the {} that it may have, and {} take more than the rest, \
                         in pages of 2 MiB",
                        ByteSize(*held),
                        ByteSize(*limit),
                        ByteSize(request)
                    )
                }
                _ => {
                    let unused = match self.unused_of_limited_pool() {
                        Some(unused) => {
                            format!(
                                "; {} lie unused in pages that blocks keep",
                                ByteSize(unused)
                            )
                        }
                        None => String::new(),
                    };
                    format!(
                        "it holds {} of the {} that it may have{unused}",
                        ByteSize(*held),
                        ByteSize(*limit)
                    )
                }
            },
            Cause::OwnData { grows, .. } => {
                let grows = when(*grows, ", and grows");
                format!("the {}'s own data takes {size}{grows}", self.owner())
            }
            Cause::Managed { .. } => {
                let owner = self.owner();
                format!("the {owner}'s managed memory takes up to {size} of the device")
            }
            Cause::Escaped { .. } => {
                format!("up to {size} were released with into_raw")
            }
            Cause::OutsideGuards { .. } => {
                let how = self.unrecorded();
                format!("this process holds {size} {how}")
            }
            Cause::OtherContexts { .. } => {
                format!("other contexts of this process hold {size}")
            }
            Cause::OtherProcesses { bytes, pids } => self.short_processes(*bytes, pids),
            Cause::ReservedForGraphs { bytes, lost } => {
                let reserved = format!("{size} are reserved for graphs");
                let why = "launches that failed for lack of memory left that behind";
                match *lost {
                    0 => reserved,
                    lost if lost >= *bytes => format!("{reserved} and unused: {why}"),
                    lost => format!("{reserved}, {} of it unused: {why}", ByteSize(lost)),
                }
            }
            Cause::HoardedByPools { .. } if self.is_in_shared_pages() => {
                format!("blocks in pools leave {size} of their pages unused")
            }
            Cause::HoardedByPools { .. } => {
                format!("memory pools have {size} that they do not use")
            }
            Cause::PendingFrees { streams, .. } => format!(
                "up to {size} wait to be freed on {}",
                count(*streams, "stream")
            ),
            Cause::Fragmentation { pages, .. } => format!(
                "{size} lie unused in {} that small blocks keep",
                count(*pages, "page")
            ),
            Cause::Rounding { .. } => {
                format!("{size} are lost because blocks take whole pages")
            }
            Cause::FreeButRefused { .. } => {
                let refused = format!("{size} are free, and yet it was refused");
                match self.largest.map(ByteSize) {
                    Some(most) => {
                        format!("{refused}; the largest block that can be allocated is {most}")
                    }
                    None => refused,
                }
            }
            Cause::HostMemory { bytes } => {
                let holds = match bytes {
                    0 => "no other page-locked memory".to_owned(),
                    _ => format!("{size} of page-locked memory"),
                };
                let owner = self.owner();
                format!("the host did not page-lock that much; the {owner} holds {holds}")
            }
            Cause::Unexplained { .. } => {
                format!("{size} are taken by contexts themselves, or by unknown holders")
            }
        }
    }

    /// Whose records these are.
    fn owner(&self) -> &'static str {
        match self.settings.audited {
            true => "program",
            false => "context",
        }
    }

    /// How memory is allocated that is not recorded.
    fn unrecorded(&self) -> &'static str {
        match self.settings.audited {
            true => "that was not allocated by recorded calls",
            false => "outside of its guards",
        }
    }

    fn short_processes(&self, bytes: u64, pids: &[u32]) -> String {
        let others = match pids {
            [_] => "another process holds",
            _ => "other processes hold",
        };
        let most = when(self.others_listed() > bytes, "at most ");
        let numbers = list_some(pids, PIDS, u32::to_string);
        let own = match (pids, self.maybe_own().is_empty()) {
            (_, true) => "",
            ([_], _) => ", which may be this process",
            _ => ", one of which may be this process",
        };
        format!("{others} {most}{} (pid {numbers}{own})", ByteSize(bytes))
    }

    /// The pids that may be this process, by its pid outside of a container.
    pub(super) fn maybe_own(&self) -> Vec<String> {
        let maybe = self.others().filter(|process| self.may_be_own(process));
        maybe.map(|process| process.pid.to_string()).collect()
    }

    /// Why it is not known how blocks lie in pages.
    pub(super) fn pages_reason(&self) -> String {
        match (self.settings.level, self.settings.sample) {
            (TrackingLevel::Counts, _) => " (level counts)".to_owned(),
            (_, 0 | 1) => String::new(),
            (_, sample) => format!(" (one resource in {sample} is recorded)"),
        }
    }

    /// The call sites with small blocks, those in most pages first.
    fn pinning(&self) -> Vec<&SiteUsage> {
        let mut pinning: Vec<_> = self.call_sites.iter().collect();
        pinning.retain(|usage| usage.small_pages != 0);
        pinning.sort_by_key(|usage| std::cmp::Reverse(usage.small_pages));
        pinning
    }
}

impl Page<'_> {
    fn call_site(&self, usage: &SiteUsage) -> String {
        let text = self.origin(&usage.group);
        text.trim_start_matches([',', ' ']).to_owned()
    }

    /// The numbers behind one of the causes.
    pub(super) fn details(&self, cause: &Cause, named: &[Cause]) -> Vec<String> {
        let why = self.why;
        match cause {
            Cause::Fragmentation { .. } => {
                let pages = why.pages.unwrap_or_default();
                let mut lines = vec![format!(
                    "{} of small blocks keep {} of {}, {} in all",
                    ByteSize(pages.small_bytes),
                    count(pages.small_pages, "page"),
                    ByteSize(PAGE),
                    ByteSize(pages.small_pages.saturating_mul(PAGE))
                )];
                if pages.foreign_bytes != 0 {
                    let others = ByteSize(pages.foreign_bytes);
                    lines.push(format!("other contexts have {others} in the same pages"));
                }
                for usage in why.pinning().into_iter().take(3) {
                    let pages = count(usage.small_pages, "page");
                    lines.push(format!("{pages}: {}", self.call_site(usage)));
                }
                lines
            }
            Cause::OwnData { grows: true, .. } => {
                let growing = why.growing(named).into_iter().take(3);
                growing.map(|usage| self.growth(usage)).collect()
            }
            Cause::Managed { .. } => vec!["it may lie on the host as well".to_owned()],
            Cause::Escaped { .. } => vec!["its owner may have freed it".to_owned()],
            Cause::OutsideGuards { .. } => {
                let mut whose = match why.settings.audited {
                    true => "the driver's own memory: contexts, loaded modules, local memory of kernels",
                    false => {
                        "other libraries, code that calls the driver itself, contexts themselves, local \
                         memory of kernels"
                    }
                }
                .to_owned();
                if why.pages_are_unknown() {
                    whose.push_str(", or pages that blocks of guards do not fill");
                }
                vec![whose]
            }
            Cause::ReservedForGraphs { lost: 1.., .. } => {
                vec![
                    "the driver releases what is unused when the process ends, and no sooner"
                        .to_owned(),
                ]
            }
            Cause::FreeButRefused { .. } => {
                vec!["memory that is known here does not explain it".to_owned()]
            }
            Cause::OtherProcesses { bytes, .. } => self.processes(*bytes),
            // Both are in the same pools, which are listed with the first of the two.
            Cause::HoardedByPools { .. } | Cause::PendingFrees { .. }
                if named.iter().find(|named| lies_in_pools(named)) == Some(cause) =>
            {
                let pools = why.pools.iter().filter(|pool| pool.unused() != 0);
                pools.map(pool_line).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Other processes, which hold `bytes` together.
    fn processes(&self, bytes: u64) -> Vec<String> {
        let why = self.why;
        let sum = why.others_listed();
        // The list may have more than is in use.
        let listed = when(sum > bytes, "listed with ");
        let mut lines: Vec<_> = why
            .others()
            .take(PROCESSES)
            .map(|process| {
                let name = process.name.as_deref().unwrap_or("of unknown name");
                let bytes = process
                    .bytes
                    .map_or("an unknown amount".to_owned(), |b| ByteSize(b).to_string());
                format!("{listed}{bytes}: pid {}, {}", process.pid, plain(name))
            })
            .collect();
        let more = why.others().count().saturating_sub(PROCESSES);
        if more != 0 {
            lines.push(format!("… and {more} more"));
        }
        if sum > bytes {
            lines.push(format!(
                "no more than {} of that can be theirs: the rest is free, or this process's",
                ByteSize(bytes)
            ));
        }
        lines
    }

    fn growth(&self, usage: &SiteUsage) -> String {
        let call_site = self.call_site(usage);
        match usage.growth {
            Some(growth) => format!(
                "grew by {} since the baseline: {call_site}",
                ByteSize(growth.max(0) as u64)
            ),
            None => format!(
                "{} allocated throughout {}, the first {} ago: {call_site}",
                count(usage.group.amount.count, "block"),
                match self.why.settings.audited {
                    true => "the run",
                    false => "the context's lifetime",
                },
                age(usage.group.oldest)
            ),
        }
    }
}

const fn lies_in_pools(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::HoardedByPools { .. } | Cause::PendingFrees { .. }
    )
}
