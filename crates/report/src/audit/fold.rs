//! Which frames of a stack trace are shown: those of the program, and of the others in one line how many there are.

use super::class::{Class, class, library, origin};
use super::names::short_name;
use crate::phrase::{count, list};
use crate::symbols::Frame;

/// How many libraries are named.
const NAMED: usize = 3;

/// Marks the frames that are shown, by `in_app`: those of the program; without any, the one that the call site is named after.
pub(super) fn mark(frames: &mut [Frame]) {
    let is_user = |frame: &Frame| class(frame) == Class::User;
    let only = match frames.iter().any(is_user) {
        true => None,
        false => Some(origin(frames).unwrap_or(0)),
    };
    for (index, frame) in frames.iter_mut().enumerate() {
        frame.in_app = only.map_or_else(|| is_user(frame), |only| index == only);
    }
}

/// What is not shown: `… 22 frames of PyTorch and CUDA`, or where there is nothing else, the function of CUDA that was called.
pub(super) fn hidden(frames: &[Frame]) -> Option<String> {
    let hidden: Vec<&Frame> = frames.iter().filter(|frame| !frame.in_app).collect();
    let mut libraries: Vec<&str> = Vec::new();
    for frame in &hidden {
        // Of the runtime of a language nothing is said: whoever reads knows how a program calls.
        if let Some(library) = library(frame)
            && !libraries.contains(&library)
        {
            libraries.push(library);
        }
    }
    // The outermost, which the program called.
    let called = hidden.iter().rev().find_map(|frame| {
        let function = frame.symbol.function.as_deref()?;
        let is_driver = class(frame) == Class::Driver && function.starts_with("cu");
        is_driver.then(|| short_name(function))
    });
    match (libraries.as_slice(), called) {
        (["CUDA"], Some(called)) => Some(format!("… {called}")),
        ([], _) => {
            let frames = (!hidden.is_empty()).then(|| count(hidden.len() as u64, "more frame"));
            frames.map(|frames| format!("… {frames}"))
        }
        // One frame is named.
        ([library], None) if hidden.len() == 1 => {
            Some(format!("… {} ({library})", short_name(&hidden[0].name())))
        }
        ([library], _) => {
            let frames = count(hidden.len() as u64, &format!("{library} frame"));
            Some(format!("… {frames}"))
        }
        (libraries, _) => {
            let frames = count(hidden.len() as u64, "frame");
            // The outermost first, as the program called it.
            let mut named: Vec<&str> = libraries.iter().rev().take(NAMED).copied().collect();
            if libraries.len() > NAMED {
                named.push("others");
            }
            Some(format!("… {frames} of {}", list(&named)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{hidden, mark};
    use crate::symbols::Frame;
    use crate::tests_support;

    /// What is shown of a stack, `libfoo.so!name` or names of the program.
    fn folded(stack: &[&str]) -> (Vec<String>, Option<String>) {
        let frame = |function: &&str| {
            let (module, function) = function.split_once('!').unwrap_or(("a.out", function));
            tests_support::frame(module, function)
        };
        let mut frames: Vec<Frame> = stack.iter().map(frame).collect();
        mark(&mut frames);
        let shown = frames.iter().filter(|frame| frame.in_app);
        let shown = shown.map(|frame| frame.symbol.function.clone().unwrap_or_default());
        (shown.collect(), hidden(&frames))
    }

    fn shows(stack: &[&str], shown: &[&str], hidden: Option<&str>) {
        let (found, rest) = folded(stack);
        assert_eq!(
            (found.as_slice(), rest.as_deref()),
            (&shown.map_owned()[..], hidden)
        );
    }

    trait Owned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl Owned for [&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|&text| text.to_owned()).collect()
        }
    }

    #[test]
    fn the_program_is_shown_and_libraries_are_counted() {
        let torch = [
            "libcudart.so.13!cudaMalloc",
            "libc10_cuda.so!c10::alloc(int)",
        ];
        let python = [
            "libtorch_cpu.so!at::empty()",
            "load",
            "libtorch_cpu.so!at::call()",
            "main",
        ];
        let stack = [&torch[..], &python[..]].concat();
        shows(
            &stack,
            &["load", "main"],
            Some("… 4 frames of PyTorch and CUDA"),
        );
        shows(
            &["libtorch_cpu.so!x", "main"],
            &["main"],
            Some("… x (PyTorch)"),
        );
        shows(&["load", "main"], &["load", "main"], None);
    }

    #[test]
    fn of_cuda_alone_the_function_that_was_called_is_named() {
        let stack = ["a.out!libcudart_static", "a.out!cudaMallocManaged", "load"];
        shows(&stack, &["load"], Some("… cudaMallocManaged"));
        shows(
            &["libcudart.so.13!", "load"],
            &["load"],
            Some("… libcudart.so.13+0x0 (CUDA)"),
        );
    }

    #[test]
    fn without_the_program_the_library_that_asked_is_shown() {
        let stack = [
            "libcudart.so.13!cudaMalloc",
            "libcublas.so.13!cublasCreate_v2",
            "libtorch_cpu.so!c10::x",
            "libtorch_cpu.so!at::_ops::mm::call",
        ];
        let rest = Some("… 3 frames of PyTorch and CUDA");
        shows(&stack, &["cublasCreate_v2"], rest);
        shows(&[], &[], None);
    }
}
