//! Differences that an H200 has shown, again.

use cuguard_kernels::random::replay;
use cuguard_kernels::{Device, Driver};

const DIFFERENCES: [&str; 5] = [
    include_str!("differences/atom.ptx"),
    include_str!("differences/bfe.ptx"),
    include_str!("differences/cvt.ptx"),
    include_str!("differences/testp.ptx"),
    include_str!("differences/xorsign.ptx"),
];

#[test]
fn differences_are_mended() {
    let driver = Driver::simulated().unwrap();
    let device = Device::new(&driver).unwrap();
    for text in DIFFERENCES {
        assert_eq!(replay(text, &device), Ok(Vec::new()), "{text}");
    }
}

#[test]
fn other_values_are_reported() {
    let driver = Driver::simulated().unwrap();
    let device = Device::new(&driver).unwrap();
    let other = DIFFERENCES[4].replace("7a12 and fa12", "7a12 and fa13");
    let expected = vec!["thread 1 %e0: fa12, expected fa13".to_owned()];
    assert_eq!(replay(&other, &device), Ok(expected));
    assert!(replay("", &device).is_err());
    let without = DIFFERENCES[4].replace("// thread", "//");
    assert!(replay(&without, &device).is_err());
}
