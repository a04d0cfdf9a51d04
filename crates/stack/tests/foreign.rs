//! Frames that no rule covers or that are unloaded: libraries, code generated at run time, other stacks, signals,
//! and assembly.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
))]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{By, check, rules};
use cuguard_stack::{capture_frames, locate};
use cuguard_testing::{Requirement, not_run};

thread_local! {
    static WANTED: Cell<By> = const { Cell::new(By::Either) };
    static FOUND: Cell<usize> = const { Cell::new(0) };
}

/// What all foreign code calls.
extern "C" fn called_back() -> c_int {
    FOUND.set(check(WANTED.get()));
    1
}

/// Runs a function that calls back, and returns how many frames there were.
fn frames_within(by: By, run: impl FnOnce()) -> usize {
    WANTED.set(by);
    FOUND.set(0);
    run();
    FOUND.get()
}

type Entry = unsafe extern "C" fn(extern "C" fn() -> c_int) -> c_int;

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// A library whose function has a frame of this size; `None` without a compiler.
    fn library(&self, name: &str, size: usize, flags: &[&str]) -> Option<CString> {
        let (source, library) = (self.0.join(format!("{name}.c")), self.0.join(name));
        let text = format!(
            "int enter(int (*f)(void)) {{ volatile char room[{size}]; room[0] = 1;\n\
             int got = f(); return got + room[0]; }}\n"
        );
        std::fs::write(&source, text).expect("a source");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let done = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-fomit-frame-pointer"])
            .args(flags)
            .args([Path::new("-o"), &library, &source])
            .status();
        let path = library.to_str().expect("a plain path");
        matches!(done, Ok(status) if status.success()).then(|| CString::new(path).expect("a path"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Loads a library, calls its function, and unloads it. Returns the function's address.
#[inline(never)]
fn load_and_call(library: &CStr, by: By) -> Option<usize> {
    // SAFETY: the library's function has this type, and is not used after the library is unloaded.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        if handle.is_null() {
            return None;
        }
        let symbol = libc::dlsym(handle, c"enter".as_ptr());
        let enter = std::mem::transmute::<*mut c_void, Entry>(symbol);
        for _ in 0..2 {
            let found = frames_within(by, || assert_eq!(enter(called_back), 2));
            assert!(found > 4);
        }
        assert_eq!(libc::dlclose(handle), 0);
        Some(symbol as usize)
    }
}

#[test]
fn libraries_that_are_loaded_at_the_same_address() {
    let folder = Folder::new("cuguard-stack-libraries");
    // The same code but for the size, so that the calls are at the same address too.
    let Some(small) = folder.library("small", 24, &[]) else {
        return not_run(Requirement::CCompiler, "");
    };
    let large = folder.library("large", 88, &[]).expect("a library");
    let mut before = None;
    let mut reused = 0;
    for round in 0..100 {
        let library = if round % 3 == 0 { &large } else { &small };
        let Some(address) = load_and_call(library, rules()) else {
            return not_run(Requirement::DynamicLoader, "");
        };
        reused += usize::from(before.replace(address) == Some(address));
    }
    assert!(reused > 10, "the libraries never lay at the same place");
}

thread_local! {
    static NUMBERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the frames of the stack that are numbers.
extern "C" fn keep_numbered() -> c_int {
    let mut frames = [0; 64];
    let count = capture_frames(&mut frames);
    NUMBERED.with_borrow_mut(|kept| {
        *kept = frames[..count].to_vec();
        kept.retain(|frame| locate(*frame).is_some());
    });
    1
}

/// The frame of a library's function, and the address of that: loads it, calls it and unloads it.
fn frame_of(library: &CStr) -> Option<(usize, usize)> {
    // SAFETY: as in `load_and_call`.
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        if handle.is_null() {
            return None;
        }
        let symbol = libc::dlsym(handle, c"enter".as_ptr());
        let enter = std::mem::transmute::<*mut c_void, Entry>(symbol);
        assert_eq!(enter(keep_numbered), 2);
        assert_eq!(libc::dlclose(handle), 0);
        let frames = NUMBERED.take();
        assert_eq!(frames.len(), 1, "{frames:x?}");
        Some((frames[0], symbol as usize))
    }
}

/// A frame stands for the file and the offset, wherever it is loaded and whatever was loaded there before.
#[test]
fn frames_of_libraries_that_are_unloaded() {
    if rules() != By::Rules {
        return not_run(Requirement::UnwindRules, "");
    }
    let folder = Folder::new("cuguard-stack-unloaded");
    let Some(small) = folder.library("small", 24, &[]) else {
        return not_run(Requirement::CCompiler, "");
    };
    let bare = folder.library("bare", 24, &["-Wl,--build-id=none"]);
    let bare = bare.expect("a library");
    let Some((first, first_address)) = frame_of(&small) else {
        return not_run(Requirement::DynamicLoader, "");
    };
    let other = frame_of(&bare).expect("a library");
    assert_ne!(first, other.0);
    assert_eq!(frame_of(&small).expect("a library").0, first);
    assert_eq!(frame_of(&bare).expect("a library").0, other.0);
    // Somewhere else: what is mapped where it was keeps it from there.
    let page = std::ptr::with_exposed_provenance_mut(first_address & !4095);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces no mapping.
    let mapped = unsafe { libc::mmap(page, 4096, libc::PROT_NONE, flags, -1, 0) };
    let (again, address) = frame_of(&small).expect("a library");
    assert_eq!(again, first);
    // Another test of this process may have loaded a library there.
    if mapped == page {
        assert_ne!(address, first_address);
        // SAFETY: mapped above, and not in use.
        unsafe { libc::munmap(mapped, 4096) };
    }
    // Files that were written anew: with a build id of their own, and without one.
    for (name, flags, before) in [
        ("small", &[][..], first),
        ("bare", &["-Wl,--build-id=none"][..], other.0),
    ] {
        let anew = folder.library(name, 4000, flags).expect("a library");
        let (frame, _) = frame_of(&anew).expect("a library");
        assert_ne!(frame, before, "{name}");
        for (frame, same) in [(frame, true), (before, name == "small")] {
            let (module, offset) = locate(frame).expect("a module");
            assert!(module.path.ends_with(name) && offset < 0x10000);
            // Modules with a build id are distinguished by it.
            assert_eq!(module.is_same_file(), same, "{name}");
        }
    }
}

#[test]
fn libraries_on_many_threads() {
    let folder = Folder::new("cuguard-stack-threads");
    let sizes = [24, 40, 56, 72, 88, 104];
    let libraries = sizes.map(|size| folder.library(&format!("size{size}"), size, &[]));
    let Some(first) = &libraries[0] else {
        return not_run(Requirement::CCompiler, "");
    };
    if load_and_call(first, rules()).is_none() {
        return not_run(Requirement::DynamicLoader, "");
    }
    std::thread::scope(|scope| {
        for (thread, library) in libraries.iter().enumerate() {
            scope.spawn(move || {
                for _ in 0..40 + thread {
                    // The rules of a library may be discarded while another one is unloaded, but they
                    // are computed again.
                    load_and_call(library.as_ref().expect("a library"), rules());
                }
            });
        }
    });
}

#[test]
fn a_library_without_unwind_information() {
    let folder = Folder::new("cuguard-stack-bare");
    let flags = [
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-fno-exceptions",
    ];
    let Some(bare) = folder.library("bare", 24, &flags) else {
        return not_run(Requirement::CCompiler, "");
    };
    // SAFETY: as in `load_and_call`.
    unsafe {
        let handle = libc::dlopen(bare.as_ptr(), libc::RTLD_NOW);
        if handle.is_null() {
            return not_run(Requirement::DynamicLoader, "");
        }
        let symbol = libc::dlsym(handle, c"enter".as_ptr());
        let enter = std::mem::transmute::<*mut c_void, Entry>(symbol);
        // The unwinder stops there: that code is the last frame.
        assert!(frames_within(By::Either, || assert_eq!(enter(called_back), 2)) >= 3);
        libc::dlclose(handle);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_made_at_run_time() {
    // sub rsp, 8; call rdi; add rsp, 8; ret
    const CODE: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3];
    // SAFETY: the code is a function of this type.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return not_run(Requirement::Stacks, "no code at run time");
        }
        std::ptr::copy_nonoverlapping(CODE.as_ptr(), page.cast(), CODE.len());
        let enter = std::mem::transmute::<*mut c_void, Entry>(page);
        for _ in 0..3 {
            assert!(frames_within(By::Backtrace, || assert_eq!(enter(called_back), 1)) >= 3);
        }
        libc::munmap(page, 4096);
    }
}

extern "C" fn on_another_stack() {
    called_back();
}

#[test]
fn another_stack() {
    let mut stack = vec![0u8; 256 << 10];
    // SAFETY: both contexts live until the switch back, which happens when the function ends.
    let found = frames_within(By::Backtrace, || unsafe {
        let mut here: libc::ucontext_t = std::mem::zeroed();
        let mut there: libc::ucontext_t = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut there), 0);
        there.uc_stack.ss_sp = stack.as_mut_ptr().cast();
        there.uc_stack.ss_size = stack.len();
        there.uc_link = &mut here;
        libc::makecontext(&mut there, on_another_stack, 0);
        assert_eq!(libc::swapcontext(&mut here, &there), 0);
    });
    assert!(found >= 3);
}

extern "C" fn on_signal(_: c_int) {
    called_back();
}

fn with_handler(signal: c_int, flags: c_int) {
    // SAFETY: the handler is a function of this type, and the signal is raised here alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(c_int) as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::raise(signal), 0);
    }
}

#[test]
fn a_signal_on_the_same_stack() {
    let found = frames_within(By::Backtrace, || with_handler(libc::SIGUSR1, 0));
    assert!(found > 4);
}

#[test]
fn a_signal_on_its_own_stack() {
    let mut stack = vec![0u8; 256 << 10];
    // SAFETY: the thread ends the use of the stack before it is freed.
    let found = frames_within(By::Backtrace, || unsafe {
        let mut new: libc::stack_t = std::mem::zeroed();
        let mut old: libc::stack_t = std::mem::zeroed();
        (new.ss_sp, new.ss_size) = (stack.as_mut_ptr().cast(), stack.len());
        assert_eq!(libc::sigaltstack(&new, &mut old), 0);
        with_handler(libc::SIGUSR2, libc::SA_ONSTACK);
        assert_eq!(libc::sigaltstack(&old, std::ptr::null_mut()), 0);
    });
    assert!(found > 4);
}

#[cfg(target_arch = "x86_64")]
mod assembly {
    use super::*;

    // The frame pointer as a plain register: a walk by frame pointers would end here.
    std::arch::global_asm!(
        ".globl cuguard_stack_rbp",
        "cuguard_stack_rbp:",
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbx, -16",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -24",
        "sub rsp, 40",
        ".cfi_adjust_cfa_offset 40",
        "mov ebp, 0x1234567",
        "call rdi",
        "add rsp, 40",
        ".cfi_adjust_cfa_offset -40",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    );

    // The CFA relative to a register that rules do not support.
    std::arch::global_asm!(
        ".globl cuguard_stack_rbx",
        "cuguard_stack_rbx:",
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbx, -16",
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        "sub rsp, 64",
        "call rdi",
        "mov rsp, rbx",
        ".cfi_def_cfa_register rsp",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    );

    // The CFA by an expression: what rbp points to, less 8, holds it.
    std::arch::global_asm!(
        ".globl cuguard_stack_expression",
        "cuguard_stack_expression:",
        ".cfi_startproc",
        "lea r10, [rsp + 8]",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        "push r10",
        // DW_CFA_def_cfa_expression, 3 bytes: DW_OP_breg6 -8, DW_OP_deref
        ".cfi_escape 0x0f, 3, 0x76, 0x78, 0x06",
        "sub rsp, 56",
        "call rdi",
        "add rsp, 64",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );

    unsafe extern "C" {
        fn cuguard_stack_rbp(f: extern "C" fn() -> c_int) -> c_int;
        fn cuguard_stack_rbx(f: extern "C" fn() -> c_int) -> c_int;
        fn cuguard_stack_expression(f: extern "C" fn() -> c_int) -> c_int;
    }

    #[test]
    fn the_frame_pointer_as_a_plain_register() {
        // SAFETY: it calls its argument, and follows the calling convention.
        let run = || assert_eq!(unsafe { cuguard_stack_rbp(called_back) }, 1);
        assert!(frames_within(rules(), run) > 4);
    }

    #[test]
    fn a_base_that_no_rule_knows() {
        // SAFETY: as above.
        let run = || assert_eq!(unsafe { cuguard_stack_rbx(called_back) }, 1);
        assert!(frames_within(By::Backtrace, run) > 4);
    }

    #[test]
    fn an_expression() {
        // SAFETY: as above.
        let run = || assert_eq!(unsafe { cuguard_stack_expression(called_back) }, 1);
        assert!(frames_within(By::Backtrace, run) > 4);
    }
}
