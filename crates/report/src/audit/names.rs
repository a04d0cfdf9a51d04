//! A frame by its names; and names of functions without what a reader does not need: types that they return, parameters, long
//! arguments of templates.

use crate::cpp_names::{ANONYMOUS, without_return_type};

/// A frame by its names, for [`FrameClass::of`](super::FrameClass::of).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameNames<'a> {
    /// The function, where it is known.
    pub function: Option<&'a str>,
    /// The source file, where it is known.
    pub file: Option<&'a str>,
    /// The path of the program or library; empty where it is not known.
    pub module: &'a str,
    /// Whether it is a frame of an interpreter: then it has a file and no module.
    pub is_foreign: bool,
}

/// The name of a C++ function without the type that it returns, and without what comes before the type of a method in Rust, as in
/// `<cudarc::driver::CudaSlice<T> as core::ops::drop::Drop>::drop`.
pub(super) fn bare(name: &str) -> &str {
    without_return_type(name).trim_start_matches(['<', '&'])
}

/// The longest arguments of a template that are written out.
const TEMPLATE: usize = 24;

/// The name of a function without its parameters, and a function of C++ without the type that it returns and long arguments of
/// templates: `at::_ops::mm::call`, `gpu_kernel<…>`.
pub(super) fn short_name(name: &str) -> String {
    let name = bare(name);
    let mut short = String::new();
    // Where the outermost of the open brackets is.
    let (mut open, mut depth) = (0, 0_usize);
    for (index, character) in name.char_indices() {
        let is_operator = short.ends_with("operator") || short.ends_with("operator<");
        match character {
            '(' if depth == 0 && index > 0 && !name[index..].starts_with(ANONYMOUS) => break,
            '<' if !is_operator => {
                if depth == 0 {
                    open = index;
                }
                depth += 1;
            }
            '>' if depth == 1 => {
                depth = 0;
                match index - open > TEMPLATE {
                    true => short.push_str("<…"),
                    false => short.push_str(&name[open..index]),
                }
            }
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            short.push(character);
        }
    }
    if depth > 0 {
        short.push_str(&name[open..]);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::short_name;

    #[test]
    fn short_names() {
        for (name, expected) in [
            (
                "at::_ops::mm::call(at::Tensor const&)",
                "at::_ops::mm::call",
            ),
            ("void k<float, 4>(float*)", "k<float, 4>"),
            (
                "void at::gpu_kernel<float, at::func_wrapper_t<float, int> >(int)",
                "at::gpu_kernel<…>",
            ),
            (
                "at::(anonymous namespace)::create_out(c10::ArrayRef<long>)",
                "at::(anonymous namespace)::create_out",
            ),
            (
                "std::vector<int>::operator<(int)",
                "std::vector<int>::operator<",
            ),
            ("Linear.forward", "Linear.forward"),
            ("a<b", "a<b"),
            ("", ""),
        ] {
            assert_eq!(short_name(name), expected, "{name}");
        }
    }
}
