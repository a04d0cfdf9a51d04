//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: which devices a program sees, and in which order.
//!
//! Read at `cuInit`. The rules are those of a real driver, errors included: an entry that names no
//! device ends the list, a device that is listed twice is an error.

use std::sync::Once;

use cuguard_sys::CUresult;

use crate::result::{DriverResult, check};
use crate::stderr;

/// How an entry begins that is a UUID.
const UUID: &str = "GPU-";

/// The UUID of a device. The number comes first, so that a short prefix identifies a device.
pub(crate) fn uuid(number: u32) -> [u8; 16] {
    let mut bytes = *b"\0cuguard-sim-gpu";
    bytes[0] = number as u8;
    bytes
}

/// The UUID as tools print it, without `GPU-`.
fn uuid_text(number: u32) -> String {
    let mut text = uuid(number).map(|byte| format!("{byte:02x}")).concat();
    for dash in [8, 13, 18, 23] {
        text.insert(dash, '-');
    }
    text
}

/// The number at the start of a text, as C's `atoi` reads it.
fn leading_number(text: &str) -> Option<i32> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let digits = &digits[..end.unwrap_or(digits.len())];
    if digits.is_empty() {
        return None;
    }
    // Wider than a C `int`, and cut to that.
    let number = digits.parse().unwrap_or(i64::MAX) as i32;
    Some(if text.starts_with('-') {
        number.wrapping_neg()
    } else {
        number
    })
}

/// The device of an index.
fn by_index(entry: &str, devices: u32) -> Option<u32> {
    let number = u32::try_from(leading_number(entry)?).ok()?;
    (number < devices).then_some(number)
}

/// The device of a UUID, or of a prefix that only one device has.
fn by_uuid(entry: &str, devices: u32) -> Option<u32> {
    let prefix = entry.strip_prefix(UUID)?.to_ascii_lowercase();
    if prefix.is_empty() {
        return None;
    }
    let is_match = |number: &u32| {
        let uuid = uuid_text(*number);
        // What follows a whole UUID is ignored.
        uuid.starts_with(&prefix) || prefix.starts_with(&uuid)
    };
    let mut matching = (0..devices).filter(is_match);
    let first = matching.next();
    first.filter(|_| matching.next().is_none())
}

/// Why the variables are invalid.
#[derive(Debug, PartialEq, Eq)]
enum Invalid {
    Order,
    Twice(u32),
}

/// The numbers of the devices that a program sees, by ordinal.
fn visible(devices: u32, list: Option<&str>, order: Option<&str>) -> Result<Vec<u32>, Invalid> {
    // All devices are equally fast, so both orders are the one on the bus.
    let known = order.is_none_or(|order| matches!(order, "FASTEST_FIRST" | "PCI_BUS_ID"));
    if !known {
        return Err(Invalid::Order);
    }
    let Some(list) = list else {
        return Ok((0..devices).collect());
    };
    // The first entry decides: indices and UUIDs do not mix.
    let find = if list.starts_with(UUID) {
        by_uuid
    } else {
        by_index
    };
    let mut numbers = Vec::new();
    for number in list.split(',').map_while(|entry| find(entry, devices)) {
        if numbers.contains(&number) {
            return Err(Invalid::Twice(number));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

/// Prints a line on standard error, once: a program may call `cuInit` again.
fn print_once(line: &str) {
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| stderr::print_line(line));
}

/// The numbers of the devices that the environment makes visible, by ordinal. Fails if there is none, and
/// prints why: the variables may be meant for real GPUs.
pub(crate) fn from_env(devices: u32) -> DriverResult<Vec<u32>> {
    let variable = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
    let (list, order) = (
        variable("CUDA_VISIBLE_DEVICES"),
        variable("CUDA_DEVICE_ORDER"),
    );
    let (list, order) = (list.as_deref(), order.as_deref());
    let numbers = visible(devices, list, order).map_err(|invalid| {
        print_once(&match invalid {
            Invalid::Order => format!(
                "CUDA_DEVICE_ORDER={:?} is invalid: CUDA_ERROR_INVALID_DEVICE; \
                 it accepts FASTEST_FIRST and PCI_BUS_ID",
                order.unwrap_or_default()
            ),
            Invalid::Twice(number) => format!(
                "CUDA_VISIBLE_DEVICES={:?} names device {number} twice: CUDA_ERROR_INVALID_DEVICE",
                list.unwrap_or_default()
            ),
        });
        CUresult::INVALID_DEVICE
    })?;
    if numbers.is_empty() {
        print_once(&why_none(devices, list));
    }
    check(!numbers.is_empty(), CUresult::NO_DEVICE)?;
    Ok(numbers)
}

/// Why no device is visible.
fn why_none(devices: u32, list: Option<&str>) -> String {
    let existing = match devices {
        0 => {
            return "there is no simulated device: the configuration (CUGUARD_SIM or `configure`) has devices=0"
                .to_owned();
        }
        1 => "there is device 0".to_owned(),
        _ => format!("there are devices 0 to {}", devices - 1),
    };
    format!(
        "CUDA_VISIBLE_DEVICES={:?} names no simulated device: {existing} \
         (CUGUARD_SIM=devices=N sets the number)",
        list.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_read_as_c_does_and_an_invalid_one_ends_the_list() {
        let visible = |list| visible(4, Some(list), None);
        for (list, numbers) in [
            ("0", &[0][..]),
            ("3,1", &[3, 1]),
            (" 2 , +1,\t00", &[2, 1, 0]),
            ("1abc,0x3", &[1, 0]),
            ("4294967297", &[1]),
            ("-0", &[0]),
            ("2,4,1", &[2]),
            ("2,-1,1", &[2]),
            ("2,,1", &[2]),
            ("2,GPU-01", &[2]),
            ("", &[]),
            (",0", &[]),
            ("-1", &[]),
            ("abc", &[]),
            ("99999999999999999999", &[]),
        ] {
            assert_eq!(visible(list).as_deref(), Ok(numbers), "{list:?}");
        }
        assert_eq!(visible("1,1"), Err(Invalid::Twice(1)));
        assert_eq!(visible("1,0,9,1"), Ok(vec![1, 0]));
    }

    #[test]
    fn a_uuid_or_an_unambiguous_prefix_names_a_device() {
        let visible = |list: &str| visible(20, Some(list), None);
        let whole = format!("GPU-{}", uuid_text(17));
        assert_eq!(whole, "GPU-11637567-7561-7264-2d73-696d2d677075");
        for (list, numbers) in [
            (&*whole, &[17][..]),
            ("GPU-11637567-7561-7264-2D73-696D2D677075 ", &[17]),
            ("GPU-11,GPU-02", &[17, 2]),
            // Sixteen to nineteen begin with 1.
            ("GPU-02,GPU-1", &[2]),
            ("GPU-02,3", &[2]),
            ("GPU-", &[]),
            ("GPU", &[]),
            ("gpu-02", &[]),
            (" GPU-02", &[]),
            ("GPU-ff", &[]),
        ] {
            assert_eq!(visible(list).as_deref(), Ok(numbers), "{list:?}");
        }
        assert_eq!(visible("GPU-02,GPU-026"), Err(Invalid::Twice(2)));
    }

    #[test]
    fn only_the_two_orders_are_known() {
        for order in [None, Some("FASTEST_FIRST"), Some("PCI_BUS_ID")] {
            assert_eq!(visible(2, None, order), Ok(vec![0, 1]));
        }
        for order in ["", "pci_bus_id", "BUS"] {
            assert_eq!(visible(2, None, Some(order)), Err(Invalid::Order));
        }
    }
}
