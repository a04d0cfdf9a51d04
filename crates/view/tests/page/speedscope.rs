//! Profiles in speedscope itself. Without its release, each test prints that it was not run: `scripts/fetch-speedscope.sh FOLDER`
//! fetches it, and `CUGUARD_SPEEDSCOPE=FOLDER` says where it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use cuguard_view::{At, Frames, Moment, folded, moment, pprof};
use serde_json::Value;

use super::support::browser::{Borrowed, Browser, start};
use super::support::runs;

/// The folder of speedscope's release, and a browser.
fn speedscope(test: &str) -> Option<(PathBuf, Borrowed)> {
    let folder = std::env::var_os("CUGUARD_SPEEDSCOPE").map(PathBuf::from);
    let Some(folder) = folder.filter(|folder| folder.join("index.html").is_file()) else {
        cuguard_testing::not_run(cuguard_testing::Requirement::Speedscope, test);
        return None;
    };
    Some((folder, start(test)?))
}

/// Opens a file in speedscope, and returns the rows of its table of functions: total, self, name.
fn table(
    folder: &std::path::Path,
    browser: &mut Browser,
    name: &str,
    bytes: &[u8],
) -> Vec<[String; 3]> {
    let file = browser.folder().join(name);
    fs::write(&file, bytes).expect("the profile is written");
    browser.visit(&format!("file://{}/index.html", folder.display()));
    browser.wait("document.querySelector('input[type=file]')");
    browser.choose_file("input[type=file]", &file);
    browser.wait(&format!("document.title.startsWith({name:?})"));
    let tab = "[...document.querySelectorAll('div')].filter((div) => div.textContent.endsWith('Sandwich')).pop()";
    browser.wait(tab);
    browser.eval(&format!("{tab}.click()"));
    browser.wait("document.querySelectorAll('tr').length > 1");
    let rows = browser.eval(
        "[...document.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => cell.innerText.trim())).filter((row) => !row.includes('Symbol Name'))",
    );
    let text = |cell: &Value| cell.as_str().expect("a text").to_owned();
    let rows = rows.as_array().expect("rows").iter().map(|row| {
        let cells: Vec<String> = row.as_array().expect("cells").iter().map(text).collect();
        cells.try_into().unwrap_or_else(|row| panic!("{row:?}"))
    });
    rows.collect()
}

/// Bytes by function: of all stacks with it, and of those where it is the innermost.
fn by_function(moment: &Moment<'_>) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let run = moment.run;
    for index in &moment.alive {
        let allocation = &run.allocations[*index as usize];
        let frames = &run.sites[allocation.site as usize].frames;
        if allocation.bytes == 0 {
            continue;
        }
        let mut names: Vec<&str> = frames.iter().map(|frame| &*frame.function).collect();
        sums.entry(names[0].to_owned()).or_default().1 += allocation.bytes;
        names.sort_unstable();
        names.dedup();
        for name in names {
            sums.entry(name.to_owned()).or_default().0 += allocation.bytes;
        }
    }
    sums
}

/// Bytes as speedscope writes them.
fn megabytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        0.0..1024.0 => format!("{bytes:.0} B"),
        1024.0..1048576.0 => format!("{:.2} KB", bytes / 1024.0),
        _ => format!("{:.2} MB", bytes / 1048576.0),
    }
}

/// A count as speedscope writes it.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups
        .map(|group| str::from_utf8(group).expect("digits"))
        .collect();
    groups.join(",")
}

#[track_caller]
fn assert_rows(rows: &[[String; 3]], moment: &Moment<'_>, format: fn(u64) -> String) {
    let expected = by_function(moment);
    assert_eq!(rows.len(), expected.len(), "{rows:?} {expected:?}");
    for [total, own, name] in rows {
        let (want, want_own) = expected
            .get(name)
            .unwrap_or_else(|| panic!("{name} of {rows:?}"));
        assert_eq!(total.split(" (").next(), Some(&*format(*want)), "{name}");
        assert_eq!(own.split(" (").next(), Some(&*format(*want_own)), "{name}");
    }
}

#[test]
fn a_profile_opens() {
    let Some((folder, mut browser)) = speedscope("a_profile_opens") else {
        return;
    };
    let run = runs::small();
    let moment = moment(&run, At::Peak).expect("there is a peak");
    let mut profile = Vec::new();
    pprof(&[&moment], Frames::All, &mut profile).expect("memory takes all");
    let rows = table(&folder, &mut browser, "peak.pb.gz", &profile);
    assert_rows(&rows, &moment, megabytes);
}

#[test]
fn folded_stacks_open() {
    let Some((folder, mut browser)) = speedscope("folded_stacks_open") else {
        return;
    };
    let run = runs::small();
    let moment = moment(&run, At::Peak).expect("there is a peak");
    let stacks = folded(&[&moment], Frames::All);
    let rows = table(&folder, &mut browser, "peak.folded", stacks.as_bytes());
    assert_rows(&rows, &moment, thousands);
}
