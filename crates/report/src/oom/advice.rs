//! What helps against each cause. Nothing is advised that is already set.

use super::causes::Cause;
use super::facts::{KindUsage, OutOfMemory, RecoveryResult, RecoveryStep};
use super::others::{PoolUse, Processes};
use super::text::plain;
use crate::phrase::list;
use crate::size::ByteSize;
use crate::words::when;
use cuguard_registry::{PAGE, ResourceKind, TrackingLevel};

/// Of blocks below this size, on average, pages of 2 MiB have so many that few pages can be merged.
const SMALL_BLOCK: u64 = 64 << 10;

impl OutOfMemory {
    fn tried(&self, step: RecoveryStep) -> Option<&RecoveryResult> {
        self.recovery.iter().find(|result| result.step == step)
    }

    fn is_off(&self, step: RecoveryStep) -> bool {
        self.tried(step).is_some_and(|result| !result.allowed)
    }

    fn in_pieces(&self) -> &'static str {
        match self.settings.audited {
            true => "work on it in pieces",
            false => "work on it in pieces; cuguard::Chunked does that",
        }
    }

    /// Where blocks come from that share pages, and why it helps.
    fn pool(&self, why: &str) -> String {
        match self.settings.audited {
            true => "memory pool (cudaMallocAsync)".to_owned(),
            false => format!("Pool, {why}"),
        }
    }

    /// Whether all unused memory of pools is in pages of cuguard's that have blocks too.
    pub(super) fn is_in_shared_pages(&self) -> bool {
        let mut hoarding = self.pools.iter().filter(|pool| pool.unused() != 0);
        hoarding.all(|pool| pool.of_cuguard && pool.used != 0)
    }

    /// What the pool whose limit refused the request does not use of its pages, if the request would fit into that.
    pub(super) fn unused_of_limited_pool(&self) -> Option<u64> {
        // Blocks that were freed and that streams may still use are unused too. They are waited for, if there are any.
        let none_pending = |wait: &RecoveryResult| wait.allowed && !wait.tried;
        if !self.tried(RecoveryStep::Wait).is_some_and(none_pending) {
            return None;
        }
        let limit = self.limit.filter(|limit| limit.of_pool)?;
        let is_it =
            |pool: &&PoolUse| pool.of_cuguard && pool.used != 0 && pool.reserved == limit.held;
        let mut pools = self.pools.iter().filter(is_it);
        let unused = pools.next()?.unused();
        // Of two that hold the same, it is not known which it is.
        let is_one = pools.next().is_none();
        (is_one && unused >= self.request.bytes.unwrap_or(0)).then_some(unused)
    }

    /// Pages of cuguard's pools that blocks keep.
    fn about_shared_pages(&self, advice: &mut Advice) {
        if self.is_off(RecoveryStep::Compact) {
            return advice.add("let half-empty pages be merged: OomPolicy::compact(true)");
        }
        let mut pooled = self
            .usage
            .iter()
            .filter(|usage| usage.kind == ResourceKind::Pooled);
        let is_small =
            |usage: &KindUsage| usage.amount.bytes / usage.amount.count.max(1) < SMALL_BLOCK;
        advice.add(match pooled.any(is_small) {
            true => {
                "small blocks are scattered over these pages, so that few can be merged: allocate \
                 what lives long as parts of one larger buffer (chapter `pools` of the documentation)"
            }
            false => {
                "blocks of these sizes fill pages of 2 MiB in part: other sizes, or smaller blocks \
                 beside them, use the rest (chapter `pools` of the documentation)"
            }
        });
    }

    /// Pools that keep what they do not use.
    fn about_pools(&self, advice: &mut Advice) {
        let hoarding = || self.pools.iter().filter(|pool| pool.unused() != 0);
        if self.settings.audited {
            return advice.add(
                "trim these pools (cudaMemPoolTrimTo), lower their release threshold \
                 (cudaMemPoolAttrReleaseThreshold), or free the blocks that keep their memory",
            );
        }
        if self.is_off(RecoveryStep::Trim) {
            advice.add("let pools be trimmed: OomPolicy::trim(true)");
            for pool in hoarding() {
                let keeps = match pool.threshold {
                    None | Some(0) => continue,
                    Some(u64::MAX) => "everything that is unused".to_owned(),
                    Some(threshold) => format!("{} that are unused", ByteSize(threshold)),
                };
                let name = plain(&pool.name);
                advice.add(format!(
                    "{name} may keep {keeps}: lower its release threshold"
                ));
            }
        } else if self.is_in_shared_pages() {
            self.about_shared_pages(advice);
        } else if hoarding().any(|pool| pool.used != 0) {
            advice.add(
                "blocks that are in use keep their pool's memory: free them, or take what lives \
                 long from a DriverPool of its own",
            );
        } else {
            advice.add(
                "it was freed a moment ago, perhaps: try again, or synchronize the context first",
            );
        }
    }

    /// Memory that graphs have reserved.
    fn about_graphs(&self, advice: &mut Advice, bytes: u64, lost: u64) {
        // What they keep does not help a graph that was not launched: it would have used that.
        let is_launched =
            self.request.kind != Some(ResourceKind::GraphMemory) || self.request.function.is_some();
        if lost < bytes && is_launched {
            advice.add(
                match (self.settings.audited, self.is_off(RecoveryStep::Trim)) {
                    (true, _) => {
                        "release what graphs keep for later launches: cuDeviceGraphMemTrim"
                    }
                    (false, true) => {
                        "let what graphs keep for later launches be released: OomPolicy::trim(true)"
                    }
                    (false, false) => {
                        "wait for graphs with scratch memory on other streams before the next"
                    }
                },
            );
        }
        if lost != 0 {
            advice.add("restart the process: no call releases what a failed launch has reserved");
            advice.add(match self.settings.audited {
                true => "before cuGraphLaunch, check that the memory of the graph fits (cuMemGetInfo)",
                false => {
                    "launch graphs with GraphExec::launch or Scope::launch_graph, which check before that \
                     their memory fits"
                }
            });
        }
    }

    pub(super) fn is_launch(&self) -> bool {
        self.request.function == Some("cuLaunchKernel")
    }

    /// What this context's guards hold.
    fn about_data(&self, advice: &mut Advice, grows: bool) {
        let settings = &self.settings;
        // Memory can be allocated in pieces, a stream cannot.
        let in_pieces = self.request.bytes.is_some();
        if grows {
            let pieces = when(in_pieces, "; if it needs all of it, work in smaller pieces");
            advice.add(format!(
                "find out why that call site keeps what it allocates{pieces}"
            ));
        } else {
            let pieces = when(in_pieces, ", or work in smaller pieces");
            advice.add(format!("free some of it{pieces}"));
            if !settings.audited
                && !settings.has_baseline
                && settings.level != TrackingLevel::Counts
            {
                let call = "call Context::mark_oom_baseline() after the first steps";
                advice.add(format!("{call}, to see here what grew since"));
            }
        }
        if settings.audited {
            return;
        }
        match (settings.callbacks, self.is_off(RecoveryStep::Callbacks)) {
            (0, false) => advice.add("free caches when memory runs out: Context::release_on_oom"),
            (1.., true) => advice.add("let callbacks run: OomPolicy::callbacks(true)"),
            _ => {}
        }
        self.about_records(advice);
    }

    /// Settings that show more of what guards hold.
    fn about_records(&self, advice: &mut Advice) {
        if self.settings.level == TrackingLevel::Counts {
            advice.add(
                "record call sites (level=sites), to see here which hold it, and whether small blocks \
                 keep pages",
            );
        } else if self.own_pages_are_unknown() && self.settings.sample > 1 {
            advice.add("record everything (sample=1), to see here whether small blocks keep pages");
        }
    }

    /// A memory limit.
    fn about_limit(&self, advice: &mut Advice, limit: u64, held: u64) {
        let request = self.request.bytes.unwrap_or(0);
        let needed = held.saturating_add(request);
        // A larger limit does not help beyond the device's memory.
        let is_managed = self.request.kind == Some(ResourceKind::Managed);
        let is_there = is_managed || self.total.is_none_or(|total| needed <= total);
        let name = match self.limit {
            Some(limit) if limit.of_pool => "the pool's limit",
            _ => "memory_limit",
        };
        if self.unused_of_limited_pool().is_some() {
            self.about_shared_pages(advice);
        }
        let raise = format!("raise {name} from {}", ByteSize(limit));
        if request > limit {
            advice.add(self.in_pieces());
            if is_there {
                advice.add(raise);
            }
        } else if is_there && held == 0 {
            advice.add(raise);
        } else if is_there {
            advice.add(format!("free some of it, or {raise}"));
        } else {
            advice.add("free some of it, or work in smaller pieces");
        }
    }

    /// Holders that are not known.
    fn about_the_unexplained(&self, advice: &mut Advice, bytes: u64) {
        if self.is_context_overhead(bytes) {
            return advice.add(self.request_less());
        }
        let is_unknown = self.shares().outside.is_none();
        let library = when(is_unknown, "libraries of this process, ");
        match &self.processes {
            Processes::Unknown(reason) => advice.add(format!(
                "its holder is unknown: {reason}; {library}other processes; `cuguard doctor` may \
                 show more"
            )),
            Processes::Known(_) => {
                let silent = self.others().filter(|process| process.bytes.is_none());
                let pids: Vec<_> = silent.map(|process| process.pid.to_string()).collect();
                advice.add(match pids.as_slice() {
                    [] => format!(
                        "no process that can be seen holds it: {library}another container, a \
                         process that is ending; `cuguard doctor` may show more"
                    ),
                    pids => format!("what pid {} holds is unknown", list(pids)),
                });
            }
        }
    }

    /// Whether the contexts of this process may need that much themselves.
    fn is_context_overhead(&self, bytes: u64) -> bool {
        let contexts = 1 + self.contexts.len() as u64;
        let is_little = self.total.is_none_or(|total| bytes < total / 20);
        let may_be_pages = self.pages_are_unknown();
        self.request.bytes.is_some()
            && is_little
            && !may_be_pages
            && bytes <= contexts.saturating_mul(1 << 30)
    }

    fn request_less(&self) -> String {
        let free = match self.free {
            Some(free) => format!("no more than the {} that are free", ByteSize(free)),
            None => "less".to_owned(),
        };
        format!("a context itself takes some hundred MiB: request {free}")
    }

    /// Memory that is free and refused.
    fn about_refusal(&self, advice: &mut Advice) {
        let fits = |request: u64| self.largest.is_some_and(|largest| request <= largest);
        match self.largest {
            None if self.settings.audited => {}
            None => advice.add(
                "find the largest block that can be allocated: OomPolicy::probe_largest(true)",
            ),
            Some(_) if self.request.bytes.is_some_and(fits) => {
                advice.add("it can be allocated now: try again");
            }
            Some(largest) => advice.add(format!(
                "request no more than {} at once",
                ByteSize(largest)
            )),
        }
        advice.add("look for limits outside the program: of MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), of the \
             system; `cuguard doctor` may show more");
    }

    /// Page-locked memory that the host refused.
    fn about_the_host(&self, advice: &mut Advice, held: u64) {
        advice.add(
            "look for limits of the host: of the container or control group (memory.max), of locked memory \
             (ulimit -l), of what is free (free -h)",
        );
        if held != 0 {
            advice.add("free page-locked memory that is not needed");
        }
        advice.add("page-lock less at once: copy in pieces through a smaller buffer, or from pageable memory");
    }

    fn about_processes(&self, advice: &mut Advice) {
        let other = when(self.settings.devices > 1, ", or use another device");
        let maybe = self.maybe_own();
        advice.add(match maybe.as_slice() {
            [] => format!("wait for these processes or end them{other}"),
            [pid] => format!(
                "pid {pid} may be this process, by its number outside a container: find out before \
                 you end it{other}"
            ),
            pids => format!(
                "one of pid {} may be this process, by its number outside a container: find out \
                 before you end any{other}",
                list(pids)
            ),
        });
    }

    /// What helps against one cause.
    fn advise(&self, cause: &Cause, advice: &mut Advice) {
        match cause {
            Cause::LargerThanDevice { .. } => advice.add(self.in_pieces()),
            Cause::MemoryLimit { limit, held } => self.about_limit(advice, *limit, *held),
            Cause::OwnData { grows, .. } => self.about_data(advice, *grows),
            Cause::Managed { .. } => advice.add("free managed memory, or have the driver move it to the host (cuMemPrefetchAsync)"),
            Cause::Escaped { .. } => advice.add("free what was released with into_raw, or pass it to from_raw"),
            Cause::OutsideGuards { bytes } if self.is_context_overhead(*bytes) => {
                advice.add(self.request_less());
            }
            Cause::OutsideGuards { .. } => {
                advice.add("see which libraries of this process keep memory (workspaces of cuBLAS and the \
                     like, other allocators), and which kernels want much local memory: it stays \
                     with the context");
                if self.settings.audited {
                    return;
                }
                advice.add("allocate with guards what this program allocates with the driver, or pass it to \
                     from_raw: then it is listed here");
                self.about_records(advice);
            }
            Cause::OtherContexts { .. } => {
                advice.add("close contexts that are not needed");
            }
            Cause::OtherProcesses { .. } => self.about_processes(advice),
            Cause::ReservedForGraphs { bytes, lost } => self.about_graphs(advice, *bytes, *lost),
            Cause::HoardedByPools { .. } => self.about_pools(advice),
            Cause::PendingFrees { .. } => advice.add(match self.tried(RecoveryStep::Wait) {
                Some(result) if !result.allowed => "let it wait for them: OomPolicy::wait(true)",
                Some(result) if result.tried => {
                    "these streams did not complete their frees in time: wait longer (OomPolicy::wait_at_most), \
                     or give them less work at once"
                }
                _ => "synchronize these streams first",
            }),
            Cause::Fragmentation { .. } => advice.add(format!(
                "put small blocks that live long together: in one large buffer, or in a {}",
                self.pool("which merges half-empty pages")
            )),
            Cause::Rounding { .. } => advice.add(format!(
                "make large blocks a multiple of {}, or take them from a {}",
                ByteSize(PAGE),
                self.pool("where the ends of two blocks share a page")
            )),
            Cause::FreeButRefused { .. } => self.about_refusal(advice),
            Cause::HostMemory { bytes } => self.about_the_host(advice, *bytes),
            Cause::Unexplained { bytes } => self.about_the_unexplained(advice, *bytes),
        }
    }

    /// What helps against each cause in turn, as sentences. Nothing is advised that is already set.
    ///
    /// ```
    /// let mut why = cuguard::oom::OutOfMemory::default();
    /// (why.request.bytes, why.total) = (Some(3 << 30), Some(2 << 30));
    /// assert!(why.advice()[0].contains("work on it in pieces"));
    /// ```
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Advice::default();
        for cause in self.causes() {
            self.advise(&cause, &mut advice);
        }
        if self.is_launch() {
            advice.add(
                "let the kernel need less: its local memory (arrays, spilled registers, the stack) is \
                 taken for as many threads as the device can run at once",
            );
        }
        advice.0
    }
}

/// Sentences, each once.
#[derive(Default)]
struct Advice(Vec<String>);

impl Advice {
    fn add(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.0.contains(&sentence) {
            self.0.push(sentence);
        }
    }
}
