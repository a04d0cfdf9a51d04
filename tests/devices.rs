//! Devices: enumeration and queries, on one device and on two simulated ones.

use std::collections::HashSet;

use crate::support::*;
use cuguard::device::{ComputeCapability, DeviceAttribute};
use cuguard::driver::{api, sys};
use cuguard::sim::{self, Fault};
use cuguard::{Context, Device, Error, Result};

#[test]
fn every_device_is_described() -> Result<()> {
    let _turn = turn();
    let devices = Device::all()?;
    assert_eq!(devices.len(), Device::count()? as usize);
    assert!(!devices.is_empty());
    let mut uuids = HashSet::new();
    for (index, device) in devices.iter().copied().enumerate() {
        assert_eq!(device.ordinal() as usize, index);
        assert_eq!(Device::new(device.ordinal())?, device);
        assert_eq!(device.to_string(), format!("device {index}"));
        assert!(!device.name()?.is_empty());
        assert!(device.total_memory()? > 1 << 20);
        assert!(device.compute_capability()? > ComputeCapability::new(3, 0));
        let uuid = device.uuid()?;
        assert!(uuids.insert(uuid), "two devices with {uuid}");
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
        assert_eq!(Device::with_uuid(uuid)?, Some(device));
        let address = device.pci_bus_id()?;
        assert_eq!(Device::with_pci_bus_id(&address)?, Some(device));
        assert!(!device.can_access_peer(device)?);
    }
    Ok(())
}

/// The context and the device agree.
#[test]
fn a_context_knows_its_device() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let device = context.device();
    assert_eq!(device, Device::new(0)?);
    assert_eq!(device.name()?, context.device_name());
    assert_eq!(device.total_memory()?, context.memory()?.total);
    context.close()
}

/// Each attribute is the one of its name: the driver returns the same by the number in its header.
#[test]
fn attributes_are_those_of_the_driver() -> Result<()> {
    let _turn = turn();
    let device = Device::new(0)?;
    let mut known = 0;
    for attribute in DeviceAttribute::ALL {
        let mut value = 0;
        // SAFETY: `value` is valid for writes; the driver checks the rest.
        let code = unsafe { api::cuDeviceGetAttribute(&mut value, *attribute as u32, 0) };
        match device.attribute(*attribute) {
            Ok(by_name) => {
                assert_eq!(
                    (by_name, code),
                    (value, sys::CUresult::SUCCESS),
                    "{attribute}"
                );
                known += 1;
            }
            Err(Error::UnsupportedAttribute { attribute, .. }) => {
                assert_eq!(code, sys::CUresult::INVALID_VALUE, "{attribute}");
            }
            Err(error) => panic!("{attribute}: {error}"),
        }
    }
    assert!(known > 80, "{known} attributes");
    assert_eq!(device.attribute(DeviceAttribute::WarpSize)?, 32);
    let capability = device.compute_capability()?;
    let major = device.attribute(DeviceAttribute::ComputeCapabilityMajor)?;
    assert_eq!(capability.major, u32::try_from(major).unwrap());
    Ok(())
}

#[test]
fn what_does_not_exist_is_named() -> Result<()> {
    let _turn = turn();
    let count = Device::count()?;
    let error = Device::new(count).unwrap_err();
    assert!(
        matches!(error, Error::NoSuchDevice { ordinal, count: all, .. } if (ordinal, all) == (count, count))
    );
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("Device::new: there is no device {count}; ")),
        "{text}"
    );
    assert!(text.contains(&count.to_string()), "{text}");
    assert!(Device::new(u32::MAX).is_err());
    for address in ["", "ffff:ff:1f.7", "no address", "0000\0"] {
        assert_eq!(Device::with_pci_bus_id(address)?, None, "{address:?}");
    }
    let nowhere = "GPU-00000000-0000-0000-0000-000000000001";
    assert_eq!(Device::with_uuid(nowhere.parse().unwrap())?, None);
    Ok(())
}

/// Two devices in one program.
#[test]
fn two_devices() -> Result<()> {
    const TEST: &str = "two_devices";
    if !simulated(TEST) {
        return Ok(());
    }
    if part().is_none() {
        succeeded(&child(TEST, "two", &[("CUGUARD_SIM", "devices=2")]));
        return Ok(());
    }
    let devices = Device::all()?;
    let [first, second] = devices[..] else {
        panic!("{devices:?}")
    };
    assert!(first < second);
    assert_ne!(first.uuid()?, second.uuid()?);
    assert_ne!(first.pci_bus_id()?, second.pci_bus_id()?);
    assert!(first.can_access_peer(second)? && second.can_access_peer(first)?);
    let contexts = [
        Context::new(first.ordinal())?,
        Context::new(second.ordinal())?,
    ];
    assert_eq!(contexts.each_ref().map(Context::device), [first, second]);
    let error = Device::new(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Device::new: there is no device 2; there are 2 devices"
    );
    Ok(())
}

/// An error names the query and the device.
#[test]
fn errors_of_queries_name_the_device() -> Result<()> {
    if !simulated("errors_of_queries_name_the_device") {
        return Ok(());
    }
    let _turn = turn();
    let device = Device::new(0)?;
    let code = sys::CUresult::UNKNOWN;
    type Query = fn(Device) -> Result<()>;
    let queries: [(&str, &str, Query); 6] = [
        ("cuDeviceGetName", "Device::name", |device| {
            device.name().map(drop)
        }),
        ("cuDeviceGetUuid_v2", "Device::uuid", |device| {
            device.uuid().map(drop)
        }),
        ("cuDeviceGetPCIBusId", "Device::pci_bus_id", |device| {
            device.pci_bus_id().map(drop)
        }),
        ("cuDeviceTotalMem_v2", "Device::total_memory", |device| {
            device.total_memory().map(drop)
        }),
        ("cuDeviceGetAttribute", "Device::attribute", |device| {
            device.attribute(DeviceAttribute::WarpSize).map(drop)
        }),
        (
            "cuDeviceGetAttribute",
            "Device::compute_capability",
            |device| device.compute_capability().map(drop),
        ),
    ];
    for (function, operation, query) in queries {
        let fault = sim::inject(Fault::nth_call_of(function, 1).returning(code)).unwrap();
        let error = query(device).unwrap_err();
        drop(fault);
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{operation} on device 0: ")),
            "{text}"
        );
        assert_eq!(error.code(), Some(code), "{text}");
        query(device)?;
    }
    Ok(())
}

/// The driver's function replaces all flags.
#[test]
fn the_schedule_of_a_primary_context_keeps_other_flags() -> Result<()> {
    use cuguard::context::Schedule;
    use sys::ctx_flags::{LMEM_RESIZE_TO_MAX, MAP_HOST, SCHED_YIELD};
    let _turn = turn();
    Device::count()?; // initializes the driver
    // SAFETY: numbers only.
    let set = |flags| unsafe { api::cuDevicePrimaryCtxSetFlags_v2(0, flags) };
    for schedule in [Schedule::Spin, Schedule::BlockingSync, Schedule::Auto] {
        assert!(set(LMEM_RESIZE_TO_MAX | SCHED_YIELD).is_success());
        let context = Context::builder().schedule(schedule).build()?;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: valid for writes.
        let code = unsafe { api::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active) };
        assert!(code.is_success());
        assert_eq!(flags & !MAP_HOST, LMEM_RESIZE_TO_MAX | schedule as u32);
        context.close()?;
    }
    assert!(set(0).is_success());
    Ok(())
}

/// What the driver has after a setting of the context is what was set.
#[test]
fn settings_of_a_context() -> Result<()> {
    use cuguard::context::{ContextLimit, Profiler, Schedule};
    let _turn = turn();
    let context = Context::builder()
        .dedicated()
        .schedule(Schedule::BlockingSync)
        .build()?;
    let mut flags = 0;
    {
        let _current = context.make_current()?;
        // SAFETY: valid for writes.
        assert!(unsafe { api::cuCtxGetFlags(&mut flags) }.is_success());
    }
    assert_eq!(
        flags & sys::ctx_flags::SCHED_MASK,
        Schedule::BlockingSync as u32
    );
    let before = context.limit(ContextLimit::StackSize)?;
    context.set_limit(ContextLimit::StackSize, before + 4096)?;
    assert!(context.limit(ContextLimit::StackSize)? >= before + 4096);
    let error = context
        .set_limit(ContextLimit::StackSize, 1 << 40)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Context::set_limit on device 0: "),
        "{error}"
    );
    Profiler::start(&context)?.stop()?;
    drop(Profiler::start(&context)?);
    let primary = Context::builder().schedule(Schedule::Yield).build()?;
    {
        let _current = primary.make_current()?;
        // SAFETY: valid for writes.
        assert!(unsafe { api::cuCtxGetFlags(&mut flags) }.is_success());
    }
    assert_eq!(flags & sys::ctx_flags::SCHED_MASK, Schedule::Yield as u32);
    primary.close()?;
    // SAFETY: numbers only.
    assert!(unsafe { api::cuDevicePrimaryCtxSetFlags_v2(0, 0) }.is_success());
    context.close()
}
