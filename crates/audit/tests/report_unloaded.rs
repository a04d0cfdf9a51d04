//! Names in the report of functions whose library is unloaded by then.

use crate::report::LINKED;
use crate::support::{Folder, assert_success, audited, compile, simulated_driver_folder};
use serde_json::Value;

/// Programs that unload libraries: `unloads.c`, and what it loads.
struct Unloading {
    driver: Folder,
    program: std::path::PathBuf,
}

impl Unloading {
    /// `None` without a C compiler.
    fn new() -> Option<Self> {
        let driver = simulated_driver_folder();
        let source = include_str!("programs/unloads.c");
        let program = compile(&driver, "unloads", source, &LINKED)?;
        Some(Self { driver, program })
    }

    /// Builds a library whose function `inner` loses so many bytes; 0 for one without CUDA.
    fn library(&self, name: &str, inner: &str, bytes: u32, flags: &[&str]) -> String {
        let inner = format!("-DINNER={inner}");
        let bytes = Some(bytes).filter(|bytes| *bytes != 0);
        let bytes = bytes.map(|bytes| format!("-DBYTES={bytes}"));
        let shared = ["-shared", "-fPIC", "-O1", "-Wl,--build-id=sha1", &inner];
        let mut arguments = shared.to_vec();
        arguments.extend(bytes.as_deref());
        arguments.extend(flags);
        let source = include_str!("programs/unloaded.c");
        compile(&self.driver, name, source, &arguments).expect("there is a compiler");
        format!("./{name}")
    }

    /// What is lost: how many, their bytes and the two innermost frames of each group.
    fn lost(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<(u64, u64, String)> {
        let file = self.driver.join("report.json");
        let mut command = audited(&self.program, &self.driver);
        let command = command.args(arguments).envs(variables.iter().copied());
        let words = format!("json,file={}", file.display());
        // Relative names of libraries.
        let command = command.current_dir(self.driver.path());
        let output = command.env("LEAK_REPORT", words).output();
        assert_success(&output.expect("the program can be started"));
        let report = std::fs::read_to_string(&file).expect("there is a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let groups = report["groups"].as_array().expect("groups are a list");
        let row = |group: &Value| {
            let number = |name: &str| group[name].as_u64().expect("it is a number");
            let frame = |at: usize| {
                let frame = &group["stack"][at];
                let module = frame["module"].as_str().unwrap_or_default();
                let module = module.rsplit('/').next().unwrap_or_default();
                let function = frame["function"].as_str().unwrap_or("?");
                format!("{module}!{function}")
            };
            let frames = format!("{} {}", frame(0), frame(1));
            (number("count"), number("bytes"), frames)
        };
        let lost = groups.iter().filter(|group| group["kind"] == "device");
        let mut lost: Vec<_> = lost.map(row).collect();
        lost.sort();
        lost
    }
}

/// A frame is of the library that was loaded when it was captured, not of what is loaded at its address later.
#[test]
fn leaks_of_unloaded_libraries_have_their_own_names() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    let alpha = unloading.library("alpha.so", "asks_first", 1000, &[]);
    let beta = unloading.library("beta.so", "asks_later", 2000, &[]);
    let idle = unloading.library("idle.so", "never_called", 0, &[]);
    let first = "alpha.so!asks_first alpha.so!enter".to_owned();
    let later = "beta.so!asks_later beta.so!enter".to_owned();
    // Another one that leaks, and one that uses no CUDA.
    let lost = unloading.lost(&[&alpha, &format!("={beta}")], &[]);
    assert_eq!(lost, [(1, 1000, first.clone()), (1, 2000, later.clone())]);
    let lost = unloading.lost(&[&alpha, &format!("={idle}")], &[]);
    assert_eq!(lost, [(1, 1000, first.clone())]);
    // Nothing is loaded there, and then both again, at any addresses.
    let lost = unloading.lost(&[&alpha, &beta, "-", &alpha, "-", &beta, &alpha], &[]);
    assert_eq!(lost, [(2, 4000, later), (3, 3000, first)]);
}

/// Libraries whose functions have the same names are not one, also without lines and without any name.
#[test]
fn leaks_of_libraries_that_look_the_same_stay_apart() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    for (flag, function) in [("-g0", "enter"), ("-s", "enter")] {
        let one = unloading.library("one.so", "lose", 1000, &[flag]);
        let other = unloading.library("other.so", "lose", 1000, &[flag]);
        let lost = unloading.lost(&[&one, &other], &[]);
        assert_eq!(lost.len(), 2, "{lost:?}");
        for (library, group) in ["one.so", "other.so"].iter().zip(lost) {
            let end = format!(" {library}!{function}");
            assert!(group.2.ends_with(&end), "{flag}: {group:?}");
        }
    }
}

/// A file that was replaced has the names of other code.
#[test]
fn replaced_files_of_unloaded_libraries_name_nothing() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    for flags in [&[][..], &["-Wl,--build-id=none"]] {
        let old = unloading.library("old.so", "old_code", 1000, flags);
        let new = unloading.library("new.so", "new_code", 2000, flags);
        let lost = unloading.lost(&[&old], &[("REPLACE_BY", &new), ("REPLACE", &old)]);
        assert_eq!(lost, [(1, 1000, "old.so!? old.so!?".to_owned())]);
    }
}

/// Without a build id, only the file that was loaded has names: not a later one of the same name. What was loaded from different files
/// stays apart.
#[test]
fn libraries_without_a_build_id_have_no_names_of_other_files() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    let build = || {
        for (name, function, bytes) in [
            ("one.so", "one_code", 1000),
            ("two.so", "two_code", 2000),
            ("end.so", "end_code", 3000),
        ] {
            unloading.library(name, function, bytes, &["-Wl,--build-id=none"]);
            // As long as the other ones, and written at the same time.
            let file = std::fs::File::options()
                .write(true)
                .open(unloading.driver.join(name))
                .expect("it was built");
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
            file.set_modified(time).expect("the time can be set");
        }
    };
    let unnamed = |bytes| (1, bytes, "cur.so!? cur.so!?".to_owned());
    // Removed as soon as it is loaded, as just-in-time compilers do; later another file has its name.
    build();
    let removed = ["+one.so,cur.so", "!./cur.so", "+end.so,cur.so"];
    assert_eq!(unloading.lost(&removed, &[]), [unnamed(1000)]);
    // Two of them.
    build();
    let both = [
        "+one.so,cur.so",
        "!./cur.so",
        "+two.so,cur.so",
        "!./cur.so",
        "+end.so,cur.so",
    ];
    assert_eq!(unloading.lost(&both, &[]), [unnamed(1000), unnamed(2000)]);
    // Replaced before its first call.
    build();
    let replaced = ["+one.so,cur.so", "./cur.so<two.so"];
    assert_eq!(unloading.lost(&replaced, &[]), [unnamed(1000)]);
    // Replaced by a file that looks the same, and that is loaded as well.
    build();
    let again = ["+one.so,cur.so", "./cur.so", "+two.so,cur.so", "./cur.so"];
    let named = (1, 2000, "cur.so!two_code cur.so!enter".to_owned());
    assert_eq!(unloading.lost(&again, &[]), [unnamed(1000), named]);
    // Where nothing was replaced, it has names, and is one library however often it is loaded.
    build();
    let twice = ["./one.so", "./two.so", "./one.so"];
    let one = (2, 2000, "one.so!one_code one.so!enter".to_owned());
    let two = (1, 2000, "two.so!two_code two.so!enter".to_owned());
    assert_eq!(unloading.lost(&twice, &[]), [two, one]);
}

/// A program may leave the folder that the name of a library is relative to before the library's first call.
#[test]
fn libraries_with_a_relative_name_are_found_from_another_folder() {
    let Some(unloading) = Unloading::new() else {
        return;
    };
    for flags in [&[][..], &["-Wl,--build-id=none"]] {
        unloading.library("near.so", "near_code", 1000, flags);
        let lost = unloading.lost(&["^./near.so"], &[]);
        assert_eq!(
            lost,
            [(1, 1000, "near.so!near_code near.so!enter".to_owned())]
        );
    }
}
