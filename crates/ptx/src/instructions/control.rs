//! Control flow: `bra`, `brx`, `call`, `ret`, `exit`, `trap`, `bar`.

use super::action::{Action, Argument, Barrier, Call, Reduction, ReductionResult, Target};
use super::form::{Decoded, Form};
use super::runtime::function as runtime_function;
use crate::machine::{Fault, FaultKind, Source};
use crate::program::{Operand, Parameter, Place, Symbol};
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.root() {
        "bra" => branch(form),
        "brx" => branch_indexed(form),
        "call" => call(form),
        "ret" => {
            form.take("uni");
            form.finish(0)?;
            // A kernel's return ends the thread.
            Ok(if form.function.is_entry {
                Action::Exit
            } else {
                Action::Return
            })
        }
        "exit" => {
            form.finish(0)?;
            Ok(Action::Exit)
        }
        "trap" => faulting(form, FaultKind::Trap),
        "brkpt" => faulting(form, FaultKind::Breakpoint),
        "bar" | "barrier" => barrier(form),
        _ => Err(form.unsupported()),
    }
}

fn faulting(form: &Form<'_>, kind: FaultKind) -> Decoded<Action> {
    form.finish(0)?;
    Ok(Action::Execute(Box::new(move |warp| {
        Err(Fault::first(warp.mask, kind.clone()))
    })))
}

fn branch(form: &mut Form<'_>) -> Decoded<Action> {
    form.take("uni");
    form.finish(1)?;
    match form.operand(0)? {
        Operand::Label(at) => Ok(Action::Branch(*at)),
        _ => Err(form.error("the target is not a label")),
    }
}

fn branch_indexed(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("idx") {
        return Err(form.unsupported());
    }
    form.take("uni");
    form.finish(2)?;
    let Operand::Targets(list) = form.operand(1)? else {
        return Err(form.error("the targets are not those of .branchtargets"));
    };
    Ok(Action::BranchIndexed {
        index: form.source(0, Type::U32)?,
        targets: form.function.branch_targets[*list].clone(),
        start: 0,
    })
}

/// `call (returns), target, (params), prototype;` where all but the target may be missing.
fn call(form: &mut Form<'_>) -> Decoded<Action> {
    form.take("uni");
    form.finish(form.len())?;
    let mut operands = form.instruction.operands.iter().peekable();
    let mut returns = Vec::new();
    if let Some(Operand::List(list)) = operands.peek() {
        operands.next();
        for own in list {
            returns.push(place(own).ok_or_else(|| form.error("a return value is no variable"))?);
        }
    }
    let target = match operands.next() {
        Some(Operand::Symbol(Symbol::Function(index), 0)) => Target::Function(*index),
        Some(operand @ Operand::Register(_)) => {
            let source = form.source_of(operand, Type::U64);
            Target::Pointer(source.ok_or_else(|| form.error("the target is no function"))?)
        }
        _ => return Err(form.error("the target is no function")),
    };
    let mut params = Vec::new();
    let list = match operands.next() {
        Some(Operand::List(list)) => &list[..],
        Some(constant @ Operand::Integer(_)) => std::slice::from_ref(constant),
        _ => &[],
    };
    for own in list {
        params.push(argument(own).ok_or_else(|| form.error("a parameter is no value"))?);
    }
    let call = Call {
        target,
        returns,
        params,
    };
    check_call(form, &call)?;
    Ok(Action::Call(Box::new(call)))
}

fn check_call(form: &Form<'_>, call: &Call) -> Decoded<()> {
    let Target::Function(index) = call.target else {
        return Ok(());
    };
    let callee = &form.program.functions[index];
    if callee.body.is_none() && runtime_function(callee).is_none() {
        return Err(form.error(&format!("'{}' is not defined", callee.name)));
    }
    if callee.is_entry {
        return Err(form.error(&format!("'{}' is a kernel", callee.name)));
    }
    let places =
        |of: &[Parameter]| -> Vec<_> { of.iter().map(|own| (own.place, own.size)).collect() };
    if !call.fits(&places(&callee.returns), &places(&callee.params)) {
        let message = format!("'{}' has other parameters", callee.name);
        return Err(form.error(&message));
    }
    Ok(())
}

/// Where a value is, and its bytes.
fn place(operand: &Operand) -> Option<(Place, u32)> {
    match operand {
        Operand::Register(register) => Some((Place::Register(*register), register.of.bytes())),
        Operand::Symbol(Symbol::Frame(offset, size), 0) => Some((Place::Frame(*offset), *size)),
        _ => None,
    }
}

fn argument(operand: &Operand) -> Option<(Argument, u32)> {
    let constant = |bits| Some((Argument::Constant(bits), 8));
    match operand {
        Operand::Integer(value) => constant(value.bits),
        Operand::Single(bits) => constant((*bits).into()),
        Operand::Double(bits) => constant(*bits),
        _ => place(operand).map(|(place, size)| (Argument::Place(place), size)),
    }
}

/// `bar.sync`, `bar.arrive`, `bar.red`, `barrier.…`; `bar.warp.sync` and `barrier.cluster`.
fn barrier(form: &mut Form<'_>) -> Decoded<Action> {
    if form.take("warp") {
        if !form.take("sync") {
            return Err(form.unsupported());
        }
        form.finish(1)?;
        return Ok(Action::Converge {
            mask: form.source(0, Type::B32)?,
            execute: None,
        });
    }
    if form.take("cluster") {
        return cluster_barrier(form);
    }
    form.take("cta");
    let kind = form.take_any()?;
    match kind {
        "sync" | "arrive" => {
            form.take("aligned");
            form.finish(form.len().clamp(1, 2))?;
            let mut threads = None;
            if form.len() == 2 {
                threads = Some(form.source(1, Type::U32)?);
            }
            let number = form.source(0, Type::U32)?;
            let waits = kind == "sync";
            if !waits && threads.is_none() {
                return Err(form.error("the number of threads is missing"));
            }
            Ok(Action::Barrier(Box::new(Barrier {
                number,
                threads,
                waits,
                reduction: None,
            })))
        }
        "red" => reduction(form),
        _ => Err(form.unsupported()),
    }
}

fn reduction(form: &mut Form<'_>) -> Decoded<Action> {
    let operation = form.take_any()?;
    form.take("aligned");
    let of = form.take_type()?;
    form.finish(form.len().clamp(3, 4))?;
    let last = form.len() - 1;
    let result = match (operation, of) {
        ("popc", Type::U32) => ReductionResult::Count(form.destination(0, of)?),
        ("and", Type::Pred) => ReductionResult::All(form.predicate_destination(0)?),
        ("or", Type::Pred) => ReductionResult::Any(form.predicate_destination(0)?),
        _ => return Err(form.unsupported()),
    };
    let threads: Option<Source> = match last {
        3 => Some(form.source(2, Type::U32)?),
        _ => None,
    };
    Ok(Action::Barrier(Box::new(Barrier {
        number: form.source(1, Type::U32)?,
        threads,
        waits: true,
        reduction: Some(Reduction {
            of: form.predicate(last)?,
            result,
        }),
    })))
}

fn cluster_barrier(form: &mut Form<'_>) -> Decoded<Action> {
    let kind = form.take_any()?;
    form.take_one(&[("release", ()), ("relaxed", ()), ("acquire", ())]);
    form.take("aligned");
    form.finish(0)?;
    match kind {
        "arrive" => Ok(Action::ClusterArrive),
        "wait" => Ok(Action::ClusterWait),
        _ => Err(form.unsupported()),
    }
}
