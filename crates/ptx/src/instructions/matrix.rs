//! Products of matrices that a warp holds together: `mma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::action::{Action, Execute};
use super::element::{Element, Shape};
use super::form::{Decoded, Form};
use super::load_store::take_space;
use crate::machine::{Destination, LANES, Lanes, Source, Stop, Warp, lanes};
use crate::program::Operand;
use crate::types::Type;

/// All lanes of the warp take part.
pub(super) fn by_all_lanes(
    execute: impl Fn(&mut Warp<'_, '_>) -> Result<(), Stop> + Send + Sync + 'static,
) -> Action {
    let execute: Execute = Box::new(execute);
    Action::Converge {
        mask: Source::Constant(u32::MAX.into()),
        execute: Some(execute),
    }
}

/// The registers of an operand that has several.
pub(super) fn sources(form: &Form<'_>, index: usize, of: Type) -> Decoded<Vec<Source>> {
    let wrong = || form.error(&format!("operand {} has the wrong type", index + 1));
    let elements = form.elements(index)?.iter();
    elements
        .map(|own| form.source_of(own, of).ok_or_else(wrong))
        .collect()
}

pub(super) fn destinations(form: &Form<'_>, index: usize, of: Type) -> Decoded<Vec<Destination>> {
    let wrong = || form.error(&format!("operand {} has the wrong type", index + 1));
    let elements = form.elements(index)?.iter();
    let find = |own| match own {
        &Operand::Register(register) if register.of.bits() != of.bits() => Err(wrong()),
        own => form.destination_of(own).ok_or_else(wrong),
    };
    elements.map(find).collect()
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 d, a, b, c`
pub(super) fn decode_product(form: &mut Form<'_>) -> Decoded<Action> {
    if !form.take("sync") || !form.take("aligned") {
        return Err(form.unsupported());
    }
    let shape = Shape::named(form.take_any()?).ok_or_else(|| form.unsupported())?;
    if !form.take("row") || !form.take("col") {
        return Err(form.unsupported());
    }
    let saturates = form.take("satfinite");
    let (d_type, a_type) = (form.take_type()?, form.take_type()?);
    let (b_type, c_type) = (form.take_type()?, form.take_type()?);
    form.finish(4)?;
    let find = |of: Type| Element::of(of).ok_or_else(|| form.unsupported());
    let (d_of, a_of, b_of, c_of) = (find(d_type)?, find(a_type)?, find(b_type)?, find(c_type)?);
    if !Shape::of_mma(a_type).contains(&shape)
        || a_of.bits() != b_of.bits()
        || d_of.bits() != c_of.bits()
    {
        return Err(form.unsupported());
    }
    // Registers of 32 bits that each lane has.
    let registers = |of: Element, count: u32| count * of.bits() / 32 / LANES as u32;
    let wide = a_of.bits() == 64;
    let (operand_type, result_type) = match wide {
        true => (Type::F64, Type::F64),
        false => (
            Type::B32,
            if d_of.bits() == 32 {
                Type::B32
            } else {
                Type::F16x2
            },
        ),
    };
    let d = destinations(form, 0, result_type)?;
    let (a, b) = (
        sources(form, 1, operand_type)?,
        sources(form, 2, operand_type)?,
    );
    let c = sources(form, 3, result_type)?;
    let [m, n, k] = shape.extents();
    // A register of a double is two of 32 bits.
    let scale = if wide { 2 } else { 1 };
    let counts = [
        a.len() as u32 * scale,
        b.len() as u32 * scale,
        c.len() as u32 * scale,
    ];
    let expected = [
        registers(a_of, m * k),
        registers(b_of, k * n),
        registers(c_of, m * n),
    ];
    if counts != expected || d.len() != c.len() {
        return Err(form.error("an operand has the wrong number of elements"));
    }
    let product = Product {
        shape,
        a_of,
        b_of,
        c_of,
        d_of,
        saturates,
    };
    Ok(by_all_lanes(move |warp| {
        let read = |own: &Vec<Source>| {
            own.iter()
                .map(|own| warp.read::<u64>(*own))
                .collect::<Vec<_>>()
        };
        let (a, b, c) = (read(&a), read(&b), read(&c));
        for (register, values) in product.compute(&a, &b, &c).into_iter().enumerate() {
            warp.write(d[register], values);
        }
        Ok(())
    }))
}

/// What a product is of.
#[derive(Clone, Copy, Debug)]
struct Product {
    shape: Shape,
    a_of: Element,
    b_of: Element,
    c_of: Element,
    d_of: Element,
    saturates: bool,
}

/// The part of a register that is an element.
fn part(register: u64, index: u32, of: Element) -> u64 {
    let bits = of.bits();
    register >> (index * bits) & (u64::MAX >> (64 - bits))
}

impl Product {
    /// The registers of the result. Each group of four lanes has a row of the first matrix, and a column of the second.
    fn compute(&self, a: &[Lanes<u64>], b: &[Lanes<u64>], c: &[Lanes<u64>]) -> Vec<Lanes<u64>> {
        let [m, n, k] = self.shape.extents().map(|own| own as usize);
        // Elements of a register; a lane has as many adjacent ones.
        let packed = (32 / self.a_of.bits()).max(1) as usize;
        let halves = m / 8;
        let mut first = vec![0; m * k];
        for (register, values) in a.iter().enumerate() {
            for (lane, value) in values.iter().enumerate() {
                let row = lane / 4 + 8 * (register % halves);
                let column = lane % 4 * packed + register / halves * 4 * packed;
                for index in 0..packed {
                    first[row * k + column + index] = part(*value, index as u32, self.a_of);
                }
            }
        }
        let mut second = vec![0; n * k];
        for (register, values) in b.iter().enumerate() {
            for (lane, value) in values.iter().enumerate() {
                let row = lane % 4 * packed + register * 4 * packed;
                for index in 0..packed {
                    second[lane / 4 * k + row + index] = part(*value, index as u32, self.b_of);
                }
            }
        }
        let packed = (32 / self.c_of.bits()).max(1) as usize;
        let mut result = vec![[0; LANES]; c.len()];
        for (register, values) in c.iter().enumerate() {
            for (lane, value) in values.iter().enumerate() {
                for index in 0..packed {
                    let element = register * packed + index;
                    let row = lane / 4 + 8 * (element / 2);
                    let column = lane % 4 * 2 + element % 2;
                    let pairs = first[row * k..][..k].iter().zip(&second[column * k..][..k]);
                    let pairs = pairs.map(|(a, b)| (*a, *b));
                    let addend = part(*value, index as u32, self.c_of);
                    let own = self.d_of.sum_of_products(
                        (self.a_of, self.b_of, self.c_of),
                        pairs,
                        addend,
                        self.saturates,
                    );
                    result[register][lane] |= own << (index as u32 * self.d_of.bits() % 64);
                }
            }
        }
        result
    }
}

/// `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {…}, [address]`, and `stmatrix`.
pub(super) fn decode_access(form: &mut Form<'_>) -> Decoded<Action> {
    let is_load = form.root() == "ldmatrix";
    if !form.take("sync") || !form.take("aligned") || !form.take("m8n8") {
        return Err(form.unsupported());
    }
    let count = form
        .take_one(&[("x1", 1), ("x2", 2), ("x4", 4)])
        .ok_or_else(|| form.unsupported())?;
    let is_transposed = form.take("trans");
    let space = take_space(form);
    if form.take_type()? != Type::B16 {
        return Err(form.unsupported());
    }
    form.finish(2)?;
    let registers = if is_load { 0 } else { 1 };
    let address = form.address(1 - registers, space)?;
    if form.elements(registers)?.len() != count {
        return Err(form.error("an operand has the wrong number of elements"));
    }
    // Where each half of a lane's register is: row and column.
    let place = move |lane: usize, half: usize| match is_transposed {
        true => (lane % 4 * 2 + half, lane / 4),
        false => (lane / 4, lane % 4 * 2 + half),
    };
    // Each of the first lanes has the address of a row.
    let aligned_rows = move |warp: &Warp<'_, '_>| {
        let rows = warp.addresses(&address);
        let used = lanes(|lane| if lane < 8 * count { rows[lane] } else { 0 });
        warp.check_aligned(&used, 16).map(|()| rows)
    };
    if is_load {
        let d = destinations(form, 0, Type::B32)?;
        return Ok(by_all_lanes(move |warp| {
            let rows = aligned_rows(warp)?;
            for (matrix, d) in d.iter().enumerate() {
                let mut values = [0u32; LANES];
                for lane in warp.active() {
                    for half in 0..2 {
                        let (row, column) = place(lane, half);
                        let at = rows[8 * matrix + row].wrapping_add(2 * column as u64);
                        let own: u16 = warp.load_lane(address.space, address.hint, lane, at)?;
                        values[lane] |= u32::from(own) << (16 * half);
                    }
                }
                warp.write(*d, values);
            }
            Ok(())
        }));
    }
    let a = sources(form, 1, Type::B32)?;
    Ok(by_all_lanes(move |warp| {
        let rows = aligned_rows(warp)?;
        for (matrix, source) in a.iter().enumerate() {
            let values: Lanes<u32> = warp.read(*source);
            for lane in warp.active() {
                for half in 0..2 {
                    let (row, column) = place(lane, half);
                    let at = rows[8 * matrix + row].wrapping_add(2 * column as u64);
                    let own = (values[lane] >> (16 * half)) as u16;
                    warp.store_lane(address.space, address.hint, lane, at, own)?;
                }
            }
        }
        Ok(())
    }))
}

/// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`
pub(super) fn decode_transpose(form: &mut Form<'_>) -> Decoded<Action> {
    let is_right = ["sync", "aligned", "m8n8", "trans"]
        .into_iter()
        .all(|name| form.take(name));
    if !is_right || form.take_type()? != Type::B16 {
        return Err(form.unsupported());
    }
    form.finish(2)?;
    let (d, a) = (form.destination(0, Type::B32)?, form.source(1, Type::B32)?);
    Ok(by_all_lanes(move |warp| {
        let values: Lanes<u32> = warp.read(a);
        let element = |row: usize, column: usize| {
            values[4 * row + column / 2] >> (16 * (column % 2)) & 0xFFFF
        };
        let own = lanes(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            element(column, row) | element(column + 1, row) << 16
        });
        warp.write(d, own);
        Ok(())
    }))
}
