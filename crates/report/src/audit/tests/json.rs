//! The JSON of a report, and its schema.

use super::*;

#[test]
fn json_has_everything() {
    let report = with("json", &process());
    let value = read(report.json.trim_end());
    assert_eq!(value["tool"], "cuguard-audit");
    assert_eq!(value["process"], 4711);
    assert_eq!(value["lost"], json!({"count": 3, "bytes": 8 << 20}));
    assert_eq!(
        value["reachable"],
        json!({"count": 13, "bytes": 3_u64 << 30})
    );
    assert_eq!(value["freed_late"]["bytes"], 100);
    let fates: Vec<_> = value["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["fate"].as_str().unwrap())
        .collect();
    assert_eq!(
        fates,
        [
            "lost",
            "lost",
            "reachable",
            "reachable",
            "destroyed_with_context",
            "freed_late"
        ]
    );
    let lost = &value["groups"][0];
    assert_eq!(lost["kind"], "device");
    assert_eq!(lost["stack"][0]["function"], "train");
    assert_eq!(lost["stack"][0]["line"], 20);
    assert_eq!(lost["stack"][0]["class"], "user");
    let cached = &value["groups"][2];
    assert_eq!(cached["holder"], "global `cache` in libfoo.so");
    assert_eq!(cached["stack"][0]["class"], "library");
    assert_eq!(value["by_frame"][0]["name"], "load");
    assert_eq!(value["by_frame"][1]["lost_bytes"], 8 << 20);
    let growth = &value["growth"][0];
    assert_eq!(
        (&growth["blocks"], &growth["seconds"]),
        (&json!(31), &json!(30.0))
    );
    assert_eq!(growth["bytes_per_second"], (31 << 20) / 30);
    assert_eq!(value["peak"]["by_frame"][1]["name"], "train");
    assert_eq!(value["unrecorded_functions"][0]["calls"], 3);
    assert_eq!(value["search"]["cut_short"], json!(null));
    assert_eq!(value["groups_not_shown"], 0);
    assert_eq!(value["refused_count"], 3);
    let refused = &value["refused"][0];
    assert_eq!(refused["function"], "cuMemAlloc_v2");
    assert_eq!(refused["kind"], "device");
    assert_eq!(
        (&refused["bytes"], &refused["count"]),
        (&json!(1 << 30), &json!(3))
    );
    assert_eq!(refused["largest_bytes"], 2_u64 << 30);
    assert_eq!(refused["diagnosis"], "why\n  because\n");
    assert_eq!(refused["stack"][0]["function"], "load");
    let few = read(with("json,max=1", &process()).json.trim_end());
    assert_eq!(few["groups"].as_array().unwrap().len(), 4);
    assert_eq!(few["groups_not_shown"], 2);
    assert_eq!(few["lost"], value["lost"]);
}

/// Every member stands in the document.
#[test]
fn the_schema_names_every_member() {
    let schema = include_str!("../../../../../docs/audit-report-schema.md");
    let mut process = process();
    process.failure = Some(Failure {
        function: "cuMemFree_v2".to_owned(),
        code: 700,
    });
    let value = read(with("json", &process).json.trim_end());
    for name in member_names(&value) {
        assert!(schema.contains(&format!("`{name}`")), "{name}");
    }
}
