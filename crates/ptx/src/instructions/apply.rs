//! Instructions that apply a function to the values of each lane.

use super::action::{Action, Execute};
use super::form::{Decoded, Form};
use crate::machine::{Destination, Source, Value, Warp, lanes};
use crate::types::Type;

/// An action that cannot fail.
pub(super) fn action(execute: impl Fn(&mut Warp<'_, '_>) + Send + Sync + 'static) -> Action {
    let execute: Execute = Box::new(move |warp| {
        execute(warp);
        Ok(())
    });
    Action::Execute(execute)
}

/// `d = f(a)`
pub(super) fn unary_to<A: Value, D: Value>(
    d: Destination,
    a: Source,
    f: impl Fn(A) -> D + Copy + Send + Sync + 'static,
) -> Action {
    action(move |warp| {
        let a = &*warp.row(a);
        let values = lanes(|lane| f(A::from_row(a[lane])));
        warp.write(d, values);
    })
}

/// `d = f(a, b)`
pub(super) fn binary_to<A: Value, B: Value, D: Value>(
    d: Destination,
    [a, b]: [Source; 2],
    f: impl Fn(A, B) -> D + Copy + Send + Sync + 'static,
) -> Action {
    action(move |warp| {
        let a = &*warp.row(a);
        let b = &*warp.row(b);
        let values = lanes(|lane| f(A::from_row(a[lane]), B::from_row(b[lane])));
        warp.write(d, values);
    })
}

/// `d = f(a, b, c)`
pub(super) fn ternary_to<A: Value, B: Value, C: Value, D: Value>(
    d: Destination,
    [a, b, c]: [Source; 3],
    f: impl Fn(A, B, C) -> D + Copy + Send + Sync + 'static,
) -> Action {
    action(move |warp| {
        let a = &*warp.row(a);
        let b = &*warp.row(b);
        let c = &*warp.row(c);
        let values = lanes(|lane| {
            f(
                A::from_row(a[lane]),
                B::from_row(b[lane]),
                C::from_row(c[lane]),
            )
        });
        warp.write(d, values);
    })
}

/// `d = f(a)`, all of one type.
pub(super) fn unary<T: Value>(
    form: &Form<'_>,
    of: Type,
    f: impl Fn(T) -> T + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    form.finish(2)?;
    Ok(unary_to(form.destination(0, of)?, form.source(1, of)?, f))
}

/// `d = f(a, b)`, all of one type.
pub(super) fn binary<T: Value>(
    form: &Form<'_>,
    of: Type,
    f: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    form.finish(3)?;
    let sources = [form.source(1, of)?, form.source(2, of)?];
    Ok(binary_to(form.destination(0, of)?, sources, f))
}

/// `d = f(a, b, c)`, all of one type.
pub(super) fn ternary<T: Value>(
    form: &Form<'_>,
    of: Type,
    f: impl Fn(T, T, T) -> T + Copy + Send + Sync + 'static,
) -> Decoded<Action> {
    form.finish(4)?;
    let sources = [
        form.source(1, of)?,
        form.source(2, of)?,
        form.source(3, of)?,
    ];
    Ok(ternary_to(form.destination(0, of)?, sources, f))
}
