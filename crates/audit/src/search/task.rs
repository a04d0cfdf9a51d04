//! What the system says of a thread of this process, in `/proc/self/task`.

use std::ffi::c_int;
use std::io::Write;
use std::time::Duration;

use super::memory::Memory;

/// Whether the signal would stay pending for the thread, or be a result of its `sigwait` or `signalfd`. Does not allocate.
pub(super) fn would_receive(memory: &Memory, thread: i32, signal: c_int) -> bool {
    let mut text = [0_u8; 512];
    cannot_stop(thread, signal)
        // The kernel does not list a signal as blocked while the thread waits for it.
        || read_file(thread, "syscall", &mut text)
            .ok()
            .and_then(|text| awaited_set(str::from_utf8(text).ok()?))
            .and_then(|set| memory.words::<1>(set))
            .is_some_and(|[set]| set >> (signal - 1) & 1 != 0)
}

/// The address of the set of signals that a thread waits for, from the line of its system call.
fn awaited_set(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let set = words
        .next()
        .filter(|_| number == libc::SYS_rt_sigtimedwait)?;
    u64::from_str_radix(set.strip_prefix("0x")?, 16).ok()
}

/// Whether the thread ended, or blocks the signal.
pub(super) fn cannot_stop(thread: i32, signal: c_int) -> bool {
    status(thread).is_some_and(|status| status.cannot_stop(signal))
}

/// What the system says of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Status {
    pub(super) has_ended: bool,
    /// It is on a processor, or waits for one.
    is_running: bool,
    /// It was never switched off a processor: probably, it was never on one.
    is_new: bool,
    /// A bit for each signal, from the lowest on.
    blocked: u64,
}

impl Status {
    /// One that is running may be on its way out of the handler of the last stop, where all signals are blocked: it can.
    fn cannot_stop(self, signal: c_int) -> bool {
        self.has_ended || (self.blocks(signal) && !self.is_running)
    }

    fn parse(text: &[u8]) -> Status {
        let line = |name: &[u8]| {
            let mut lines = text.split(|byte| *byte == b'\n');
            lines.find_map(|line| line.strip_prefix(name))
        };
        let blocked = line(b"SigBlk:\t").and_then(|blocked| str::from_utf8(blocked).ok());
        let switches = [
            &b"voluntary_ctxt_switches:\t"[..],
            b"nonvoluntary_ctxt_switches:\t",
        ];
        Status {
            is_new: switches.iter().all(|name| line(name) == Some(b"0")),
            has_ended: matches!(line(b"State:\t"), Some([b'Z' | b'X', ..])),
            is_running: matches!(line(b"State:\t"), Some([b'R', ..])),
            blocked: blocked.map_or(0, |blocked| {
                u64::from_str_radix(blocked.trim(), 16).unwrap_or(0)
            }),
        }
    }

    /// Whether it receives the signal as soon as it is given a processor.
    pub(super) fn waits_for_processor(self, signal: c_int) -> bool {
        !self.has_ended && self.is_running && !self.blocks(signal)
    }

    /// Whether it has not begun: until then, a thread blocks all signals.
    pub(super) fn is_starting(self, signal: c_int) -> bool {
        self.is_new && self.blocks(signal)
    }

    fn blocks(self, signal: c_int) -> bool {
        self.blocked >> (signal - 1) & 1 != 0
    }
}

/// What the system says of a thread; `None` where that cannot be read. Does not allocate.
pub(super) fn status(thread: i32) -> Option<Status> {
    let mut text = [0_u8; 4096];
    match read_file(thread, "status", &mut text) {
        Ok(text) => Some(Status::parse(text)),
        Err(libc::ENOENT | libc::ESRCH) => Some(Status {
            has_ended: true,
            is_running: false,
            is_new: false,
            blocked: 0,
        }),
        Err(_) => None,
    }
}

/// Reads a file of a thread, or returns `errno`. Does not allocate.
fn read_file<'a>(thread: i32, name: &str, text: &'a mut [u8]) -> Result<&'a [u8], c_int> {
    let mut path = [0_u8; 64];
    // The zero at the end stays.
    write!(&mut path[..63], "/proc/self/task/{thread}/{name}").map_err(|_| libc::ENAMETOOLONG)?;
    // SAFETY: the path is terminated, the buffer valid, the file is this function's own, and `errno` the thread's.
    let read = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(*libc::__errno_location());
        }
        let read = libc::read(file, text.as_mut_ptr().cast(), text.len());
        let code = *libc::__errno_location();
        libc::close(file);
        usize::try_from(read).map_err(|_| code)?
    };
    Ok(&text[..read])
}

/// A system call that a thread waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SystemCall {
    pub(super) number: libc::c_long,
    /// The first argument.
    pub(super) first: u64,
    pub(super) stack_pointer: u64,
    /// The instruction behind it.
    pub(super) next: u64,
}

impl SystemCall {
    /// Out of a line of numbers: that of the call, its arguments, the stack pointer, the instruction. `None` for a thread that runs.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let number: libc::c_long = words.next()?.parse().ok()?;
        let mut words = words.map(|word| {
            let digits = word.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        let (next, stack_pointer) = (words.next_back()??, words.next_back()??);
        // A thread that waits in none has no arguments.
        let first = words.next().flatten().unwrap_or(0);
        (number >= 0).then_some(Self {
            number,
            first,
            stack_pointer,
            next,
        })
    }
}

/// The system call that a thread waits in, if the system says it. Does not allocate.
pub(super) fn system_call(thread: i32) -> Option<SystemCall> {
    let mut text = [0_u8; 512];
    let line = read_file(thread, "syscall", &mut text).ok()?;
    SystemCall::parse(str::from_utf8(line).ok()?)
}

/// The stack pointer of a thread that waits in the kernel. Tried again for one that wakes now and then.
pub(super) fn waiting(thread: i32) -> Option<u64> {
    let file = format!("/proc/self/task/{thread}/syscall");
    for _ in 0..20 {
        let stack_pointer = std::fs::read_to_string(&file).ok()?;
        let stack_pointer = stack_pointer_of(&stack_pointer);
        if stack_pointer.is_some() {
            return stack_pointer;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    None
}

/// The stack pointer in the line of a system call: the last but one number. `None` for a thread that runs.
fn stack_pointer_of(line: &str) -> Option<u64> {
    let number = line.split_whitespace().rev().nth(1)?;
    let address = u64::from_str_radix(number.strip_prefix("0x")?, 16);
    address.ok().filter(|address| *address != 0)
}

/// A thread's name in reports.
pub(super) fn name(thread: i32) -> String {
    // SAFETY: no requirements.
    if thread == unsafe { libc::getpid() } {
        return "the main thread".to_owned();
    }
    match std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")) {
        Ok(name) => format!("thread {thread} ({})", name.trim_end()),
        Err(_) => format!("thread {thread}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Status, SystemCall, awaited_set, stack_pointer_of};

    #[test]
    fn the_stack_pointer_of_a_system_call() {
        let line = "230 0x0 0x0 0x7f1 0x0 0x0 0x0 0x7f00aabb 0x7f00ccdd\n";
        assert_eq!(stack_pointer_of(line), Some(0x7f00_aabb));
        assert_eq!(
            stack_pointer_of("-1 0x7f00aabb 0x7f00ccdd\n"),
            Some(0x7f00_aabb)
        );
        assert_eq!(stack_pointer_of("running\n"), None);
        assert_eq!(stack_pointer_of("0 0x0 0x0\n"), None);
    }

    #[test]
    fn the_system_call_that_a_thread_waits_in() {
        let line = "230 0x12 0x0 0x7f1 0x0 0x0 0x0 0x7f00aabb 0x7f00ccdd\n";
        let call = SystemCall {
            number: 230,
            first: 0x12,
            stack_pointer: 0x7f00_aabb,
            next: 0x7f00_ccdd,
        };
        assert_eq!(SystemCall::parse(line), Some(call));
        for line in [
            "running\n",
            "-1 0x7f00aabb 0x7f00ccdd\n",
            "230\n",
            "230 x y\n",
            "",
        ] {
            assert_eq!(SystemCall::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_set_that_a_thread_waits_for() {
        let number = libc::SYS_rt_sigtimedwait;
        let line = format!("{number} 0x7f00aa00 0x0 0x0 0x8 0x0 0x0 0x7f00aabb 0x7f00ccdd\n");
        assert_eq!(awaited_set(&line), Some(0x7f00_aa00));
        assert_eq!(awaited_set(&format!("1{line}")), None);
        assert_eq!(awaited_set("-1 0x7f00aabb 0x7f00ccdd\n"), None);
        assert_eq!(awaited_set("running\n"), None);
    }

    #[test]
    fn threads_that_cannot_stop() {
        let status = |state: &str, blocked: &str| {
            let text = format!(
                "Name:\ta\nState:\t{state} (what)\nSigPnd:\tffffffffffffffff\nSigBlk:\t{blocked}\nSigIgn:\t0\n"
            );
            Status::parse(text.as_bytes())
        };
        let running = status("S", "0000000000000000");
        assert!(!running.has_ended && !running.blocks(60));
        assert!(status("Z", "0000000000000000").has_ended);
        assert!(status("R", "fffffffe7ffbfeff").blocks(60));
        assert!(status("R", "0800000000000000").blocks(60));
        assert!(!status("R", "0800000000000000").blocks(59));
        assert!(status("S", "0800000000000000").cannot_stop(60));
        assert!(!status("R", "0800000000000000").cannot_stop(60));
        assert!(status("Z", "0000000000000000").cannot_stop(60));
        assert!(!status("R", "fffffffe7ffbfeff").is_starting(60));
        let switches = |voluntary: u32, other: u32| {
            let text = format!(
                "State:\tR (running)\nSigBlk:\tfffffffe7ffbfeff\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{other}\n"
            );
            Status::parse(text.as_bytes())
        };
        assert!(switches(0, 0).is_starting(60));
        assert!(status("R", "0000000000000000").waits_for_processor(60));
        assert!(!running.waits_for_processor(60));
        assert!(!status("R", "0800000000000000").waits_for_processor(60));
        assert!(!status("Z", "0000000000000000").waits_for_processor(60));
        assert!(!switches(1, 0).is_starting(60) && !switches(0, 10).is_starting(60));
    }
}
