//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, in child processes: the driver reads them once.

use crate::common::*;
use cuguard_sys::*;

/// Prints what a program sees: the result of `cuInit`, and the PCI bus number of each device.
fn print_devices() {
    let result = cu::cuInit(0);
    let mut count = -1;
    if result.is_success() {
        ok(cu::cuDeviceGetCount(&mut count));
    }
    let bus = |device| {
        let mut bus = 0;
        let which = device_attribute::PCI_BUS_ID;
        ok(cu::cuDeviceGetAttribute(&mut bus, which, device));
        bus
    };
    let numbers: Vec<i32> = (0..count).map(bus).collect();
    println!("seen {} {numbers:?}", result.0);
}

/// What a program sees with these variables, and what the driver prints on stderr.
#[track_caller]
fn seen_and_printed(
    settings: &str,
    list: Option<&str>,
    order: Option<&str>,
) -> (String, Vec<String>) {
    let mut command = child_command("a_program_sees_the_listed_devices");
    command.env("CUGUARD_SIM", settings);
    for (name, value) in [("CUDA_VISIBLE_DEVICES", list), ("CUDA_DEVICE_ORDER", order)] {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines = stderr.lines();
    let printed = lines.filter_map(|line| line.strip_prefix("cuguard-sim: "));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let start = stdout.find("seen ").unwrap() + "seen ".len();
    let seen = stdout[start..].lines().next().unwrap().to_owned();
    (seen, printed.map(str::to_owned).collect())
}

/// What a program sees of three devices with these variables, without a line on stderr.
#[track_caller]
fn seen(list: Option<&str>, order: Option<&str>) -> String {
    let (seen, printed) = seen_and_printed("devices=3", list, order);
    assert_eq!(printed, [""; 0]);
    seen
}

#[test]
fn a_program_sees_the_listed_devices() {
    if is_child() {
        return print_devices();
    }
    let success = CUresult::SUCCESS.0;
    assert_eq!(seen(None, None), format!("{success} [1, 2, 3]"));
    assert_eq!(seen(Some("2,0"), None), format!("{success} [3, 1]"));
    assert_eq!(seen(Some("1,-1,0"), None), format!("{success} [2]"));
    let uuid = "GPU-02637567-7561-7264-2d73-696d2d677075,GPU-00";
    assert_eq!(seen(Some(uuid), None), format!("{success} [3, 1]"));
    let bus = Some("PCI_BUS_ID");
    assert_eq!(seen(Some("1"), bus), format!("{success} [2]"));
}

#[test]
fn a_line_names_why_no_device_is_visible() {
    let (no_device, invalid) = (CUresult::NO_DEVICE.0, CUresult::INVALID_DEVICE.0);
    for (settings, list, order, code, line) in [
        (
            "devices=3",
            Some(""),
            None,
            no_device,
            "CUDA_VISIBLE_DEVICES=\"\" names no simulated device: there are devices 0 to 2 \
             (CUGUARD_SIM=devices=N sets the number)",
        ),
        (
            "devices=3",
            Some("-1"),
            None,
            no_device,
            "CUDA_VISIBLE_DEVICES=\"-1\" names no simulated device: there are devices 0 to 2 \
             (CUGUARD_SIM=devices=N sets the number)",
        ),
        (
            "devices=1",
            Some("1"),
            None,
            no_device,
            "CUDA_VISIBLE_DEVICES=\"1\" names no simulated device: there is device 0 \
             (CUGUARD_SIM=devices=N sets the number)",
        ),
        (
            "devices=0",
            None,
            None,
            no_device,
            "there is no simulated device: the configuration (CUGUARD_SIM or `configure`) has devices=0",
        ),
        (
            "devices=3",
            Some("1,1"),
            None,
            invalid,
            "CUDA_VISIBLE_DEVICES=\"1,1\" names device 1 twice: CUDA_ERROR_INVALID_DEVICE",
        ),
        (
            "devices=3",
            None,
            Some("SLOWEST"),
            invalid,
            "CUDA_DEVICE_ORDER=\"SLOWEST\" is invalid: CUDA_ERROR_INVALID_DEVICE; \
             it accepts FASTEST_FIRST and PCI_BUS_ID",
        ),
    ] {
        let (seen, printed) = seen_and_printed(settings, list, order);
        assert_eq!(seen, format!("{code} []"), "{line}");
        assert_eq!(printed, [line]);
    }
}

#[test]
fn a_configuration_that_is_invalid_is_printed_with_its_error() {
    let (seen, printed) = seen_and_printed("memory=99999", None, None);
    assert_eq!(seen, format!("{} []", CUresult::INVALID_VALUE.0));
    assert_eq!(printed.len(), 1, "{printed:?}");
    let line = "CUGUARD_SIM=\"memory=99999\": `99999` is too small";
    assert!(printed[0].starts_with(line), "{printed:?}");
}
