//! Whether the result of a kernel may depend on the order of its blocks.

use std::collections::HashMap;

use crate::program::{Bank, Function, Instruction, Operand};

/// Whether blocks may tell each other something in this function: by atomic operations whose result matters, by accesses
/// that are ordered or volatile, or through the device's runtime. Races of plain accesses are not considered.
pub(super) fn communicates(function: &Function) -> bool {
    let Some(body) = &function.body else {
        // The order of output and the addresses of the heap.
        return true;
    };
    let mut uses: HashMap<(Bank, u32), u32> = HashMap::new();
    for instruction in body {
        for operand in &instruction.operands {
            count(operand, &mut uses);
        }
    }
    body.iter().any(|own| may_communicate(own, &uses))
}

fn count(operand: &Operand, uses: &mut HashMap<(Bank, u32), u32>) {
    match operand {
        Operand::Register(own) | Operand::Offset(own, _) | Operand::Not(own) => {
            *uses.entry((own.bank, own.slot)).or_default() += 1;
        }
        Operand::Vector(inner) | Operand::List(inner) | Operand::Address(inner) => {
            inner.iter().for_each(|own| count(own, uses));
        }
        Operand::Pair(first, second) => {
            count(first, uses);
            count(second, uses);
        }
        _ => {}
    }
}

fn may_communicate(instruction: &Instruction, uses: &HashMap<(Bank, u32), u32>) -> bool {
    let names: Vec<&str> = instruction.opcode.split('.').collect();
    let has = |any: &[&str]| names.iter().any(|own| any.contains(own));
    if names.iter().any(|own| own.starts_with("shared")) {
        return false;
    }
    match names[0] {
        "ld" if has(&["cg", "cv"]) => true,
        "ld" | "st" => has(&["volatile", "relaxed", "acquire", "release", "mmio"]),
        "atom" | "red" => {
            // Sums of integers and the like are the same in any order, if nothing sees what was there before.
            let is_seen = names[0] == "atom"
                && !matches!(&instruction.operands[..], [Operand::Register(own), ..]
                    if uses.get(&(own.bank, own.slot)) == Some(&1));
            let is_float = names.last().is_some_and(|of| of.contains('f'));
            is_seen || is_float || !has(&["add", "min", "max", "and", "or", "xor"])
        }
        "membar" | "fence" => true,
        _ => false,
    }
}
