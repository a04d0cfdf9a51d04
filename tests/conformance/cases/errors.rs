//! What the driver calls its errors.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;

cases! {"errors":
    names,
    words,
    unknown_code,
}

/// Codes that a driver for CUDA 13.0 does not know.
const AFTER_13_0: [u32; 5] = [47, 227, 917, 918, 919];

/// The codes that the driver knows.
fn known(c: &Case) -> impl Iterator<Item = Code> {
    let mut version = 0;
    c.require("cuDriverGetVersion", cuDriverGetVersion(&mut version));
    let all = Code::ALL.iter().copied();
    all.filter(move |code| version > 13000 || !AFTER_13_0.contains(&code.0))
}

/// Every code has the name that the driver's header gives it.
fn names(c: &Case) {
    c.require("cuInit", cuInit(0));
    for code in known(c) {
        let mut name = std::ptr::null();
        c.require("cuGetErrorName", cuGetErrorName(code, &mut name));
        c.same(
            format_args!("name of {}", code.0),
            text(name).as_deref(),
            code.name(),
        );
    }
}

/// Every code has the driver's words.
fn words(c: &Case) {
    c.require("cuInit", cuInit(0));
    for code in known(c) {
        let mut words = std::ptr::null();
        c.require("cuGetErrorString", cuGetErrorString(code, &mut words));
        c.same(
            format_args!("words for {}", code.0),
            text(words).as_deref(),
            code.text(),
        );
    }
}

/// A number that is not a code has neither; the driver writes null and returns INVALID_VALUE.
fn unknown_code(c: &Case) {
    c.require("cuInit", cuInit(0));
    let (mut name, mut words) = (c"x".as_ptr(), c"x".as_ptr());
    c.invalid("name of 12345", cuGetErrorName(Code(12345), &mut name));
    c.yes("it is null", name.is_null());
    c.invalid("words for 12345", cuGetErrorString(Code(12345), &mut words));
    c.yes("they are null", words.is_null());
}
