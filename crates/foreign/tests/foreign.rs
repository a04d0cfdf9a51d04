//! C code that calls newer functions than `cust_raw` declares links with the driver loader and runs, on the
//! simulated GPU and on the installed driver.

use cuguard_driver::sys::CUresult;
use cuguard_driver::{Choice, DriverKind, load, select};

#[test]
fn c_code_that_calls_newer_functions_links_and_runs() {
    if std::env::var_os("CUGUARD_DRIVER").is_none() {
        select(Choice::Auto).expect("nothing is loaded yet");
    }
    let driver = load().expect("a driver");
    let codes = cuguard_foreign::calls(0);
    let code = CUresult;
    println!("on: {driver}, CUDA {:?}", driver.version());
    println!("cuGetProcAddress_v2: {}", code(codes.find));
    println!("cuCtxCreate_v4: {}", code(codes.create));
    println!("cuTensorMapEncodeTiled: {}", code(codes.encode));

    assert_eq!(code(codes.init), CUresult::SUCCESS);
    if driver.version() < Some((12, 5)) {
        assert_eq!(code(codes.create), CUresult::NOT_FOUND);
        return;
    }
    assert_eq!(code(codes.find), CUresult::SUCCESS);
    assert_eq!(codes.status, 0);
    let found = codes.found.cast_const();
    assert_eq!(Some(found), driver.symbol("cuCtxCreate_v4"));
    assert_eq!(code(codes.create), CUresult::SUCCESS);
    assert_eq!(code(codes.destroy), CUresult::SUCCESS);
    let encoded = if driver.kind() == DriverKind::Simulated {
        CUresult::NOT_SUPPORTED
    } else {
        CUresult::SUCCESS
    };
    assert_eq!(code(codes.encode), encoded);
}
