//! Functions whose calls are counted: those that are not recorded and look as if they allocate, for the report's footer, and those
//! that launch kernels, which are work of the program.
//!
//! A function of a newer driver has no known signature, so its wrapper is a stub that counts and jumps on with all
//! registers as they are. There is a fixed number of stubs, each assigned to a function when a program looks it up.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::Release};

/// How many functions can be counted; a driver has about 40 that are not recorded. Further ones pass through.
const STUBS: usize = 64;

static CALLS: [AtomicU64; STUBS] = [const { AtomicU64::new(0) }; STUBS];
static TARGETS: [AtomicPtr<c_void>; STUBS] = [const { AtomicPtr::new(ptr::null_mut()) }; STUBS];
/// Which of them launch kernels.
static LAUNCHES: [AtomicBool; STUBS] = [const { AtomicBool::new(false) }; STUBS];
/// The names of the functions that have a stub, in the order of the stubs.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Parts of names of functions that create something.
const CREATING: &[&[u8]] = &[
    b"Alloc",
    b"Create",
    b"Import",
    b"Register",
    b"Reserve",
    b"Open",
];
/// Parts of names of functions that do not, although one of the above is in them.
const OTHER: &[&[u8]] = &[b"Get", b"Set", b"Unregister", b"Callback", b"Notification"];
/// How names of functions begin that launch kernels. (`cuGraphLaunch` is counted where it is recorded.)
const LAUNCHING: &[u8] = b"cuLaunch";

/// The stub with a number: counts and jumps. It changes no register that can hold an argument.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn counting<const NUMBER: usize>() {
    naked_asm!(
        "endbr64",
        "lock inc qword ptr [rip + {calls} + {offset}]",
        "jmp qword ptr [rip + {targets} + {offset}]",
        calls = sym CALLS,
        targets = sym TARGETS,
        offset = const NUMBER * 8,
    )
}

/// The stub with a number: counts and jumps. `x9` to `x17` hold no arguments. A thread may have the stub's address and not yet see
/// the target, which was stored before: it waits.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn counting<const NUMBER: usize>() {
    naked_asm!(
        "hint #34",
        "adrp x16, {calls}",
        "add x16, x16, :lo12:{calls}",
        "add x16, x16, #{offset}",
        "2: ldxr x9, [x16]",
        "add x9, x9, #1",
        "stxr w10, x9, [x16]",
        "cbnz w10, 2b",
        "adrp x16, {targets}",
        "add x16, x16, :lo12:{targets}",
        "add x16, x16, #{offset}",
        "3: ldr x9, [x16]",
        "cbz x9, 3b",
        "mov x16, x9",
        "br x16",
        calls = sym CALLS,
        targets = sym TARGETS,
        offset = const NUMBER * 8,
    )
}

type Stub = unsafe extern "C" fn();

macro_rules! stubs {
    ($($tens:literal)*) => { [$(
        counting::<{ $tens * 8 }>, counting::<{ $tens * 8 + 1 }>, counting::<{ $tens * 8 + 2 }>,
        counting::<{ $tens * 8 + 3 }>, counting::<{ $tens * 8 + 4 }>, counting::<{ $tens * 8 + 5 }>,
        counting::<{ $tens * 8 + 6 }>, counting::<{ $tens * 8 + 7 }>,
    )*] };
}
static ALL: [Stub; STUBS] = stubs!(0 1 2 3 4 5 6 7);

/// Whether calls of a function with this name are counted.
pub(super) fn is_counted(name: &[u8]) -> bool {
    is_creating(name) || is_launching(name)
}

/// Whether a function with this name looks as if it allocates.
fn is_creating(name: &[u8]) -> bool {
    let contains = |part: &&[u8]| name.windows(part.len()).any(|window| window == *part);
    CREATING.iter().any(contains) && !OTHER.iter().any(contains)
}

/// Whether a function with this name launches kernels.
fn is_launching(name: &[u8]) -> bool {
    name.starts_with(LAUNCHING)
}

/// The address of a stub for the driver's function `target`; null if its calls are not counted.
pub(super) fn stub(name: &[u8], target: *const c_void) -> *const c_void {
    if !is_counted(name) {
        return ptr::null();
    }
    let Ok(name) = std::str::from_utf8(name) else {
        return ptr::null();
    };
    let mut names = cuguard_sync::lock(&NAMES);
    // Several versions of a function have one name for `cuGetProcAddress`.
    let known = (0..names.len()).find(|&number| {
        names[number] == name && TARGETS[number].load(Relaxed).cast_const() == target
    });
    let number = known.unwrap_or(names.len());
    if number == STUBS {
        return ptr::null();
    }
    if known.is_none() {
        match is_launching(name.as_bytes()) {
            true => {
                LAUNCHES[number].store(true, Relaxed);
                crate::state::work::count_kernels(launches);
            }
            false => crate::report::set_unrecorded(not_recorded),
        }
        TARGETS[number].store(target.cast_mut(), Release);
        names.push(name.to_owned());
    }
    ALL[number] as *const c_void
}

/// How many kernels were launched. Called by a thread that allocates: takes no lock.
fn launches() -> u64 {
    let counted = LAUNCHES.iter().zip(&CALLS);
    let calls = counted.filter(|(launches, _)| launches.load(Relaxed));
    calls.map(|(_, calls)| calls.load(Relaxed)).sum()
}

/// The functions that were called and are not recorded, with the number of calls; by name.
fn not_recorded() -> Vec<(String, u64)> {
    let names = cuguard_sync::lock(&NAMES);
    let mut called: Vec<(String, u64)> = Vec::new();
    for (name, calls) in names.iter().zip(&CALLS) {
        let calls = calls.load(Relaxed);
        match called.iter_mut().find(|(known, _)| known == name) {
            _ if calls == 0 || is_launching(name.as_bytes()) => {}
            Some((_, sum)) => *sum += calls,
            None => called.push((name.clone(), calls)),
        }
    }
    called.sort_unstable();
    called
}

#[cfg(test)]
mod tests {
    use super::{is_creating, is_launching};

    #[test]
    fn launches_are_told_apart_by_name() {
        for name in [
            "cuLaunchKernel",
            "cuLaunchKernelEx_ptsz",
            "cuLaunchCooperativeKernel",
        ] {
            assert!(
                is_launching(name.as_bytes()) && !is_creating(name.as_bytes()),
                "{name}"
            );
        }
        assert!(!is_launching(b"cuGraphLaunch"));
    }

    #[test]
    fn functions_that_create_are_told_apart_by_name() {
        for name in [
            "cuTexObjectCreate",
            "cuGraphicsGLRegisterBuffer",
            "cuMemAllocSomehow",
        ] {
            assert!(is_creating(name.as_bytes()), "{name}");
        }
        for name in [
            "cuMemGetAllocationGranularity",
            "cuGraphicsUnregisterResource",
            "cuLogsRegisterCallback",
            "cuCtxSynchronize",
        ] {
            assert!(!is_creating(name.as_bytes()), "{name}");
        }
    }
}
