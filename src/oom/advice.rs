//! What helps: from causes and settings to sentences. Nothing is advised that is so already.

use super::facts::{OutOfMemory, Processes, Rung};
use super::text::plain;
use super::verdict::Cause;
use crate::registry::{Level, PAGE};
use crate::report::words::list;
use crate::size::ByteSize;

impl OutOfMemory {
    fn tried(&self, rung: Rung) -> Option<&super::facts::Attempt> {
        self.attempts.iter().find(|attempt| attempt.rung == rung)
    }

    fn is_off(&self, rung: Rung) -> bool {
        self.tried(rung).is_some_and(|attempt| !attempt.allowed)
    }

    /// What helps against pools that keep what they do not use.
    fn about_pools(&self, advice: &mut Vec<String>) {
        let hoarding = || self.pools.iter().filter(|pool| pool.unused() != 0);
        if self.is_off(Rung::Trim) {
            advice.push("let pools be trimmed: Shortage::trim(true)".to_owned());
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
        }
    }

    /// What helps a launch, whatever the cause.
    pub(super) fn about_launches(&self) -> Option<String> {
        (self.asked.function == Some("cuLaunchKernel")).then(|| {
            "let the kernel need less: its local memory (arrays, spilled registers, the stack) is taken \
             for as many threads as the device can run at once"
                .to_owned()
        })
    }

    /// What helps against a cause, with the settings as they are.
    pub(super) fn advice(&self, cause: &Cause) -> Vec<String> {
        let why = self;
        let mut advice = Vec::new();
        match cause {
            Cause::LargerThanDevice { .. } => {
                advice.push("work on it in pieces; cuguard::Chunked does that".to_owned());
            }
            Cause::MemoryLimit { limit, .. } => {
                let fits = why.asked.bytes.is_some_and(|asked| asked <= *limit);
                let free = if fits { "free some of it, or " } else { "" };
                advice.push(format!("{free}raise memory_limit from {}", ByteSize(*limit)));
            }
            Cause::OwnData { grows, .. } => {
                // Pieces are for who asked for memory; a stream has none.
                let in_pieces = why.asked.bytes.is_some();
                if *grows {
                    let pieces = match in_pieces {
                        true => "; if it needs all of it, work in smaller pieces",
                        false => "",
                    };
                    advice.push(format!("see why that place keeps what it makes{pieces}"));
                } else {
                    let pieces = if in_pieces { ", or work in smaller pieces" } else { "" };
                    advice.push(format!("free some of it{pieces}"));
                    if !why.settings.has_checkpoint && why.settings.level != Level::Counts {
                        let call = "call Context::checkpoint() after the first steps";
                        advice.push(format!("{call}, to see here what grew since"));
                    }
                }
                if why.settings.level == Level::Counts {
                    advice
                        .push("record places (level=sites), to see here which hold it".to_owned());
                }
            }
            Cause::OtherContexts { .. } => {
                advice.push("close contexts that are not needed".to_owned());
            }
            Cause::OtherProcesses { .. } => {
                let other = match why.settings.devices {
                    0 | 1 => "",
                    _ => ", or use another device",
                };
                advice.push(format!("wait for these processes or end them{other}"));
            }
            Cause::HoardedByPools { .. } => self.about_pools(&mut advice),
            Cause::PendingFrees { .. } => advice.push(match self.tried(Rung::Wait) {
                Some(attempt) if !attempt.allowed => {
                    "let it wait for them: Shortage::wait(true)".to_owned()
                }
                Some(attempt) if attempt.tried => {
                    "these streams did not get there in time: wait longer (Shortage::wait_at_most), \
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
            Cause::Unexplained { .. } => match &why.processes {
                Processes::Unknown(reason) => advice.push(format!(
                    "who holds it is unknown: {reason}; `cuguard doctor` may tell more"
                )),
                Processes::Known(_) => {
                    let silent = self.others().filter(|process| process.bytes.is_none());
                    let pids: Vec<_> = silent.map(|process| process.pid.to_string()).collect();
                    advice.push(match pids.as_slice() {
                        [] => "no process that can be seen holds it: another container, a process \
                               that is ending; `cuguard doctor` may tell more"
                            .to_owned(),
                        pids => format!("what pid {} holds is not told", list(pids)),
                    });
                }
            },
        }
        advice
    }
}
