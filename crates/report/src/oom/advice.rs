//! What helps: from causes and settings to sentences. Nothing is advised that is so already.

use super::facts::{OutOfMemory, RecoveryStep};
use super::others::Processes;
use super::text::plain;
use super::verdict::Cause;
use crate::size::ByteSize;
use crate::words::list;
use cuguard_registry::{Kind, Level, PAGE};

const IN_PIECES: &str = "work on it in pieces; cuguard::Chunked does that";

impl OutOfMemory {
    fn tried(&self, step: RecoveryStep) -> Option<&super::facts::RecoveryResult> {
        self.attempts.iter().find(|attempt| attempt.step == step)
    }

    fn is_off(&self, step: RecoveryStep) -> bool {
        self.tried(step).is_some_and(|attempt| !attempt.allowed)
    }

    /// What helps against pools that keep what they do not use.
    fn about_pools(&self, advice: &mut Vec<String>) {
        let hoarding = || self.pools.iter().filter(|pool| pool.unused() != 0);
        if self.is_off(RecoveryStep::Trim) {
            advice.push("let pools be trimmed: OomPolicy::trim(true)".to_owned());
            for pool in hoarding() {
                let keeps = match pool.threshold {
                    None | Some(0) => continue,
                    Some(u64::MAX) => "everything that is unused".to_owned(),
                    Some(threshold) => format!("{} that are unused", ByteSize(threshold)),
                };
                let name = plain(&pool.name);
                advice.push(format!(
                    "{name} may keep {keeps}: lower its release threshold"
                ));
            }
        } else if hoarding().any(|pool| pool.used != 0) {
            advice.push(
                "blocks that are in use keep their pool's memory: free them, or take what lives \
                 long from a MemoryPool of its own"
                    .to_owned(),
            );
        } else {
            advice.push(
                "it was freed a moment ago, perhaps: try again, or synchronize the context first"
                    .to_owned(),
            );
        }
    }

    pub(super) fn is_launch(&self) -> bool {
        self.asked.function == Some("cuLaunchKernel")
    }

    /// What helps a launch, whatever the cause.
    fn about_launches(&self) -> Option<String> {
        self.is_launch().then(|| {
            "let the kernel need less: its local memory (arrays, spilled registers, the stack) is taken \
             for as many threads as the device can run at once"
                .to_owned()
        })
    }

    /// What helps against what this context's guards hold.
    fn about_data(&self, advice: &mut Vec<String>, grows: bool) {
        let settings = &self.settings;
        // Pieces are for who asked for memory; a stream has none.
        let in_pieces = self.asked.bytes.is_some();
        if grows {
            let pieces = match in_pieces {
                true => "; if it needs all of it, work in smaller pieces",
                false => "",
            };
            advice.push(format!("see why that place keeps what it makes{pieces}"));
        } else {
            let pieces = if in_pieces {
                ", or work in smaller pieces"
            } else {
                ""
            };
            advice.push(format!("free some of it{pieces}"));
            if !settings.has_checkpoint && settings.level != Level::Counts {
                let call = "call Context::mark_oom_baseline() after the first steps";
                advice.push(format!("{call}, to see here what grew since"));
            }
        }
        match (settings.callbacks, self.is_off(RecoveryStep::Callbacks)) {
            (0, false) => advice.push(
                "let what can be had again, such as a cache, go when memory runs out: \
                 Context::release_on_oom"
                    .to_owned(),
            ),
            (1.., true) => advice.push("let callbacks run: OomPolicy::callbacks(true)".to_owned()),
            _ => {}
        }
        self.about_records(advice);
    }

    /// What lets the report see more of what guards hold.
    fn about_records(&self, advice: &mut Vec<String>) {
        if self.settings.level == Level::Counts {
            advice.push(
                "record places (level=sites), to see here which hold it, and whether small blocks \
                 keep pages"
                    .to_owned(),
            );
        } else if self.own_pages_are_unknown() && self.settings.sample > 1 {
            advice.push(
                "record everything (sample=1), to see here whether small blocks keep pages"
                    .to_owned(),
            );
        }
    }

    /// What helps against a budget.
    fn about_limit(&self, advice: &mut Vec<String>, limit: u64, held: u64) {
        let asked = self.asked.bytes.unwrap_or(0);
        let needed = held.saturating_add(asked);
        // What the device does not have, no limit can give.
        let is_managed = self.asked.kind == Some(Kind::Managed);
        let is_there = is_managed || self.total.is_none_or(|total| needed <= total);
        let raise = format!("raise memory_limit from {}", ByteSize(limit));
        if asked > limit {
            advice.push(IN_PIECES.to_owned());
            if is_there {
                advice.push(raise);
            }
        } else if is_there {
            advice.push(format!("free some of it, or {raise}"));
        } else {
            advice.push("free some of it, or work in smaller pieces".to_owned());
        }
    }

    /// What helps where somebody has taken memory of whom little or nothing is known.
    fn about_the_unknown(&self, advice: &mut Vec<String>, bytes: u64) {
        if self.is_what_contexts_take(bytes) {
            return advice.push(self.ask_for_less());
        }
        let library = match self.shares().outside {
            Some(_) => "",
            None => "libraries of this process, ",
        };
        match &self.processes {
            Processes::Unknown(reason) => advice.push(format!(
                "who holds it is unknown: {reason}; {library}other processes; `cuguard doctor` may \
                 tell more"
            )),
            Processes::Known(_) => {
                let silent = self.others().filter(|process| process.bytes.is_none());
                let pids: Vec<_> = silent.map(|process| process.pid.to_string()).collect();
                advice.push(match pids.as_slice() {
                    [] => format!(
                        "no process that can be seen holds it: {library}another container, a \
                         process that is ending; `cuguard doctor` may tell more"
                    ),
                    pids => format!("what pid {} holds is not told", list(pids)),
                });
            }
        }
    }

    /// Whether the contexts of this process may well take so much themselves.
    fn is_what_contexts_take(&self, bytes: u64) -> bool {
        let contexts = 1 + self.contexts.len() as u64;
        let is_little = self.total.is_none_or(|total| bytes < total / 20);
        let may_be_pages = self.pages_are_unknown();
        self.asked.bytes.is_some()
            && is_little
            && !may_be_pages
            && bytes <= contexts.saturating_mul(1 << 30)
    }

    fn ask_for_less(&self) -> String {
        let free = match self.free {
            Some(free) => format!("no more than the {} that are free", ByteSize(free)),
            None => "less".to_owned(),
        };
        format!("a context itself takes some hundred MiB: ask for {free}")
    }

    /// What helps where memory is free and refused.
    fn about_refusal(&self, advice: &mut Vec<String>) {
        let fits = |asked: u64| self.largest.is_some_and(|largest| asked <= largest);
        match self.largest {
            None => advice.push(
                "see what can be had in one piece: OomPolicy::probe_largest(true)".to_owned(),
            ),
            Some(_) if self.asked.bytes.is_some_and(fits) => {
                advice.push("it could be had a moment later: try again".to_owned());
            }
            Some(largest) => advice.push(format!(
                "ask for no more than {} at once",
                ByteSize(largest)
            )),
        }
        advice.push(
            "look for limits outside the program: of MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), of the \
             system; `cuguard doctor` may tell more"
                .to_owned(),
        );
    }

    fn about_processes(&self, advice: &mut Vec<String>) {
        let other = match self.settings.devices {
            0 | 1 => "",
            _ => ", or use another device",
        };
        let maybe = self.maybe_own();
        advice.push(match maybe.as_slice() {
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

    /// What helps against a cause, with the settings as they are.
    fn advice_on(&self, cause: &Cause) -> Vec<String> {
        let mut advice = Vec::new();
        match cause {
            Cause::LargerThanDevice { .. } => advice.push(IN_PIECES.to_owned()),
            Cause::MemoryLimit { limit, held } => self.about_limit(&mut advice, *limit, *held),
            Cause::OwnData { grows, .. } => self.about_data(&mut advice, *grows),
            Cause::Managed { .. } => advice.push(
                "free managed memory, or have the driver move it to the host (cuMemPrefetchAsync)"
                    .to_owned(),
            ),
            Cause::GivenAway { .. } => advice.push(
                "free what was given away with into_raw, or take it back with from_raw".to_owned(),
            ),
            Cause::OutsideGuards { bytes } if self.is_what_contexts_take(*bytes) => {
                advice.push(self.ask_for_less());
            }
            Cause::OutsideGuards { .. } => {
                advice.push(
                    "see which libraries of this process keep memory (workspaces of cuBLAS and the \
                     like, other allocators), and which kernels want much local memory: it stays \
                     with the context"
                        .to_owned(),
                );
                advice.push(
                    "let guards take what this program takes from the driver itself, or hand it to \
                     them with from_raw: then it is named here"
                        .to_owned(),
                );
                self.about_records(&mut advice);
            }
            Cause::OtherContexts { .. } => {
                advice.push("close contexts that are not needed".to_owned());
            }
            Cause::OtherProcesses { .. } => self.about_processes(&mut advice),
            Cause::HoardedByPools { .. } => self.about_pools(&mut advice),
            Cause::PendingFrees { .. } => advice.push(match self.tried(RecoveryStep::Wait) {
                Some(attempt) if !attempt.allowed => {
                    "let it wait for them: OomPolicy::wait(true)".to_owned()
                }
                Some(attempt) if attempt.tried => {
                    "these streams did not get there in time: wait longer (OomPolicy::wait_at_most), \
                     or give them less work at once"
                        .to_owned()
                }
                _ => "synchronize these streams first".to_owned(),
            }),
            Cause::Fragmentation { .. } => advice.push(
                "put small blocks that live long together: in one large buffer, or in a \
                 MemoryPool"
                    .to_owned(),
            ),
            Cause::Rounding { .. } => advice.push(format!(
                "make large blocks a multiple of {}, or take them from a MemoryPool",
                ByteSize(PAGE)
            )),
            Cause::FreeButRefused { .. } => self.about_refusal(&mut advice),
            Cause::Unexplained { bytes } => self.about_the_unknown(&mut advice, *bytes),
        }
        advice
    }

    /// What helps, in sentences: against each cause in turn, with the settings as they are. Nothing is
    /// in it that is so already.
    ///
    /// ```
    /// let mut why = cuguard::oom::OutOfMemory::default();
    /// (why.asked.bytes, why.total) = (Some(3 << 30), Some(2 << 30));
    /// assert!(why.advice()[0].contains("work on it in pieces"));
    /// ```
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let causes = self.causes();
        let on_causes = causes.iter().flat_map(|cause| self.advice_on(cause));
        for one in on_causes.chain(self.about_launches()) {
            if !advice.contains(&one) {
                advice.push(one);
            }
        }
        advice
    }
}
