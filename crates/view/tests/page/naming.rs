//! Call sites behind an allocation helper: the page, JSON and text name them after who called it.

use cuguard_view::{At, By, Fate, Look, Memory, Overview, Run, json, read_reports, text, timeline};

use super::support::browser::start;
use super::support::builder::{Builder, DEVICE, MIB};
use super::support::shown::{html, moment};

/// All memory comes from `checked_alloc`, called by `tensor_new`: `load` keeps 16 MiB, `forward` one block in each of its rounds,
/// `forget` loses one.
fn behind_helpers() -> Run {
    let mut b = Builder::new("helper");
    let mut site = |caller: &str| {
        let frames = [
            "!checked_alloc|helper.c|3|helper",
            "!tensor_new|helper.c|4|helper",
            caller,
            "!main|helper.c|8|helper",
        ];
        b.site("", &frames)
    };
    let [load, forward, forget] = ["load|helper.c|5", "forward|helper.c|6", "forget|helper.c|7"]
        .map(|caller| site(&format!("!{caller}|helper")));
    for _ in 0..4 {
        b.allocate(load, DEVICE, 4 * MIB, "");
    }
    for _ in 0..50 {
        let temporary = [(); 2].map(|()| b.allocate(forward, DEVICE, MIB, ""));
        b.allocate(forward, DEVICE, MIB / 4, "");
        b.pass(100_000);
        temporary.into_iter().for_each(|index| b.free(index));
    }
    let lost = b.allocate(forget, DEVICE, 2 * MIB, "");
    b.run.allocations[lost].fate = Fate::Lost;
    b.finish()
}

#[test]
fn text_json_and_the_timeline_look_through_helpers() {
    let run = behind_helpers();
    let overview = Overview::new(&run, At::Exit).expect("there is an exit");
    let document = json(&[overview], Look::default());
    let document: serde_json::Value = serde_json::from_str(&document).expect("it is JSON");
    let groups = document["runs"][0]["groups"].as_array().expect("groups");
    let names: Vec<_> = groups.iter().map(|group| &group["name"]).collect();
    assert_eq!(names, ["load", "forward", "forget"]);
    let look = Look {
        by: By::Function,
        ..Look::default()
    };
    let overview = Overview::new(&run, At::Exit).expect("there is an exit");
    let text = text(&overview, look);
    assert!(
        text.contains("forget: 2 MiB in 1 allocation") && text.contains("  forget  helper.c:7"),
        "{text}"
    );
    let series = timeline(&run, 10, By::Stack, Memory::Device, 3).series;
    let names: Vec<_> = series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["load", "forward", "forget"]);
}

#[test]
fn the_page_looks_through_helpers() {
    let Some(mut browser) = start("the_page_looks_through_helpers") else {
        return;
    };
    browser.open(&html(&[behind_helpers()]));
    let words = browser.text("document.getElementById('words').textContent");
    for sentence in [
        "of it was allocated by load (helper.c:5). ",
        "is lost, all from forget (helper.c:7)",
        "forward (helper.c:6) grows: by 12.50 MiB in 50 allocations",
    ] {
        assert!(words.contains(sentence), "{sentence:?} in {words}");
    }
    // The legend, the table, the lists of what is lost, reachable and growing.
    browser.click("[data-value=table]");
    browser.click("#leaks [data-value=growth]");
    let shown = browser.text("document.body.innerText");
    for name in ["load", "forward"] {
        assert!(shown.contains(name), "{name} in {shown}");
    }
    assert!(!shown.contains("checked_alloc"), "{shown}");
    browser.click("#leaks [data-value=lost]");
    let lost = browser.text("document.querySelector('#leaks .entry').innerText");
    assert!(
        lost.contains("forget") && !lost.contains("checked_alloc"),
        "{lost}"
    );
    // The stack trace has all frames, and so has the flame graph.
    browser.click("[data-value=flame]");
    let frames = browser.text("document.querySelector('.flame').textContent");
    assert!(
        frames.contains("checked_alloc") && frames.contains("tensor_new"),
        "{frames}"
    );
    browser.assert_silent();
}

/// `one` and `other` call `grow`, and neither grows by itself: the page names neither.
#[test]
fn the_page_names_what_grows_together_after_the_frames_in_common() {
    let Some(mut browser) = start("the_page_names_what_grows_together_after_the_frames_in_common")
    else {
        return;
    };
    let mut b = Builder::new("together");
    let callers = ["one", "other"].map(|caller| {
        let frames = [
            "!grow|grow.c|3|app",
            &format!("!{caller}|grow.c|5|app"),
            "!main|grow.c|8|app",
        ];
        b.site("", &frames)
    });
    let work = b.site("", &["!work|grow.c|7|app", "!main|grow.c|8|app"]);
    for round in 0..8 {
        b.allocate(callers[round % 2], DEVICE, MIB, "");
        for _ in 0..20 {
            let temporary = b.allocate(work, DEVICE, 1024, "");
            b.pass(100_000);
            b.free(temporary);
        }
    }
    browser.open(&html(&[b.finish()]));
    let words = browser.text("document.getElementById('words').textContent");
    let sentence = "grow (grow.c:3) grows: by 8 MiB in 8 allocations";
    assert!(words.contains(sentence), "{words}");
    browser.click("#leaks [data-value=growth]");
    browser.click("#leaks .entry summary");
    let entry = browser.text("document.querySelector('#leaks .entry').innerText");
    assert!(
        entry.contains("grow") && !entry.contains("main") && !entry.contains("other"),
        "{entry}"
    );
    browser.assert_silent();
}

/// The first allocation takes another path through a library than the others, from the same line of the program.
#[test]
fn the_page_lists_what_grows_by_several_paths_through_a_library() {
    let Some(mut browser) = start("the_page_lists_what_grows_by_several_paths_through_a_library")
    else {
        return;
    };
    let mut b = Builder::new("paths");
    let paths = ["first", "then"].map(|path| {
        let frames = [
            &format!("{path}|rt.c|9|libcudart.so.13"),
            "!keep|keep.c|3|app",
            "!main|keep.c|8|app",
        ];
        b.site("", &frames)
    });
    let work = b.site("", &["!work|keep.c|7|app", "!main|keep.c|8|app"]);
    for round in 0..30 {
        b.allocate(paths[round.min(1)], DEVICE, MIB, "");
        let temporary = b.allocate(work, DEVICE, 1024, "");
        b.pass(100_000);
        b.free(temporary);
    }
    browser.open(&html(&[b.finish()]));
    browser.click("#leaks [data-value=growth]");
    let shown = browser.text("document.querySelector('#leaks').innerText");
    assert!(shown.contains("keep"), "{shown}");
    assert!(!shown.contains("Nothing matches"), "{shown}");
    browser.assert_silent();
}

/// What ended with its context is shown where the page of a leak report opens.
#[test]
fn the_page_of_a_leak_report_shows_what_ended_with_its_context() {
    let name = "the_page_of_a_leak_report_shows_what_ended_with_its_context";
    let Some(mut browser) = start(name) else {
        return;
    };
    let report = r#"{"version":1,"tool":"cuguard-audit","process":7,"command":"./d","reason":"exit","seconds":2.5,"groups":[
        {"fate":"destroyed_with_context","kind":"device","count":1,"bytes":12582912,"oldest_seconds":0.0,"youngest_seconds":0.0,"addresses":[],"stack":[]}]}"#;
    let report = report.replace('\n', "");
    let runs = read_reports(report.as_bytes(), "d.json").expect("it is a report");
    browser.open(&html(&runs));
    let (_, bytes, count) = moment(&mut browser);
    assert_eq!((bytes, count), (12 * MIB, 1));
    // The report does not say where they were, and so nothing of pages.
    let tile = browser.text("document.querySelector('[data-figure=wasted]').textContent");
    assert_eq!(tile, "Wasted in the report0 Bno pages in use");
    browser.assert_silent();
}
