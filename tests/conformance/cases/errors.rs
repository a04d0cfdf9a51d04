//! What the driver calls its errors.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;

cases! {"errors":
    names,
    words,
    unknown_code,
}

/// Every code has the name that the driver's header gives it.
fn names(c: &Case) {
    c.require("cuInit", cuInit(0));
    for &code in Code::ALL {
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
    for &code in Code::ALL {
        let mut words = std::ptr::null();
        c.require("cuGetErrorString", cuGetErrorString(code, &mut words));
        c.same(
            format_args!("words for {}", code.0),
            text(words).as_deref(),
            code.text(),
        );
    }
}

/// A number that is no code has neither; the driver writes null and returns INVALID_VALUE.
fn unknown_code(c: &Case) {
    c.require("cuInit", cuInit(0));
    let (mut name, mut words) = (c"x".as_ptr(), c"x".as_ptr());
    c.invalid("name of 12345", cuGetErrorName(Code(12345), &mut name));
    c.yes("it is null", name.is_null());
    c.invalid("words for 12345", cuGetErrorString(Code(12345), &mut words));
    c.yes("they are null", words.is_null());
}
