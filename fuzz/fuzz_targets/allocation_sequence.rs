//! Bytes become a program, and the program must do what the model does, on the simulated GPU, whose
//! memory is on the heap: AddressSanitizer sees every byte that goes astray.

#![no_main]

use std::sync::Once;

use cuguard::driver::{Choice, select};
use cuguard_torture::{Mode, Program, run_with};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static SIMULATED: Once = Once::new();
    SIMULATED.call_once(|| {
        select(Choice::Sim).expect("no driver was loaded before");
    });
    run_with(&Program::from_bytes(bytes), Mode::Quick);
});
