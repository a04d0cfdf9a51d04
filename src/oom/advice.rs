//! What helps: from causes and settings to sentences. Nothing is advised that is so already.

use super::facts::{OutOfMemory, Processes, Rung};
use super::text::plain;
use super::verdict::Cause;
use crate::registry::{Level, PAGE};
use crate::size::Size;

impl OutOfMemory {
    fn tried(&self, rung: Rung) -> Option<&super::facts::Attempt> {
        self.attempts.iter().find(|attempt| attempt.rung == rung)
    }

    fn is_off(&self, rung: Rung) -> bool {
        self.tried(rung).is_some_and(|attempt| !attempt.allowed)
    }

    /// What helps against a cause, with the settings as they are.
    pub(super) fn advice(&self, cause: &Cause) -> Vec<String> {
        let why = self;
        let mut advice = Vec::new();
        match cause {
            Cause::LargerThanDevice { .. } => {
                advice.push("work on it in pieces; cuguard::Chunked does that".to_owned());
            }
            Cause::MemoryLimit { limit, .. } => advice.push(format!(
                "free some of it, or raise memory_limit from {}",
                Size(*limit)
            )),
            Cause::OwnData { grows, .. } => {
                if *grows {
                    advice.push("see why that place keeps what it makes".to_owned());
                } else {
                    advice.push("free some of it, or work in smaller pieces".to_owned());
                    if !why.settings.has_checkpoint && why.settings.level != Level::Counts {
                        let call = "call Context::checkpoint() once a step";
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
            Cause::HoardedByPools { .. } => {
                if why.is_off(Rung::Trim) {
                    advice.push("let pools be trimmed: Shortage::trim(true)".to_owned());
                } else {
                    advice.push(
                        "blocks that are in use keep their pool's memory: free them, or take what \
                         lives long from a MemoryPool of its own"
                            .to_owned(),
                    );
                }
                for pool in why.pools.iter().filter(|pool| pool.unused() != 0) {
                    if let Some(threshold) = pool.threshold.filter(|threshold| *threshold != 0) {
                        advice.push(format!(
                            "{} may keep {} unused: lower its release threshold",
                            plain(&pool.name),
                            Size(threshold)
                        ));
                    }
                }
            }
            Cause::PendingFrees { .. } => advice.push(if why.is_off(Rung::Wait) {
                "let it wait for them: Shortage::wait(true)".to_owned()
            } else {
                "other threads give these streams more work than they finish".to_owned()
            }),
            Cause::Fragmentation { .. } => advice.push(
                "put small blocks that live long together: in one large buffer, or in a \
                 MemoryPool"
                    .to_owned(),
            ),
            Cause::Rounding { .. } => advice.push(format!(
                "make large blocks a multiple of {}, or take them from a MemoryPool",
                Size(PAGE)
            )),
            Cause::Unexplained { .. } => match &why.processes {
                Processes::Unknown(reason) => advice.push(format!(
                    "who holds it is unknown: {reason}; `cuguard doctor` may tell more"
                )),
                Processes::Known(_) => advice.push(
                    "no process that can be seen holds it: another container, a process that is \
                     ending; `cuguard doctor` may tell more"
                        .to_owned(),
                ),
            },
        }
        advice
    }
}
