//! The start of the simulated driver.

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::lock::lock;
use super::objects::Device;
use super::workers;
use crate::config::{Config, with_configured};
use crate::memory::{AddressMap, AddressSpace, DeviceMemory, PoolLocation};
use crate::result::DriverResult;
use crate::{process, stderr, trace, visible_devices};

/// What pools of host and managed memory can reserve. The host itself decides how much it has.
const MAX_HOST_MEMORY: u64 = 1 << 46;

/// Starts the driver unless it is running.
pub(crate) fn start() -> DriverResult {
    // The configuration matters only before the start.
    if process::is_running() {
        return Ok(());
    }
    let started = with_configured(|config| {
        let mut state = lock();
        if !process::is_running() {
            let devices = visible_devices::from_env(config.devices)?;
            *state = new_state(config, &devices)?;
            let (on, skips) = (state.config.trace, state.config.skip_kernels);
            trace::set(on, on || skips);
            process::set_running();
        }
        Ok(())
    });
    started.unwrap_or_else(|error| {
        let value = std::env::var_os("CUGUARD_SIM").unwrap_or_default();
        stderr::print_line(&format!("CUGUARD_SIM={value:?}: {error}"));
        Err(CUresult::INVALID_VALUE)
    })
}

/// A state with these of the configured devices, by ordinal.
pub(super) fn new_state(config: Config, devices: &[u32]) -> DriverResult<DriverState> {
    let mut state = DriverState {
        map: AddressMap::new(config.devices),
        addresses: AddressSpace::new(&config),
        host_memory: DeviceMemory::new(MAX_HOST_MEMORY),
        config,
        ..DriverState::default()
    };
    state.workers.thread_main = Some(workers::thread_main);
    for (device, number) in (0..).zip(devices) {
        let primary = state.ids.next_context(device);
        let pool = state.add_pool(PoolLocation::device(device), 0)?;
        state.devices.push(Device {
            number: *number,
            memory: DeviceMemory::new(state.config.memory),
            primary,
            default_pool: pool,
            pool,
            ..Device::default()
        });
    }
    Ok(state)
}
