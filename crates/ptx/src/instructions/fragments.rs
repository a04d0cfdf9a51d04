//! `wmma`: products of matrices in fragments, whose layout is not defined. Here each lane has adjacent elements, by rows;
//! fragments that are larger than their matrix have it several times.

use super::action::Action;
use super::element::{Element, Shape};
use super::form::{Decoded, Form};
use super::load_store::take_space;
use super::matrix::{by_all_lanes, destinations, sources};
use crate::machine::{LANES, Lanes, Source};
use crate::types::Type;

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    match form.take_any()? {
        "load" => access(form, true),
        "store" => access(form, false),
        "mma" => product(form),
        _ => Err(form.unsupported()),
    }
}

/// The type of a register that has elements.
fn register_type(of: Element) -> Type {
    if of.bits() == 64 {
        Type::F64
    } else {
        Type::B32
    }
}

/// The elements of a register.
fn packed(of: Element) -> usize {
    (32 / of.bits()).max(1) as usize
}

fn part(register: u64, index: usize, of: Element) -> u64 {
    let bits = of.bits();
    register >> (index as u32 * bits) & (u64::MAX >> (64 - bits))
}

fn take_aligned(form: &mut Form<'_>) -> Decoded<()> {
    match form.take("sync") && form.take("aligned") {
        true => Ok(()),
        false => Err(form.unsupported()),
    }
}

/// Whether the rows of a matrix are adjacent in memory, rather than its columns.
fn take_layout(form: &mut Form<'_>) -> Decoded<bool> {
    form.take_one(&[("row", true), ("col", false)])
        .ok_or_else(|| form.unsupported())
}

fn take_shape(form: &mut Form<'_>) -> Decoded<[usize; 3]> {
    let extents = Shape::named(form.take_any()?).map(Shape::extents);
    let known = [
        [16, 16, 16],
        [32, 8, 16],
        [8, 32, 16],
        [16, 16, 8],
        [8, 8, 4],
        [8, 8, 32],
    ];
    let found = extents
        .filter(|own| known.contains(own))
        .ok_or_else(|| form.unsupported())?;
    Ok(found.map(|own| own as usize))
}

/// Fails unless the fragment is a multiple of its matrix.
fn check_fragment(form: &Form<'_>, registers: usize, of: Element, elements: usize) -> Decoded<()> {
    let own = registers * packed(of) * LANES;
    match own > 0 && own.is_multiple_of(elements) {
        true => Ok(()),
        false => Err(form.error("an operand has the wrong number of elements")),
    }
}

/// `wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {…}, [address], stride`, and `wmma.store.d`.
fn access(form: &mut Form<'_>, is_load: bool) -> Decoded<Action> {
    let matrix = form.take_any()?;
    take_aligned(form)?;
    let by_rows = take_layout(form)?;
    let [m, n, k] = take_shape(form)?;
    let space = take_space(form);
    let of = Element::of(form.take_type()?).ok_or_else(|| form.unsupported())?;
    form.finish(form.len().clamp(2, 3))?;
    let (rows, columns) = match (matrix, is_load) {
        ("a", true) => (m, k),
        ("b", true) => (k, n),
        ("c", true) | ("d", false) => (m, n),
        _ => return Err(form.unsupported()),
    };
    if of.bits() < 8 {
        return Err(form.unsupported());
    }
    let fragment = usize::from(!is_load);
    let address = form.address(1 - fragment, space)?;
    check_fragment(form, form.elements(fragment)?.len(), of, rows * columns)?;
    let stride = match form.len() {
        3 => form.source(2, Type::U32)?,
        _ => Source::Constant(if by_rows { columns } else { rows } as u64),
    };
    let bytes = u64::from(of.bits() / 8);
    // A row or column at least, up to what a lane accesses at once.
    let adjacent = if by_rows { columns } else { rows } as u32;
    let align = (adjacent * of.bits() / 8).min(16);
    // Where an element is, in elements from the start.
    let place = move |index: usize, stride: u64| {
        let (row, column) = ((index / columns) as u64, (index % columns) as u64);
        let at = if by_rows {
            row * stride + column
        } else {
            column * stride + row
        };
        at.wrapping_mul(bytes)
    };
    let per_lane = form.elements(fragment)?.len() * packed(of);
    let element = move |lane: usize, index: usize| (lane * per_lane + index) % (rows * columns);
    let count = packed(of);
    if is_load {
        let d = destinations(form, 0, register_type(of))?;
        return Ok(by_all_lanes(move |warp| {
            let start = warp.addresses(&address);
            warp.check_aligned(&start, align)?;
            let stride: Lanes<u32> = warp.read(stride);
            for (register, d) in d.iter().enumerate() {
                let mut values = [0u64; LANES];
                for lane in warp.active() {
                    for index in 0..count {
                        let own = element(lane, register * count + index);
                        let at = start[lane].wrapping_add(place(own, stride[lane].into()));
                        let (space, hint) = (address.space, address.hint);
                        let bits: u64 = match bytes {
                            1 => warp.load_lane::<u8>(space, hint, lane, at)?.into(),
                            2 => warp.load_lane::<u16>(space, hint, lane, at)?.into(),
                            4 => warp.load_lane::<u32>(space, hint, lane, at)?.into(),
                            _ => warp.load_lane(space, hint, lane, at)?,
                        };
                        values[lane] |= bits << (index as u32 * of.bits());
                    }
                }
                warp.write(*d, values);
            }
            Ok(())
        }));
    }
    let a = sources(form, 1, register_type(of))?;
    Ok(by_all_lanes(move |warp| {
        let start = warp.addresses(&address);
        warp.check_aligned(&start, align)?;
        let stride: Lanes<u32> = warp.read(stride);
        for (register, source) in a.iter().enumerate() {
            let values: Lanes<u64> = warp.read(*source);
            for lane in warp.active() {
                for index in 0..count {
                    let own = element(lane, register * count + index);
                    let at = start[lane].wrapping_add(place(own, stride[lane].into()));
                    let bits = part(values[lane], index, of);
                    let (space, hint) = (address.space, address.hint);
                    match bytes {
                        2 => warp.store_lane(space, hint, lane, at, bits as u16)?,
                        4 => warp.store_lane(space, hint, lane, at, bits as u32)?,
                        _ => warp.store_lane(space, hint, lane, at, bits)?,
                    }
                }
            }
        }
        Ok(())
    }))
}

/// `wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 d, a, b, c`; types of the factors stand between unless they are halves.
fn product(form: &mut Form<'_>) -> Decoded<Action> {
    take_aligned(form)?;
    // The layouts are those that the fragments were loaded with.
    take_layout(form)?;
    take_layout(form)?;
    let [m, n, k] = take_shape(form)?;
    let mut types = vec![form.take_type()?];
    while form.peek().is_some_and(|next| Type::named(next).is_some()) {
        types.push(form.take_type()?);
    }
    form.take("rn");
    let saturates = form.take("satfinite");
    form.finish(4)?;
    let [d_type, a_type, b_type, c_type] = match types[..] {
        [d, c] => [d, Type::F16, Type::F16, c],
        [d, a, b, c] => [d, a, b, c],
        _ => return Err(form.unsupported()),
    };
    let find = |of: Type| Element::of(of).ok_or_else(|| form.unsupported());
    let (d_of, a_of, b_of, c_of) = (find(d_type)?, find(a_type)?, find(b_type)?, find(c_type)?);
    let d = destinations(form, 0, register_type(d_of))?;
    let a = sources(form, 1, register_type(a_of))?;
    let b = sources(form, 2, register_type(b_of))?;
    let c = sources(form, 3, register_type(c_of))?;
    check_fragment(form, d.len(), d_of, m * n)?;
    check_fragment(form, a.len(), a_of, m * k)?;
    check_fragment(form, b.len(), b_of, k * n)?;
    check_fragment(form, c.len(), c_of, m * n)?;
    Ok(by_all_lanes(move |warp| {
        let read = |own: &[Source], of: Element, elements: usize| {
            let registers: Vec<Lanes<u64>> = own.iter().map(|own| warp.read(*own)).collect();
            let per_lane = own.len() * packed(of);
            let element = |index: usize| {
                let (lane, at) = (index / per_lane, index % per_lane);
                part(registers[at / packed(of)][lane], at % packed(of), of)
            };
            (0..elements).map(element).collect::<Vec<u64>>()
        };
        let (first, second) = (read(&a, a_of, m * k), read(&b, b_of, k * n));
        let addends = read(&c, c_of, m * n);
        let result = (0..m * n).map(|index| {
            let (row, column) = (index / n, index % n);
            let pairs = (0..k).map(|at| (first[row * k + at], second[at * n + column]));
            d_of.sum_of_products((a_of, b_of, c_of), pairs, addends[index], saturates)
        });
        let result: Vec<u64> = result.collect();
        let (count, per_lane) = (packed(d_of), d.len() * packed(d_of));
        for (register, d) in d.iter().enumerate() {
            let mut values = [0u64; LANES];
            for (lane, value) in values.iter_mut().enumerate() {
                for index in 0..count {
                    let own = result[(lane * per_lane + register * count + index) % (m * n)];
                    *value |= own << (index as u32 * d_of.bits());
                }
            }
            warp.write(*d, values);
        }
        Ok(())
    }))
}
