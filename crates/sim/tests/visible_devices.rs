//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, in child processes: the driver reads them once.

mod common;

use common::*;
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

/// What a program sees of three devices with these variables.
#[track_caller]
fn seen(list: Option<&str>, order: Option<&str>) -> String {
    let mut command = child_command("a_program_sees_the_listed_devices");
    command.env("CUGUARD_SIM", "devices=3");
    for (name, value) in [("CUDA_VISIBLE_DEVICES", list), ("CUDA_DEVICE_ORDER", order)] {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let hidden =
        "cuguard-sim: CUDA_VISIBLE_DEVICES hides all simulated devices, which are 0 to 2\n";
    let is_empty = list.is_some_and(|list| ["", "-1", "7"].contains(&list));
    assert_eq!(stderr.contains(hidden), is_empty, "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let start = stdout.find("seen ").unwrap() + "seen ".len();
    stdout[start..].lines().next().unwrap().to_owned()
}

#[test]
fn a_program_sees_the_listed_devices() {
    if is_child() {
        return print_devices();
    }
    let (success, no_device) = (CUresult::SUCCESS.0, CUresult::NO_DEVICE.0);
    assert_eq!(seen(None, None), format!("{success} [1, 2, 3]"));
    assert_eq!(seen(Some("2,0"), None), format!("{success} [3, 1]"));
    assert_eq!(seen(Some("1,-1,0"), None), format!("{success} [2]"));
    let uuid = "GPU-02637567-7561-7264-2d73-696d2d677075,GPU-00";
    assert_eq!(seen(Some(uuid), None), format!("{success} [3, 1]"));
    for none in ["", "-1", "7"] {
        assert_eq!(seen(Some(none), None), format!("{no_device} []"), "{none}");
    }
    let bus = Some("PCI_BUS_ID");
    assert_eq!(seen(Some("1"), bus), format!("{success} [2]"));
    let invalid = CUresult::INVALID_DEVICE.0;
    assert_eq!(seen(Some("1,1"), None), format!("{invalid} []"));
    assert_eq!(seen(None, Some("SLOWEST")), format!("{invalid} []"));
}
