//! Every kind of resource is recorded, with exact counts and bytes, on every way to the driver.

mod support;

use std::process::Output;

use support::{assert_success, compile, run, simulated_driver_folder, text};

const KINDS: &str = include_str!("programs/kinds.c");
/// How often the program checks what is alive: one that checks nothing fails the test.
const CHECKS: usize = 95;

/// Runs `programs/kinds.c`, which checks what is alive after each of its steps.
fn kinds(way: u32, arguments: &[&str]) -> Option<Output> {
    let driver = simulated_driver_folder();
    let way = format!("-DWAY={way}");
    let arguments = [&[way.as_str()], arguments].concat();
    let program = compile(&driver, "kinds", KINDS, &arguments)?;
    let ptx = driver.join("empty.ptx");
    let source =
        ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry empty() { ret; }\n";
    std::fs::write(&ptx, source).expect("a file can be written");
    let output = run(&program, &driver, &[("PTX_FILE", ptx)]);
    assert_success(&output);
    let stdout = text(&output.stdout);
    assert_eq!(stdout, format!("{CHECKS} checks passed\n"));
    Some(output)
}

#[test]
fn a_program_that_is_linked_against_the_driver() {
    kinds(1, &["-l:libcuda.so.1"]);
}

#[test]
fn a_program_that_loads_the_driver() {
    kinds(2, &[]);
}

#[test]
fn a_program_that_looks_functions_up_in_the_default_scope() {
    kinds(3, &["-Wl,--no-as-needed", "-l:libcuda.so.1"]);
}

#[test]
fn a_program_that_looks_functions_up_behind_itself() {
    kinds(4, &["-Wl,--no-as-needed", "-l:libcuda.so.1"]);
}

#[test]
fn a_program_that_gets_functions_from_the_driver() {
    kinds(5, &[]);
}

#[test]
fn a_program_that_gets_the_lookup_function_from_the_driver() {
    kinds(6, &[]);
}
