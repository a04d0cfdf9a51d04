//! Which family an instruction belongs to.

use super::action::Action;
use super::form::{Decoded, Form};
use super::{
    approximate, arithmetic, asynchronous, atomics, bits, carry, control, convert, float,
    fragments, half, hints, load_store, logic, matrix, moves, predicates, small_integers,
    warp_wide,
};
use crate::error::LoadError;
use crate::program::{Function, Instruction, Program};
use crate::types::Type;

/// Decodes an instruction.
pub(crate) fn decode(
    program: &Program,
    function: &Function,
    instruction: &Instruction,
    hint: u8,
) -> Result<Action, LoadError> {
    let mut form = Form::new(program, function, instruction, hint);
    family(&mut form)
}

fn family(form: &mut Form<'_>) -> Decoded<Action> {
    let of = form.last_type();
    if carry::uses_carry(form) {
        return carry::decode(form);
    }
    match form.root() {
        "add" | "min" | "max" if matches!(of, Some(Type::U16x2 | Type::S16x2)) => {
            small_integers::decode(form)
        }
        "add" | "sub" | "mul" | "fma" | "neg" | "abs" | "min" | "max" if half::is_half(of) => {
            half::decode(form)
        }
        "add" | "sub" | "mul" | "fma" | "mad" | "div" | "neg" | "abs" | "min" | "max"
            if matches!(of, Some(Type::F32 | Type::F64)) =>
        {
            float::decode(form)
        }
        "copysign" | "testp" => float::decode(form),
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => {
            approximate::decode(form)
        }
        "add" | "sub" | "mul" | "mad" | "div" | "rem" | "abs" | "neg" | "min" | "max" => {
            arithmetic::decode(form)
        }
        "mul24" | "mad24" | "sad" | "dp4a" | "dp2a" => small_integers::decode(form),
        "and" | "or" | "xor" | "not" | "shl" | "shr" => logic::decode(form),
        "popc" | "clz" | "bfind" | "fns" | "brev" | "bfe" | "bfi" | "bmsk" | "szext" | "lop3"
        | "shf" | "prmt" | "cnot" => bits::decode(form),
        "mov" => moves::decode(form),
        "cvt" => convert::decode(form),
        "setp" | "set" | "selp" | "slct" => predicates::decode(form),
        "cvta" => load_store::decode_cvta(form),
        "ld" | "ldu" => load_store::decode_load(form),
        "st" => load_store::decode_store(form),
        "atom" | "red" => atomics::decode(form),
        "membar" | "fence" => atomics::decode_fence(form),
        "cp" => asynchronous::decode_copy(form),
        "mbarrier" => asynchronous::decode_barrier(form),
        "nanosleep" | "isspacep" | "mapa" | "getctarank" | "createpolicy" | "prefetch"
        | "prefetchu" | "discard" | "applypriority" | "griddepcontrol" | "setmaxnreg"
        | "pmevent" => hints::decode(form),
        "wmma" => fragments::decode(form),
        "mma" => matrix::decode_product(form),
        "ldmatrix" | "stmatrix" => matrix::decode_access(form),
        "movmatrix" => matrix::decode_transpose(form),
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => warp_wide::decode(form),
        "bra" | "brx" | "ret" | "exit" | "call" | "trap" | "brkpt" | "bar" | "barrier" => {
            control::decode(form)
        }
        _ => Err(form.unsupported()),
    }
}
