//! Compiles PTX for execution, and joins texts.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use cuguard_sys::CUresult;

use super::image::{Image, ImageError, Variable};
use super::tokens::{Token, Tokens};

/// Compiles the PTX of an image. Without any, or where it cannot be compiled and a driver would use compiled code, the
/// kernels of the image cannot be executed.
pub(crate) fn compile(mut image: Image) -> Result<Image, ImageError> {
    let Some(text) = image.text.take() else {
        return Ok(image);
    };
    let program = match cuguard_ptx::Module::new(&text) {
        Ok(program) => program,
        Err(_) if image.has_binary => return Ok(image),
        Err(errors) => return Err(error_of(&errors)),
    };
    // Variables within functions have memory too.
    let variables = program.variables().map(|own| Variable {
        name: own.name.to_owned(),
        size: usize::try_from(own.size).unwrap_or(usize::MAX),
        align: usize::try_from(own.align).unwrap_or(1),
        // It has the addresses of others, which are not known yet.
        value: Vec::new(),
        is_const: own.is_constant,
        is_managed: own.is_managed,
    });
    image.variables = variables.collect();
    // Once: each call considers what all kernels use.
    let found: HashMap<String, cuguard_ptx::Kernel<'_>> = program
        .kernels()
        .map(|own| (own.name.to_owned(), own))
        .collect();
    image.kernels.retain_mut(|kernel| {
        let own = kernel.name.to_str().ok().and_then(|name| found.get(name));
        let Some(own) = own else {
            return false;
        };
        kernel.cluster = own.required_cluster;
        // Also what functions use that it calls.
        kernel.shared = kernel.shared.max(own.static_shared as usize);
        kernel.local = kernel.local.max(own.local);
        for (parameter, (offset, size)) in kernel.parameters.iter_mut().zip(&own.parameters) {
            (parameter.offset, parameter.size) = (*offset, *size);
        }
        true
    });
    drop(found);
    image.program = Some(Arc::new(program));
    Ok(image)
}

/// All errors, as the PTX compiler prints them.
fn error_of(errors: &cuguard_ptx::LoadErrors) -> ImageError {
    let mut log = String::new();
    for error in &errors.0 {
        let (line, message) = (error.line(), error.message());
        // A string takes all that is written to it.
        let _ = writeln!(
            log,
            "ptxas application ptx input, line {line}; error   : {message}"
        );
    }
    log.push_str("ptxas fatal   : Ptx assembly aborted due to errors");
    ImageError {
        code: CUresult::INVALID_PTX,
        log,
    }
}

/// The text of both, as one module: what one declares, the other may define. The lines of the first stay the same.
pub(crate) fn join_texts(first: &str, second: &str) -> String {
    format!("{first}\n{}", without_header(second))
}

/// What follows `.version`, `.target` and `.address_size`.
fn without_header(text: &str) -> &str {
    let mut tokens = Tokens::new(text);
    let mut rest = text;
    while let Ok(Some(Token::Directive(".version" | ".target" | ".address_size"))) = tokens.next() {
        // The number, or names with commas between them.
        loop {
            if tokens.next().is_err() {
                return rest;
            }
            if !tokens.take_sign(',').unwrap_or(false) {
                break;
            }
        }
        rest = tokens.rest();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::super::{ptx, read};
    use super::*;

    const HEADER: &str = ".version 8.0\n.target sm_90, debug\n.address_size 64\n";

    #[test]
    fn unsupported_instructions_are_in_the_log() {
        let text = format!("{HEADER}.entry k() {{\nwgmma.fence.sync.aligned;\nret;\n}}");
        let image = read(text.as_bytes()).unwrap();
        let error = compile(image.clone()).unwrap_err();
        assert_eq!(error.code, CUresult::INVALID_PTX);
        assert_eq!(
            error.log,
            "ptxas application ptx input, line 5; error   : wgmma.fence.sync.aligned: not supported\n\
             ptxas fatal   : Ptx assembly aborted due to errors"
        );
        // A driver would not compile it.
        let with_binary = Image {
            has_binary: true,
            ..image
        };
        let compiled = compile(with_binary).unwrap();
        assert!(compiled.program.is_none());
        assert_eq!(compiled.kernels.len(), 1);
    }

    #[test]
    fn places_are_those_of_the_program() {
        let text = format!(
            "{HEADER}.global .u32 a = 7;\n.entry k(.param .u8 x, .param .u64 y) {{ ret; }}\n.entry l() {{ ret; }}"
        );
        let before = ptx::read_image(text.as_bytes()).unwrap();
        let image = compile(before.clone()).unwrap();
        assert_eq!(image.kernels, before.kernels);
        assert!(image.program.is_some() && image.text.is_none());
        assert_eq!(image.variables[0].name, "a");
    }

    /// A variable that only a function names which the kernel calls.
    #[test]
    fn shared_memory_of_functions_counts() {
        let text = format!(
            "{HEADER}.shared .b8 s[5000];\n.func f() {{ .reg .b32 r; mov.u32 r, s; ret; }}\n\
             .entry k() {{ call f, (); ret; }}"
        );
        let image = compile(read(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(image.kernels[0].shared, 5000);
    }

    #[test]
    fn joined_texts_have_one_header() {
        let second = format!("// second\n{HEADER}\n.func f() {{ ret; }}\n");
        let joined = join_texts(&format!("{HEADER}.extern .func f();"), &second);
        assert_eq!(
            joined,
            format!("{HEADER}.extern .func f();\n\n\n.func f() {{ ret; }}\n")
        );
        assert!(cuguard_ptx::Module::new(&joined).is_ok());
    }
}
