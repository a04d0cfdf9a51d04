//! The page in a real browser. Without one, each test prints that it was not run.

mod page_support;

use cuguard_view::{MarkKind, Run, page};
use page_support::browser::{Browser, start};
use page_support::builder::MIB;
use page_support::{expected, runs};
use serde_json::{Value, json};

fn html(runs: &[Run]) -> Vec<u8> {
    let mut html = Vec::new();
    page::write(runs, &mut html, &page::Options::default()).expect("memory takes all");
    html
}

/// The raw value of a figure.
fn figure(browser: &mut Browser, name: &str) -> u64 {
    browser.number(&format!(
        "Number(document.querySelector('[data-figure={name}]').dataset.value)"
    )) as u64
}

/// The chosen moment: its time, bytes and count.
fn moment(browser: &mut Browser) -> (u64, u64, u64) {
    let value = browser.eval("(() => { const d = document.querySelector('[data-figure=moment]').dataset; return [d.time, d.value, d.count].map(Number); })()");
    let number = |index: usize| value[index].as_f64().expect("a number") as u64;
    (number(0), number(1), number(2))
}

/// Key, bytes and count of the rows of the table, in their order.
fn rows(browser: &mut Browser) -> Vec<(u64, u64, u64)> {
    let value = browser.eval("[...document.querySelectorAll('#groups .row')].map((row) => [row.dataset.key, row.dataset.bytes, row.dataset.count].map(Number))");
    let number = |value: &Value| value.as_f64().expect("a number") as u64;
    value
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (number(&row[0]), number(&row[1]), number(&row[2])))
        .collect()
}

/// A point of the timeline: a part of its width, in its middle.
fn timeline_point(browser: &mut Browser, part: f64) -> (f64, f64) {
    let value = browser.eval("(() => { const o = document.querySelector('.u-over'); o.scrollIntoView({ block: 'center' }); const b = o.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()");
    let number = |index: usize| value[index].as_f64().expect("a number");
    (number(0) + number(2) * part, number(1) + number(3) / 2.0)
}

/// The window of the timeline, in nanoseconds.
fn window(browser: &mut Browser) -> (f64, f64) {
    (
        browser.number("Number(document.querySelector('.plot').dataset.from)"),
        browser.number("Number(document.querySelector('.plot').dataset.to)"),
    )
}

fn assert_moment(browser: &mut Browser, run: &Run) {
    let (time, bytes, count) = moment(browser);
    let alive = expected::alive(run, time);
    assert_eq!(
        (bytes, count),
        (expected::bytes(&alive), alive.len() as u64),
        "at {time} ns"
    );
}

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
        assert_eq!(figure(&mut browser, "peak"), peak);
        assert_eq!(figure(&mut browser, "leaked"), expected::bytes(&leaked));
        assert_eq!(figure(&mut browser, "allocated"), expected::bytes(&device));
        assert_eq!(
            figure(&mut browser, "wasted"),
            pages.len() as u64 * expected::PAGE - peak
        );
        assert_eq!(figure(&mut browser, "oom"), ooms as u64);

        // The peak is chosen at first; the flame graph is open.
        assert_eq!(moment(&mut browser), (time, peak, alive.len() as u64));
        assert_eq!(
            browser.number("Number(document.querySelector('.frame.root').dataset.bytes)") as u64,
            peak
        );

        browser.click("[data-value=table]");
        let by_site = expected::groups(&alive, |allocation| u64::from(allocation.site));
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
        assert_eq!(figure(&mut browser, "map-used"), peak);
        assert_eq!(
            figure(&mut browser, "map-wasted"),
            pages.len() as u64 * expected::PAGE - peak
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
        let mut groups: Vec<(u32, u64)> = expected::groups(&leaked, |allocation| allocation.site)
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
         3 resources (5.00 MiB) were not freed, from 2 call sites, most of it from solver::halo::exchange (halo.rs:77). \
         An allocation of 4 GiB failed for lack of memory at 124 ms in solver::grid::Grid::new (grid.rs:41)."
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

#[test]
fn what_grows_is_a_suspect() {
    let Some(mut browser) = start("what_grows_is_a_suspect") else {
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
            .contains("No call site keeps growing")
    );
    browser.assert_silent();
}

#[test]
fn a_click_chooses_a_moment_and_a_drag_zooms() {
    let Some(mut browser) = start("a_click_chooses_a_moment_and_a_drag_zooms") else {
        return;
    };
    let run = runs::training(8, true);
    browser.open(&html(std::slice::from_ref(&run)));
    let mut times = Vec::new();
    for part in [0.02, 0.3, 0.45, 0.7, 0.9] {
        let point = timeline_point(&mut browser, part);
        browser.drag(point, point);
        assert_moment(&mut browser, &run);
        let (time, ..) = moment(&mut browser);
        let near = run.end as f64 * part;
        assert!(
            (time as f64 - near).abs() < run.end as f64 * 0.01,
            "{time} is not near {near}"
        );
        times.push(time);
    }
    assert!(times.is_sorted());

    let (from, to) = (
        timeline_point(&mut browser, 0.25),
        timeline_point(&mut browser, 0.5),
    );
    browser.drag(from, to);
    let (low, high) = window(&mut browser);
    let end = run.end as f64;
    assert!(
        (low - 0.25 * end).abs() < 0.01 * end && (high - 0.5 * end).abs() < 0.01 * end,
        "{low} to {high} of {end}"
    );
    // The drag's end is no click.
    assert_eq!(moment(&mut browser).0, times[4]);
    let point = timeline_point(&mut browser, 0.5);
    browser.drag(point, point);
    assert_moment(&mut browser, &run);
    let (time, ..) = moment(&mut browser);
    assert!(
        (time as f64 - 0.375 * end).abs() < 0.01 * end,
        "{time} of {end}"
    );

    let point = timeline_point(&mut browser, 0.5);
    browser.mouse("mouseMoved", point, 0);
    browser.wait("!document.getElementById('tip').hidden");
    assert!(
        browser
            .text("document.getElementById('tip').textContent")
            .contains("model.py:22")
    );

    browser.click("#zoom-reset");
    assert_eq!(window(&mut browser), (0.0, end));
    browser.assert_silent();
}

#[test]
fn search_sort_group_and_filter() {
    let Some(mut browser) = start("search_sort_group_and_filter") else {
        return;
    };
    let run = runs::training(6, true);
    browser.open(&html(std::slice::from_ref(&run)));
    let (time, _) = expected::peak(&run);
    let alive = expected::alive(&run, time);
    browser.click("[data-value=table]");

    let shown = rows(&mut browser);
    assert!(
        shown.is_sorted_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes)),
        "the largest first"
    );
    browser.click("[data-column=count] button");
    assert!(rows(&mut browser).is_sorted_by_key(|(.., count)| std::cmp::Reverse(*count)));
    browser.click("[data-column=count] button");
    assert!(rows(&mut browser).is_sorted_by_key(|(.., count)| *count));
    browser.click("[data-column=name] button");
    let names = browser.eval("[...document.querySelectorAll('#groups .name')].map((name) => name.textContent.toLowerCase())");
    assert!(
        names
            .as_array()
            .expect("names")
            .iter()
            .map(Value::as_str)
            .is_sorted()
    );

    // Every word must match, in a file here and a label there.
    browser.key("/");
    browser.type_text("GPT activations");
    browser.wait("document.querySelectorAll('#groups .row').length === 2");
    let label = run
        .names
        .iter()
        .position(|name| name == "activations")
        .expect("the label") as u32;
    let matching: Vec<_> = alive
        .iter()
        .copied()
        .filter(|allocation| allocation.label == label)
        .collect();
    let (_, bytes, count) = moment(&mut browser);
    assert_eq!(
        (bytes, count),
        (expected::bytes(&matching), matching.len() as u64)
    );
    browser.key("Escape");
    browser.wait(&format!(
        "document.querySelectorAll('#groups .row').length === {}",
        shown.len()
    ));

    browser.eval("(() => { const s = document.querySelector('#panel [aria-label=\"Group by\"]'); s.value = 'label'; s.dispatchEvent(new Event('change')); })()");
    let mut by_label = rows(&mut browser);
    by_label.sort_unstable();
    let want = expected::groups(&alive, |allocation| u64::from(allocation.label));
    assert_eq!(
        by_label,
        want.into_iter()
            .map(|(key, (bytes, count))| (key, bytes, count))
            .collect::<Vec<_>>()
    );

    browser.eval("(() => { const s = document.querySelector('#panel [aria-label=\"Allocation\"]'); s.value = String(2 ** 24); s.dispatchEvent(new Event('change')); })()");
    let large: Vec<_> = alive
        .iter()
        .copied()
        .filter(|allocation| allocation.bytes >= 16 * MIB)
        .collect();
    assert_eq!(
        rows(&mut browser)
            .iter()
            .map(|(_, bytes, _)| bytes)
            .sum::<u64>(),
        expected::bytes(&large)
    );

    // The timeline's legend has the bytes of the moment, in groups.
    browser.click("#timeline [data-value=label]");
    let legend = browser.number("[...document.querySelectorAll('.legend-value')].reduce((sum, value) => sum + Number(value.dataset.value), 0)");
    assert_eq!(legend as u64, expected::bytes(&alive));
    browser.assert_silent();
}

#[test]
fn the_keyboard_moves_the_moment() {
    let Some(mut browser) = start("the_keyboard_moves_the_moment") else {
        return;
    };
    let run = runs::small();
    browser.open(&html(std::slice::from_ref(&run)));
    let (peak, _) = expected::peak(&run);
    browser.key("ArrowLeft");
    assert!(moment(&mut browser).0 < peak);
    assert_moment(&mut browser, &run);
    browser.key("ArrowRight");
    assert_eq!(moment(&mut browser).0, peak);
    // Each event is a step where they are few: the first free after the peak.
    browser.key("ArrowRight");
    let after = run
        .allocations
        .iter()
        .flat_map(|allocation| [allocation.start, allocation.end])
        .filter(|time| *time > peak)
        .min();
    assert_eq!(Some(moment(&mut browser).0), after);
    browser.key("Home");
    assert_eq!(moment(&mut browser), (0, 0, 0));
    browser.key("o");
    let failed = run
        .marks
        .iter()
        .find(|mark| matches!(mark.kind, MarkKind::OutOfMemory { .. }))
        .expect("the mark");
    assert_eq!(moment(&mut browser).0, failed.time);
    assert_moment(&mut browser, &run);
    assert!(
        browser
            .text("document.querySelector('.failure').textContent")
            .contains("4 GiB failed here")
    );
    browser.key("End");
    assert_eq!(moment(&mut browser).0, run.end);
    assert_moment(&mut browser, &run);
    browser.key("p");
    assert_eq!(moment(&mut browser).0, peak);
    browser.key("+");
    let (from, to) = window(&mut browser);
    assert!(to - from < 0.6 * run.end as f64);
    browser.key("0");
    assert_eq!(window(&mut browser), (0.0, run.end as f64));
    for (key, tab) in [("2", "table"), ("3", "map"), ("1", "flame")] {
        browser.key(key);
        assert_eq!(
            browser.text("document.querySelector('#moment [aria-selected=true]').dataset.value"),
            tab
        );
    }
    browser.key("?");
    assert_eq!(
        browser.eval("document.getElementById('help').open"),
        json!(true)
    );
    browser.key("Escape");
    browser.wait("!document.getElementById('help').open");
    browser.assert_silent();
}

#[test]
fn a_frame_of_the_flame_graph_can_be_enlarged() {
    let Some(mut browser) = start("a_frame_of_the_flame_graph_can_be_enlarged") else {
        return;
    };
    let run = runs::training(6, true);
    browser.open(&html(std::slice::from_ref(&run)));
    let width = "document.querySelector('.frame[data-name=build]').style.width";
    let before = browser.text(width);
    assert_ne!(before, "100%");
    browser.click(".frame[data-name=build]");
    assert_eq!(browser.text(width), "100%");
    assert_eq!(
        browser.number("document.querySelectorAll('.frame.caller').length"),
        2.0,
        "all and main"
    );
    let site = run
        .sites
        .iter()
        .position(|site| site.frames.iter().any(|frame| frame.function == "build"))
        .expect("the site") as u32;
    let alive = expected::alive(&run, expected::peak(&run).0);
    let want: u64 = alive
        .iter()
        .filter(|allocation| allocation.site == site)
        .map(|allocation| allocation.bytes)
        .sum();
    assert_eq!(
        browser.number("Number(document.querySelector('.frame[data-name=build]').dataset.bytes)")
            as u64,
        want
    );
    browser.click("#flame-reset");
    assert_eq!(browser.text(width), before);
    browser.click("#app-only");
    assert_eq!(
        browser.number("document.querySelectorAll('.frame.library').length"),
        1.0,
        "sites without any frame of the program are one"
    );
    browser.assert_silent();
}

#[test]
fn hostile_names_stay_text() {
    let run = runs::hostile();
    let page = html(std::slice::from_ref(&run));
    assert!(
        !String::from_utf8_lossy(&page).contains("window.hostile"),
        "names are in base64 only"
    );
    let Some(mut browser) = start("hostile_names_stay_text") else {
        return;
    };
    browser.open(&page);
    for tab in ["flame", "table", "map"] {
        browser.click(&format!("#moment [data-value={tab}]"));
    }
    for by in ["label", "kind"] {
        browser.click(&format!("#timeline [data-value={by}]"));
        let point = timeline_point(&mut browser, 0.9);
        browser.mouse("mouseMoved", point, 0);
    }
    browser.click("#moment [data-value=table]");
    for by in [
        "function", "library", "thread", "stream", "size", "kind", "label", "site",
    ] {
        browser.eval(&format!("(() => {{ const s = document.querySelector('#panel [aria-label=\"Group by\"]'); s.value = '{by}'; s.dispatchEvent(new Event('change')); }})()"));
        browser.click("#groups .row");
    }
    browser.click("#leaks .entry summary");
    browser.click("[data-value=growth]");
    assert_eq!(browser.eval("typeof window.hostile"), json!("undefined"));
    assert_eq!(
        browser.number("document.querySelectorAll('main img, main script, h1 *').length"),
        0.0
    );
    assert_eq!(
        browser.text("document.querySelector('h1').textContent"),
        run.command
    );
    let text = browser.text("document.querySelector('main').textContent");
    for problem in &run.problems {
        assert!(
            text.contains(problem.as_str()),
            "{problem:?} is shown as it is"
        );
    }
    browser.assert_silent();
}

#[test]
fn no_request_can_leave_the_page() {
    let Some(mut browser) = start("no_request_can_leave_the_page") else {
        return;
    };
    browser.open(&html(&[runs::small()]));
    browser.assert_silent();
    // Even a script that tried would be stopped by the policy.
    let blocked = browser.eval(
        "new Promise((done) => {
            const blocked = [];
            document.addEventListener('securitypolicyviolation', (event) => {
                blocked.push(event.effectiveDirective);
                if (blocked.length === 3) done(blocked.sort());
            });
            fetch('http://127.0.0.1:9/').catch(() => {});
            new Image().src = 'http://127.0.0.1:9/x.png';
            document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href: 'http://127.0.0.1:9/x.css' }));
        })",
    );
    assert_eq!(blocked, json!(["connect-src", "img-src", "style-src-elem"]));
}

#[test]
fn both_schemes_are_readable() {
    let Some(mut browser) = start("both_schemes_are_readable") else {
        return;
    };
    browser.scheme("light");
    browser.open(&html(&[runs::training(6, true)]));
    let light = contrast(&mut browser);
    browser.scheme("dark");
    browser.wait("matchMedia('(prefers-color-scheme: dark)').matches");
    let dark = contrast(&mut browser);
    assert_ne!(light.0, dark.0, "another background");
    // The switch goes through auto, light, dark, whatever the system has.
    browser.click("#theme");
    assert_eq!(contrast(&mut browser).0, light.0);
    browser.click("#theme");
    assert_eq!(contrast(&mut browser).0, dark.0);
    for (scheme, (_, ratio, least)) in [("light", light), ("dark", dark)] {
        // WCAG 2, level AA.
        assert!(
            ratio >= 4.5,
            "{scheme}: {least} has a contrast of {ratio:.2}"
        );
    }
    browser.assert_silent();
}

/// The background, and the lowest contrast of a text with what is behind it.
fn contrast(browser: &mut Browser) -> (String, f64, String) {
    let value = browser.eval(
        "(() => {
            const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
            const light = ({ r, g, b }) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; } };
            let least = [Infinity, ''];
            for (const e of document.querySelectorAll('main *')) {
                const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
                if (!own || !e.checkVisibility() || e.closest(':disabled') || e.closest('.caller')) continue;
                const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
                const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                if (ratio < least[0]) least = [ratio, `${e.className} ${e.textContent.slice(0, 40)}`];
            }
            return [getComputedStyle(document.body).backgroundColor, ...least];
        })()",
    );
    (
        value[0].as_str().expect("a colour").to_owned(),
        value[1].as_f64().expect("a ratio"),
        value[2].as_str().expect("a text").to_owned(),
    )
}

#[test]
fn a_phone_shows_it_without_scrolling_sideways() {
    let Some(mut browser) = start("a_phone_shows_it_without_scrolling_sideways") else {
        return;
    };
    browser.screen(390, 844);
    for page in [
        html(&[runs::training(6, true)]),
        html(&[runs::hostile()]),
        html(&runs::ranks()),
    ] {
        browser.open(&page);
        for tab in ["flame", "table", "map"] {
            browser.click(&format!("#moment [data-value={tab}]"));
            let wide = browser.number("document.documentElement.scrollWidth");
            assert_eq!(wide, 390.0, "{tab}");
        }
    }
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
fn a_million_events_fit() {
    let run = runs::many(1_000_000);
    let events: usize = run
        .allocations
        .iter()
        .map(|allocation| 1 + usize::from(allocation.end != cuguard_view::FOREVER))
        .sum();
    let page = html(std::slice::from_ref(&run));
    println!("{events} events: a page of {} bytes", page.len());
    assert!(page.len() < 20_000_000);
    let Some(mut browser) = start("a_million_events_fit") else {
        return;
    };
    let milliseconds = browser.open(&page);
    println!("{events} events: usable {milliseconds} ms after the navigation began");
    let point = timeline_point(&mut browser, 0.5);
    browser.drag(point, point);
    let (_, bytes, count) = moment(&mut browser);
    // Times are rounded in so large a page: the moment is one of the events within that microsecond.
    assert!(count > 1000 && bytes > 0);
    browser.assert_silent();
}

#[test]
fn beyond_the_limit_the_page_says_what_is_left_out() {
    let run = runs::many(20_000);
    let mut page = Vec::new();
    page::write(
        std::slice::from_ref(&run),
        &mut page,
        &page::Options {
            max_allocations: 4000,
        },
    )
    .expect("memory takes all");
    let Some(mut browser) = start("beyond_the_limit_the_page_says_what_is_left_out") else {
        return;
    };
    browser.open(&page);
    let notice = browser.text("document.querySelector('[data-notice=left-out]').textContent");
    let left_out = run.allocations.len() - 4000;
    assert!(
        notice.starts_with("6,000 short-lived small allocations") && left_out == 6000,
        "{notice}"
    );
    let (time, peak) = expected::peak(&run);
    assert_eq!(
        moment(&mut browser),
        (time, peak, expected::alive(&run, time).len() as u64),
        "the peak is exact"
    );
    assert_eq!(
        figure(&mut browser, "leaked"),
        expected::bytes(&expected::never_freed(&run))
    );
    browser.assert_silent();
}
