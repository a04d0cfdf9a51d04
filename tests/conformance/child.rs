//! What this program does as its own child process: run one case, or describe the driver.

use std::process::ExitCode;

use cuguard::driver::LoadError;

use crate::case::{Case, On};
use crate::cases;
use crate::driver::*;
use crate::runner::Missing;

/// Runs one case in this process.
pub(crate) fn run(name: &str, on: On) -> ExitCode {
    let Some(entry) = cases::all().into_iter().find(|entry| entry.name == name) else {
        eprintln!("conformance: no case {name}");
        return ExitCode::from(2);
    };
    let case = Case::new(on);
    (entry.run)(&case);
    case.end();
    ExitCode::SUCCESS
}

/// Loads the driver that the environment selects and prints what it is: [`On::word`] and a
/// description. Without a working driver and a device it prints the reason and returns
/// [`Missing::exit_code`].
pub(crate) fn describe() -> u8 {
    match description() {
        Ok((on, text)) => {
            println!("{}\n{text}", on.word());
            0
        }
        Err(missing) => {
            println!("{}", missing.reason());
            missing.exit_code()
        }
    }
}

fn description() -> Result<(On, String), Missing> {
    let loaded = cuguard::driver::load().map_err(|error| match error {
        LoadError::NoDriver { .. } => Missing::Absent(error.one_line()),
        _ => Missing::Broken(error.one_line()),
    })?;
    match cuInit(0) {
        CUresult::SUCCESS => {}
        code @ CUresult::NO_DEVICE => {
            return Err(Missing::Absent(format!("cuInit returned {code}")));
        }
        code => return Err(Missing::Broken(format!("cuInit returned {code}"))),
    }
    let (mut device, mut name) = (0, [0 as c_char; 256]);
    for result in [
        cuDeviceGet(&mut device, 0),
        cuDeviceGetName(name.as_mut_ptr(), 256, device),
    ] {
        if !result.is_success() {
            let reason = format!("the first device returned {result}");
            return Err(Missing::Broken(reason));
        }
    }
    if loaded.kind() == cuguard::driver::DriverKind::Simulated {
        return Ok(match loaded.path() {
            None => (On::Simulation, "simulated GPU".to_owned()),
            Some(path) => {
                let text = format!("simulated GPU in {}", path.display());
                (On::SimulationLibrary, text)
            }
        });
    }
    let name = text(name.as_ptr()).unwrap_or_default();
    let (major, minor) = loaded.version().unwrap_or_default();
    // The driver's functions return the CUDA version alone.
    let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let release = module
        .split_whitespace()
        .find(|word| word.split('.').count() > 1 && word.split('.').all(is_number))
        .map(|release| format!(" {release}"))
        .unwrap_or_default();
    Ok((
        On::Real,
        format!("NVIDIA driver{release} (CUDA {major}.{minor}), {name}"),
    ))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
