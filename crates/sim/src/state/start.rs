//! The start of the simulated driver.

use cuguard_sys::CUresult;

use super::driver_state::DriverState;
use super::lock::lock;
use super::objects::Device;
use super::workers;
use crate::config::{Config, with_configured};
use crate::memory::{AddressMap, AddressSpace, DeviceMemory};
use crate::result::{DriverResult, check};
use crate::{process, stderr, trace};

/// Starts the driver unless it is running.
pub(crate) fn start() -> DriverResult {
    // The configuration matters only before the start.
    if process::is_running() {
        return Ok(());
    }
    let started = with_configured(|config| {
        let mut state = lock();
        if !process::is_running() {
            check(config.devices > 0, CUresult::NO_DEVICE)?;
            *state = new_state(config)?;
            trace::set(state.config.trace);
            process::set_running();
        }
        Ok(())
    });
    started.unwrap_or_else(|error| {
        stderr::print_line(&format!("CUGUARD_SIM: {error}"));
        Err(CUresult::INVALID_VALUE)
    })
}

fn new_state(config: Config) -> DriverResult<DriverState> {
    let mut state = DriverState {
        map: AddressMap::new(config.devices),
        addresses: AddressSpace::new(&config),
        config,
        ..DriverState::default()
    };
    state.workers.thread_main = Some(workers::thread_main);
    for device in 0..state.config.devices {
        let primary = state.ids.next_context(device);
        let pool = state.add_pool(device)?;
        state.devices.push(Device {
            memory: DeviceMemory::new(state.config.memory),
            primary,
            default_pool: pool,
            pool,
            ..Device::default()
        });
    }
    Ok(state)
}
