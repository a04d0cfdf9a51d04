//! Functions of the device's runtime that programs declare and call: `malloc`, `free`, `vprintf`, `__assertfail`.

use super::action::Execute;
use super::format::{self, Argument, Kind};
use crate::machine::{Fault, FaultKind, Stop, Warp};
use crate::program::{Function, Place};
use crate::types::Space;

/// The runtime function that a declaration names, if its parameters are right.
pub(crate) fn function(declared: &Function) -> Option<Execute> {
    let frame = |places: &[crate::program::Parameter]| {
        let offsets = places.iter().map(|own| match own.place {
            Place::Frame(offset) => Some((offset, own.size)),
            Place::Register(_) => None,
        });
        offsets.collect::<Option<Vec<_>>>()
    };
    let params = frame(&declared.params)?;
    let returns = frame(&declared.returns)?;
    match (&declared.name[..], &params[..], &returns[..]) {
        ("malloc", [size], [result]) => {
            let (size, result) = (*size, *result);
            Some(per_lane(move |warp, lane| {
                let bytes = parameter(warp, lane, size)?;
                let address = warp.grid.host.allocate(bytes);
                set_parameter(warp, lane, result, address)
            }))
        }
        ("free", [address], []) => {
            let address = *address;
            Some(per_lane(move |warp, lane| {
                let at = parameter(warp, lane, address)?;
                warp.regions.clear();
                if at == 0 || warp.grid.host.free(at) {
                    return Ok(());
                }
                Err(Fault::new(
                    lane,
                    FaultKind::Undefined("free of what malloc did not return"),
                ))
            }))
        }
        ("__assertfail", [message, file, line, function, _], []) => {
            let places = [*message, *file, *line, *function];
            Some(per_lane(move |warp, lane| {
                let [message, file, line, function] = places;
                let message = text(warp, lane, message)?;
                let file = text(warp, lane, file)?;
                let line = parameter(warp, lane, line)?;
                let function = text(warp, lane, function)?;
                let text = format!("{file}:{line}: {function}: assertion `{message}` failed");
                Err(Fault::new(lane, FaultKind::Assertion(text)))
            }))
        }
        ("vprintf", [format, arguments], [result]) => {
            let places = [*format, *arguments, *result];
            Some(per_lane(move |warp, lane| print(warp, lane, places)))
        }
        _ => None,
    }
}

/// `vprintf(format, arguments)`: the arguments are in memory, each aligned to its size.
fn print(
    warp: &mut Warp<'_, '_>,
    lane: usize,
    [format, arguments, result]: [(u32, u32); 3],
) -> Result<(), Stop> {
    let at = parameter(warp, lane, format)?;
    let text = read_text(warp, lane, at)?;
    let mut at = parameter(warp, lane, arguments)?;
    let (bytes, count) = format::format(&text, |kind| {
        let size = if kind == Kind::Integer(4) { 4 } else { 8 };
        // Past the last address follows the first, where nothing is.
        at = at.checked_next_multiple_of(size).unwrap_or(0);
        let value = match size {
            4 => warp.load_lane::<u32>(Space::Generic, 0, lane, at)?.into(),
            _ => warp.load_lane::<u64>(Space::Generic, 0, lane, at)?,
        };
        at = at.wrapping_add(size);
        Ok::<_, Stop>(match kind {
            Kind::Integer(_) => Argument::Integer(value),
            Kind::Double => Argument::Double(f64::from_bits(value)),
            Kind::Text if value == 0 => Argument::Text(b"(null)".to_vec()),
            Kind::Text => Argument::Text(read_text(warp, lane, value)?),
        })
    })?;
    warp.grid.host.print(&String::from_utf8_lossy(&bytes));
    set_parameter(warp, lane, result, count.into())
}

fn per_lane(
    f: impl Fn(&mut Warp<'_, '_>, usize) -> Result<(), Stop> + Send + Sync + 'static,
) -> Execute {
    Box::new(move |warp| {
        for lane in warp.active() {
            f(warp, lane)?;
        }
        Ok(())
    })
}

/// The value of a parameter in the frame.
fn parameter(
    warp: &mut Warp<'_, '_>,
    lane: usize,
    (offset, size): (u32, u32),
) -> Result<u64, Stop> {
    let at = u64::from(warp.registers.base().local + offset);
    match size {
        4 => warp
            .load_lane::<u32>(Space::Local, 0, lane, at)
            .map(u64::from),
        _ => warp.load_lane::<u64>(Space::Local, 0, lane, at),
    }
}

fn set_parameter(
    warp: &mut Warp<'_, '_>,
    lane: usize,
    (offset, size): (u32, u32),
    value: u64,
) -> Result<(), Stop> {
    let at = u64::from(warp.registers.base().local + offset);
    match size {
        4 => warp.store_lane(Space::Local, 0, lane, at, value as u32),
        _ => warp.store_lane(Space::Local, 0, lane, at, value),
    }
}

/// The text that a parameter points to.
fn text(warp: &mut Warp<'_, '_>, lane: usize, place: (u32, u32)) -> Result<String, Stop> {
    let at = parameter(warp, lane, place)?;
    let bytes = read_text(warp, lane, at)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The bytes at a generic address, up to a zero.
fn read_text(warp: &mut Warp<'_, '_>, lane: usize, at: u64) -> Result<Vec<u8>, Stop> {
    const MAX: usize = 1 << 16;
    let mut bytes = Vec::new();
    while bytes.len() < MAX {
        let address = at.wrapping_add(bytes.len() as u64);
        match warp.load_lane::<u8>(Space::Generic, 0, lane, address)? {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    Ok(bytes)
}
