//! The report of a program that leaks one of every kind.

use std::collections::BTreeMap;

use crate::support::{compile, json, simulated_driver_folder};

#[test]
fn the_report_has_every_kind_with_exact_counts_and_bytes() {
    const MIB: u64 = 1024 * 1024;
    let driver = simulated_driver_folder();
    let source = include_str!("programs/leaks.c");
    let arguments = ["-DWAY=1", "-l:libcuda.so.1"];
    let Some(program) = compile(&driver, "leaks", source, &arguments) else {
        return;
    };
    let report = json(&program, &driver);
    let totals = report["totals"].as_array().expect("totals are an array");
    let number = |total: &serde_json::Value, name: &str| total[name].as_u64().unwrap_or(u64::MAX);
    let live: BTreeMap<_, _> = totals
        .iter()
        .map(|total| {
            let amount = (number(total, "live_count"), number(total, "live_bytes"));
            (total["kind"].as_str().unwrap_or_default(), amount)
        })
        .collect();
    let expected = BTreeMap::from([
        ("device", (3, 3000)),
        ("managed", (1, 2000)),
        ("pinned", (1, 3000)),
        ("write_combined", (1, 4000)),
        ("registered", (1, 8192)),
        ("stream_ordered", (2, 5600)),
        ("array", (1, 8192)),
        ("physical", (1, 2 * MIB)),
        ("mapped", (1, 2 * MIB)),
        ("graph_memory", (1, 7000)),
        ("stream", (1, 0)),
        ("event", (1, 0)),
        ("module", (1, 0)),
        ("memory_pool", (1, 0)),
        ("graph", (1, 0)),
        ("graph_exec", (1, 0)),
        ("address_range", (1, 8 * MIB)),
        ("context", (1, 0)),
        ("library", (1, 0)),
    ]);
    assert_eq!(live, expected, "{report}");
    let destroyed = serde_json::json!({ "count": 1, "bytes": 123 });
    assert_eq!(report["destroyed_with_context"], destroyed, "{report}");
    // The calls are in `main`.
    let groups = report["groups"].as_array().expect("groups are an array");
    assert!(groups.len() >= 20, "{report}");
    for group in groups {
        let frame = &group["stack"][0];
        assert_eq!(frame["function"], "main", "{group}");
    }
}

/// The driver returns the module of a function, and the library of a kernel: who has one of these has not lost the module.
#[test]
fn modules_are_reachable_by_what_is_in_them() {
    let driver = simulated_driver_folder();
    let source = include_str!("programs/parts.c");
    let Some(program) = compile(&driver, "parts", source, &["-l:libcuda.so.1"]) else {
        return;
    };
    let report = json(&program, &driver);
    let groups = report["groups"].as_array().expect("groups are an array");
    let mut found: Vec<_> = groups
        .iter()
        .filter(|group| group["kind"] != "context")
        .map(|group| {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let function = text(&group["stack"][1]["function"]);
            (function, text(&group["fate"]), text(&group["holder"]))
        })
        .collect();
    found.sort();
    let reachable = |function: &str, holder: &str| {
        let holder = format!("global `{holder}` in parts");
        (function.to_owned(), "reachable".to_owned(), holder)
    };
    let lost = |function: &str| (function.to_owned(), "lost".to_owned(), String::new());
    let expected = [
        reachable("by_function", "function"),
        reachable("by_kernel", "kernel"),
        reachable("by_kernel_function", "kernel_function"),
        reachable("by_module", "module"),
        reachable("by_variable", "variable"),
        lost("lose_all"),
        lost("lose_function"),
    ];
    assert_eq!(found, expected, "{report}");
}
