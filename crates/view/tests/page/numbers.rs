//! Every view against figures that are computed from the run.

use cuguard_view::{At, By, FOREVER, Look, MarkKind, Origin, Overview, Ranks, Run};
use serde_json::{Value, json};

use super::support::browser::{Browser, start};
use super::support::builder::{Builder, DEVICE, MIB, PINNED};
use super::support::shown::{choose, figure, html, moment, rows, window};
use super::support::{expected, runs};

#[test]
fn every_view_shows_the_numbers_of_the_run() {
    let Some(mut browser) = start("every_view_shows_the_numbers_of_the_run") else {
        return;
    };
    for run in [runs::small(), runs::fragmented(), runs::training(6, true)] {
        browser.open(&html(std::slice::from_ref(&run)));
        let (time, peak) = expected::peak(&run);
        let alive = expected::alive(&run, time);

        let ooms = run
            .marks
            .iter()
            .filter(|mark| matches!(mark.kind, MarkKind::OutOfMemory { .. }))
            .count();
        let device: Vec<_> = run
            .allocations
            .iter()
            .filter(|allocation| expected::on_device(&run, allocation))
            .collect();
        let leaked = expected::never_freed(&run);
        let pages = expected::pages(&run, alive.iter().copied());
        let mut paged = alive.clone();
        paged.retain(|allocation| expected::is_paged(&run, allocation));
        let used = expected::bytes(&paged);
        assert_eq!(figure(&mut browser, "peak"), peak);
        assert_eq!(figure(&mut browser, "leaked"), expected::bytes(&leaked));
        assert_eq!(figure(&mut browser, "allocated"), expected::bytes(&device));
        assert_eq!(figure(&mut browser, "oom"), ooms as u64);
        // Each of them has one failed allocation.
        let failed = run.marks.iter().find_map(|mark| match mark.kind {
            MarkKind::OutOfMemory { .. } => Some(mark.time),
            _ => None,
        });
        let failed = failed.expect("a failed allocation");
        assert_eq!(
            figure(&mut browser, "wasted"),
            expected::wasted(&run, failed)
        );

        // The peak is chosen at first; the flame graph is open.
        assert_eq!(moment(&mut browser), (time, peak, alive.len() as u64));
        assert_eq!(
            browser.number("Number(document.querySelector('.frame.root').dataset.bytes)") as u64,
            peak
        );

        browser.click("[data-value=table]");
        let by_site = expected::groups(&alive, |allocation| {
            u64::from(expected::call_site(&run, allocation))
        });
        let mut shown = rows(&mut browser);
        shown.sort_unstable();
        assert_eq!(
            shown,
            by_site
                .into_iter()
                .map(|(site, (bytes, count))| (site, bytes, count))
                .collect::<Vec<_>>()
        );

        browser.click("[data-value=map]");
        let ever = expected::pages(&run, &run.allocations);
        let free = ever.difference(&pages).copied().collect();
        assert_eq!(figure(&mut browser, "map-used"), used);
        assert_eq!(
            figure(&mut browser, "map-wasted"),
            pages.len() as u64 * expected::PAGE - used
        );
        assert_eq!(
            figure(&mut browser, "map-free"),
            (ever.len() - pages.len()) as u64 * expected::PAGE
        );
        assert_eq!(
            figure(&mut browser, "map-largest"),
            expected::longest_row(&free) * expected::PAGE
        );

        let leaks = browser.eval("[...document.querySelectorAll('#leaks .entry')].map((entry) => [entry.dataset.site, entry.dataset.bytes].map(Number))");
        let mut groups: Vec<(u32, u64)> =
            expected::groups(&leaked, |allocation| expected::call_site(&run, allocation))
                .into_iter()
                .map(|(site, (bytes, _))| (site, bytes))
                .collect();
        groups.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        assert_eq!(leaks, json!(groups));
        browser.assert_silent();
    }
}

#[test]
fn the_summary_is_in_words() {
    let Some(mut browser) = start("the_summary_is_in_words") else {
        return;
    };
    browser.open(&html(&[runs::small()]));
    let words = browser.text("document.getElementById('words').textContent");
    assert_eq!(
        words.trim(),
        "Device memory peaked at 69.00 MiB after 114 ms; 93 % of it was allocated by solver::grid::Grid::new (grid.rs:41). \
         3 resources (5.00 MiB) were not freed, from 2 call sites, most of it from solver::halo::exchange (halo.rs:77)."
    );
    // A leak has its stack trace with source lines.
    browser.click("#leaks .entry summary");
    browser.wait("document.querySelector('#leaks .stack')");
    let stack = browser.text("[...document.querySelectorAll('#leaks .stack li')].map((line) => [...line.children].map((part) => part.textContent).join(' ')).join('\\n')");
    assert_eq!(
        stack,
        "cuguard::DeviceBuffer::zeroed buffer.rs:90\nsolver::halo::exchange src/halo.rs:77\nsolver::main src/main.rs:20"
    );
    browser.assert_silent();
}

/// A card that small blocks fill, of which every other one is freed: nothing is wasted at the peak, and half of all pages is
/// when a large block fails.
fn half_freed() -> Run {
    let mut b = Builder::new("./fragmentation");
    let site = b.site("u8", &["!fill|src/main.cu|12|fragmentation"]);
    let blocks: Vec<usize> = (0..512)
        .map(|_| b.allocate(site, DEVICE, MIB, ""))
        .collect();
    for index in blocks.into_iter().step_by(2) {
        b.free(index);
    }
    runs::fail(&mut b, site, 300 * MIB);
    b.finish()
}

#[test]
fn each_failed_allocation_has_its_diagnosis_and_the_waste_at_that_moment() {
    let Some(mut browser) =
        start("each_failed_allocation_has_its_diagnosis_and_the_waste_at_that_moment")
    else {
        return;
    };
    let run = half_freed();
    let Some(MarkKind::OutOfMemory { diagnosis, .. }) = run.marks.last().map(|mark| &mark.kind)
    else {
        panic!("the last mark is the failure");
    };
    browser.open(&html(std::slice::from_ref(&run)));
    assert_eq!(figure(&mut browser, "wasted"), 256 * MIB);
    let tile = browser.text("document.querySelector('[data-figure=wasted]').textContent");
    assert_eq!(tile, "Wasted at the failure256 MiB50 % of 512 MiB in pages");
    let words = browser.text("document.getElementById('words').textContent");
    assert!(
        words.contains(
            "256 MiB (50 % of 512 MiB in pages of 2 MiB) was wasted: memory is fragmented."
        ),
        "{words}"
    );
    let failed = browser.text("document.querySelector('#failed summary').textContent");
    assert!(
        failed.starts_with("300 MiB failed after 512 µs in fill (main.cu:12), thread main; 256 MiB wasted then, 50 % of 512 MiB in pages")
            && failed.contains("lie unused in 256 pages that small blocks keep"),
        "{failed}"
    );
    browser.click("#failed summary");
    browser.wait("document.querySelector('#failed .diagnosis')");
    let shown = browser.text("document.querySelector('#failed .diagnosis').textContent");
    assert_eq!(&shown, diagnosis);
    // The button shows the moment, and its memory map.
    browser.click("#failed button");
    assert_eq!(
        moment(&mut browser).0,
        run.marks.last().expect("the failure").time
    );
    assert_eq!(figure(&mut browser, "map-wasted"), 256 * MIB);

    // A second failure of the call site, whose diagnosis is not recorded, and many more.
    let mut run = run;
    let mark = run.marks.last().expect("the failure").clone();
    for number in 1..20 {
        let mut mark = mark.clone();
        mark.time += number;
        if let MarkKind::OutOfMemory { diagnosis, .. } = &mut mark.kind {
            diagnosis.clear();
        }
        run.end = mark.time;
        run.marks.push(mark);
    }
    browser.open(&html(std::slice::from_ref(&run)));
    let count = "document.querySelectorAll('#failed details').length";
    assert_eq!(browser.number(count), 5.0);
    browser.click("#failed > button");
    assert_eq!(browser.number(count), 20.0);
    browser.click("#failed details:nth-child(2) summary");
    browser.wait("document.querySelector('#failed details:nth-child(2) .failed-body')");
    let body = browser.text("document.querySelector('#failed details:nth-child(2) p').textContent");
    assert_eq!(
        body,
        "The diagnosis of this call site is that of the failure after 512 µs."
    );
    browser.assert_silent();
}

/// Whatever is not lost may be as it should: it is in another colour than a leak.
#[test]
fn red_is_for_lost_memory() {
    let Some(mut browser) = start("red_is_for_lost_memory") else {
        return;
    };
    // Texts and areas with a saturated red.
    let red = "[...document.querySelectorAll('body *')].filter((e) => {
        if (!e.checkVisibility()) return false;
        const style = getComputedStyle(e);
        const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        return [own ? style.color : '', style.backgroundColor, style.borderTopWidth === '0px' ? '' : style.borderTopColor].some((color) => {
            const [r, g, b, a = 1] = (color.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
            const [most, least] = [Math.max(r, g, b), Math.min(r, g, b)];
            // Red is largest, and the others are about equal: a hue of at most 20 degrees.
            return a > 0 && most === r && most - least > 40 && Math.abs(g - b) < (most - least) / 3;
        });
    }).map((e) => `${e.className} ${e.textContent}`)";
    let lost = runs::searched(runs::small(), |one| one.kind == DEVICE);
    for scheme in ["light", "dark"] {
        for run in [runs::small(), runs::training(6, true), half_freed()] {
            browser.open_at(
                &html(std::slice::from_ref(&run)),
                &format!("#scheme={scheme}&at=oom"),
            );
            assert_eq!(browser.eval(red), json!([]), "{scheme}: {}", run.command);
        }
        browser.open_at(
            &html(std::slice::from_ref(&lost)),
            &format!("#scheme={scheme}"),
        );
        assert_eq!(figure(&mut browser, "lost"), 5 * MIB + 700);
        assert_eq!(
            browser.eval(red),
            json!(["tile-value 5.00 MiB", " 5.00 MiB"]),
            "{scheme}: the tile and the list"
        );
        let words = browser.text("document.getElementById('words').textContent");
        assert!(
            words.contains(
                "2 resources (5.00 MiB) are lost, all from solver::halo::exchange (halo.rs:77)"
            ) && words.contains("1 resource (0 B) was still reachable at exit."),
            "{words}"
        );
    }
    browser.assert_silent();
}

#[test]
fn times_count_from_the_start_of_the_program() {
    let Some(mut browser) = start("times_count_from_the_start_of_the_program") else {
        return;
    };
    // The program ran for 5 s before it used CUDA.
    let later = 5_000_000_000;
    let mut run = runs::small();
    run.begin = later;
    run.end += later;
    for one in &mut run.allocations {
        one.start += later;
        one.end = one.end.saturating_add(later);
    }
    for mark in &mut run.marks {
        mark.time += later;
    }
    browser.open(&html(std::slice::from_ref(&run)));
    assert_eq!(window(&mut browser), (later as f64, run.end as f64));
    assert_eq!(moment(&mut browser).0, expected::peak(&run).0);
    browser.key("Home");
    assert_eq!(moment(&mut browser), (later, 0, 0));
    let page = browser.text("document.body.innerText");
    let origin = "times count from the start of the program";
    assert_eq!(page.matches(origin).count(), 1, "{page}");
    run.origin = Origin::Recording;
    browser.open(&html(std::slice::from_ref(&run)));
    let page = browser.text("document.body.innerText");
    assert!(
        page.contains("times count from the begin of the recording"),
        "{page}"
    );
    browser.assert_silent();
}

#[test]
fn what_grows_is_listed() {
    let Some(mut browser) = start("what_grows_is_listed") else {
        return;
    };
    let names = |browser: &mut Browser| {
        browser.click("[data-value=growth]");
        browser.eval(
            "[...document.querySelectorAll('#leaks .entry .name')].map((name) => name.textContent)",
        )
    };
    browser.open(&html(&[runs::training(20, true)]));
    assert_eq!(names(&mut browser), json!(["remember"]));
    // Activations come and go, parameters are allocated once: neither is one.
    browser.open(&html(&[runs::training(20, false)]));
    assert_eq!(names(&mut browser), json!([]));
    assert!(
        browser
            .text("document.getElementById('leaks').textContent")
            .contains("No call site grows")
    );
    browser.assert_silent();
}

#[test]
fn ranks_stand_side_by_side() {
    let Some(mut browser) = start("ranks_stand_side_by_side") else {
        return;
    };
    let ranks = runs::ranks();
    browser.open(&html(&ranks));
    let peaks: Vec<u64> = ranks.iter().map(|run| expected::peak(run).1).collect();
    let table = browser.eval("[...document.querySelectorAll('#rank-table .row')].map((row) => [row.dataset.run, row.dataset.peak].map(Number))");
    assert_eq!(
        table,
        json!([[2, peaks[2]], [0, peaks[0]], [1, peaks[1]], [3, peaks[3]]]),
        "the one that differs is first"
    );
    assert!(
        browser
            .text("document.getElementById('rank-words').textContent")
            .starts_with("Rank 2 · node-1 differs most")
    );
    assert_eq!(figure(&mut browser, "peak"), peaks[2], "and it is open");
    browser.click("[data-run='0']");
    browser.wait(&format!(
        "Number(document.querySelector('[data-figure=peak]').dataset.value) === {}",
        peaks[0]
    ));
    assert_eq!(figure(&mut browser, "leaked"), 0);
    assert_eq!(
        browser.text("document.getElementById('run-select').value"),
        "0"
    );
    browser.assert_silent();
}

#[test]
fn empty_and_unfinished_runs_say_so() {
    let Some(mut browser) = start("empty_and_unfinished_runs_say_so") else {
        return;
    };
    browser.open(&html(&[Run::default()]));
    assert!(
        browser
            .text("document.getElementById('words').textContent")
            .contains("Nothing was allocated")
    );
    for tab in ["table", "map", "flame"] {
        browser.click(&format!("#moment [data-value={tab}]"));
        assert_eq!(
            browser.number("document.querySelectorAll('#panel .empty').length"),
            1.0,
            "{tab}"
        );
    }
    let mut run = runs::small();
    run.exited = false;
    browser.open(&html(&[run]));
    let text = browser.text("document.querySelector('main').textContent");
    assert!(
        text.contains("did not exit")
            && text.contains("were alive at the end")
            && !text.contains("were not freed")
    );
    browser.assert_silent();
}

#[test]
fn a_page_of_samples_says_so() {
    let Some(mut browser) = start("a_page_of_samples_says_so") else {
        return;
    };
    for (sample, notices) in [(0, 0), (100, 1)] {
        let run = Run {
            sample,
            ..runs::small()
        };
        browser.open(&html(std::slice::from_ref(&run)));
        let shown = "document.querySelectorAll('[data-notice=caveat]').length";
        assert_eq!(browser.number(shown), f64::from(notices));
    }
    let notice = browser.text("document.querySelector('[data-notice=caveat]').textContent");
    assert!(
        notice.starts_with("Note: at least one resource in 100 is recorded (sample=100, the largest of all contexts): "),
        "{notice}"
    );
    browser.assert_silent();
}

#[test]
fn a_page_of_a_leak_report_has_no_history() {
    let Some(mut browser) = start("a_page_of_a_leak_report_has_no_history") else {
        return;
    };
    let mut report = runs::small();
    report.is_report = true;
    report.marks.clear();
    for allocation in &mut report.allocations {
        allocation.end = FOREVER;
    }
    // Device memory is at its peak before pinned memory is allocated.
    let last = report.allocations.last_mut().expect("there are some");
    last.kind = PINNED;
    browser.open(&html(std::slice::from_ref(&report)));
    for figure in ["peak", "allocated", "oom"] {
        let tile = format!("document.querySelector('[data-figure={figure}]').textContent");
        let tile = browser.text(&tile);
        assert!(tile.contains("not known"), "{figure}: {tile}");
    }
    assert_eq!(moment(&mut browser).0, report.end);
    let words = browser.text("document.getElementById('words').textContent");
    assert!(!words.contains("peak"), "{words}");
    let title = browser.text("document.getElementById('moment-title').textContent");
    assert!(!title.contains("peak"), "{title}");
    browser.open(&html(&[report.clone(), report.clone()]));
    let ranks = browser.text("document.getElementById('ranks').textContent");
    assert!(!ranks.to_lowercase().contains("peak"), "{ranks}");

    // Beside recordings a leak report, which lists more than each of them had at its peak, is not compared.
    let mut larger = runs::small();
    larger.allocations[0].bytes += 5 << 20;
    let words = "document.getElementById('rank-words').textContent";
    for (runs, expected) in [
        (
            vec![report.clone(), runs::small()],
            "The peak of a leak report is not known. There is no other peak to compare with.",
        ),
        (
            vec![report.clone(), runs::small(), runs::small()],
            "The peak of a leak report is not known. The peaks of all 2 recordings are equal.",
        ),
    ] {
        browser.open(&html(&runs));
        assert_eq!(browser.text(words), expected);
    }
    browser.open(&html(&[report, runs::small(), larger]));
    let words = browser.text(words);
    assert!(
        words.contains("differs most: its peak is 5 MiB above the median of "),
        "{words}"
    );
    let rows = browser.eval("[...document.querySelectorAll('#rank-table tbody tr')].map((row) => [row.dataset.run, row.children[3].textContent])");
    assert_eq!(rows[0][0], "2");
    assert_eq!(rows[2], json!(["0", "not known"]));
    browser.assert_silent();
}

/// A context that is closed before the exit frees what the program did not: that is a leak all the same.
#[test]
fn what_ended_with_its_context_is_a_leak() {
    let Some(mut browser) = start("what_ended_with_its_context_is_a_leak") else {
        return;
    };
    let mut run = runs::small();
    let end = run.end;
    for allocation in &mut run.allocations {
        if allocation.end == FOREVER {
            (allocation.end, allocation.leaked) = (end, true);
        }
    }
    let leaked = expected::never_freed(&run);
    assert_eq!(leaked.len(), 3);
    browser.open(&html(std::slice::from_ref(&run)));
    assert_eq!(figure(&mut browser, "leaked"), expected::bytes(&leaked));
    let words = browser.text("document.getElementById('words').textContent");
    assert!(
        words.contains("3 resources (5.00 MiB) were not freed, from 2 call sites"),
        "{words}"
    );
    let leaks = browser.text("document.getElementById('leaks').textContent");
    assert!(
        leaks.contains("3 resources ended with a context and had not been freed."),
        "{leaks}"
    );
    assert!(!leaks.contains("Everything was freed"), "{leaks}");
    browser.assert_silent();
}

#[test]
fn the_page_agrees_with_the_report_in_json() {
    let Some(mut browser) = start("the_page_agrees_with_the_report_in_json") else {
        return;
    };
    for run in [runs::small(), runs::fragmented(), runs::training(6, true)] {
        let look = Look {
            by: By::Label,
            ..Look::default()
        };
        let overview = Overview::new(&run, At::Peak).expect("every run has a peak");
        let report = cuguard_view::json(&[overview], look);
        let report: Value = serde_json::from_str(&report).expect("it is JSON");
        let report = &report["runs"][0];
        browser.open_at(&html(std::slice::from_ref(&run)), "#view=table");
        assert_eq!(report["peak"]["device_bytes"], figure(&mut browser, "peak"));
        assert_eq!(report["end"]["bytes"], figure(&mut browser, "leaked"));
        let failed = report["out_of_memory"].as_array().expect("a list").len();
        assert_eq!(failed as u64, figure(&mut browser, "oom"));
        assert_eq!(report["moment"]["device_bytes"], moment(&mut browser).1);

        choose(&mut browser, "Group by", "label");
        let groups = report["groups"].as_array().expect("groups").iter();
        let mut want: Vec<u64> = groups
            .filter_map(|group| group["device_bytes"].as_u64())
            .filter(|bytes| *bytes > 0)
            .collect();
        let mut shown: Vec<u64> = rows(&mut browser)
            .iter()
            .map(|(_, bytes, _)| *bytes)
            .collect();
        want.sort_unstable();
        shown.sort_unstable();
        assert_eq!(shown, want);
    }
    let ranks = runs::ranks();
    let overviews: Vec<_> = ranks
        .iter()
        .map(|run| Overview::new(run, At::Peak).expect("every run has a peak"))
        .collect();
    let want: Vec<_> = Ranks::new(&overviews)
        .rows
        .iter()
        .map(|row| row.overview.moment.run.rank)
        .collect();
    browser.open(&html(&ranks));
    let shown = browser.eval(
        "[...document.querySelectorAll('#rank-table .row')].map((row) => Number(row.dataset.run))",
    );
    assert_eq!(shown, json!(want), "the same order");
    browser.assert_silent();
}
