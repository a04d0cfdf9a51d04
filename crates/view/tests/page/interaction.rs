//! Mouse and keyboard: what they choose, and that the figures follow.

use cuguard_view::{At, MarkKind};
use serde_json::{Value, json};

use super::support::browser::{Browser, start};
use super::support::builder::MIB;
use super::support::shown::{
    assert_moment, choose, figure, html, html_at, moment, rows, timeline_point, window,
};
use super::support::{expected, runs};

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
    // The drag's end is not a click.
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
fn the_page_opens_at_the_moment_that_is_asked_for() {
    let Some(mut browser) = start("the_page_opens_at_the_moment_that_is_asked_for") else {
        return;
    };
    let run = runs::small();
    let (peak, _) = expected::peak(&run);
    for (at, title) in [
        (At::Peak, " · the peak"),
        (At::Oom(None), " · out of memory"),
        (At::Exit, " · exit"),
        (At::Percent(50.0), ""),
        (At::Time(3), ""),
    ] {
        let time = cuguard_view::moment(&run, at).expect("it has it").time;
        browser.open(&html_at(std::slice::from_ref(&run), at));
        assert_eq!(moment(&mut browser).0, time, "{at}");
        assert_moment(&mut browser, &run);
        let heading = browser.text("document.getElementById('moment-title').firstChild.data");
        assert!(heading.ends_with(title), "{at}: {heading}");
        // Elsewhere it is the same page.
        browser.key("p");
        assert_eq!(moment(&mut browser).0, peak, "{at}");
    }
    // A link has precedence.
    let page = html_at(std::slice::from_ref(&run), At::Exit);
    browser.open_at(&page, "#at=peak");
    assert_eq!(moment(&mut browser).0, peak);
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

    choose(&mut browser, "Group by", "label");
    let mut by_label = rows(&mut browser);
    by_label.sort_unstable();
    let want = expected::groups(&alive, |allocation| u64::from(allocation.label));
    assert_eq!(
        by_label,
        want.into_iter()
            .map(|(key, (bytes, count))| (key, bytes, count))
            .collect::<Vec<_>>()
    );

    choose(&mut browser, "Allocation", &(16 * MIB).to_string());
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
fn frames_of_a_library_are_not_in_the_colour_of_the_program() {
    let Some(mut browser) = start("frames_of_a_library_are_not_in_the_colour_of_the_program")
    else {
        return;
    };
    for (library, is_program) in [
        ("libtorch_cpu.so", false),
        ("libx.so.1.2", false),
        ("a", true),
    ] {
        let mut run = runs::small();
        for frame in run.sites.iter_mut().flat_map(|site| &mut site.frames) {
            (frame.in_app, frame.file, frame.library) = (true, String::new(), library.to_owned());
        }
        browser.open(&html(std::slice::from_ref(&run)));
        let shown = browser.number("document.querySelectorAll('.frame.app').length") > 0.0;
        assert_eq!(shown, is_program, "{library}");
    }
    browser.assert_silent();
}

/// Where the cursor of the map is, and the line of text for it.
fn map_cursor(browser: &mut Browser) -> (u64, String) {
    let page = browser.text(
        "document.querySelector('canvas.map:focus + .map-cursor:not([hidden])').dataset.page",
    );
    let page = u64::from_str_radix(page.trim_start_matches("0x"), 16).expect("an address");
    let text = browser.text("document.getElementById('map-detail').textContent");
    assert!(text.starts_with(&format!("{page:#x} · 2 MiB · ")), "{text}");
    (page / expected::PAGE, text)
}

#[test]
fn the_keyboard_moves_in_the_map() {
    let Some(mut browser) = start("the_keyboard_moves_in_the_map") else {
        return;
    };
    let run = runs::fragmented();
    browser.open_at(&html(std::slice::from_ref(&run)), "#view=map&at=oom");
    browser.wait("document.querySelector('canvas.map').cells");
    let (time, ..) = moment(&mut browser);
    let alive = expected::alive(&run, time);
    let used = expected::pages(&run, alive.iter().copied());
    let ever = expected::pages(&run, &run.allocations);
    let first = *ever.first().expect("a page");
    let last = *ever.last().expect("a page");

    // The tab of the map has the focus; the next one is the map itself.
    browser.eval("document.querySelector('#moment [data-value=map]').focus()");
    browser.key("Tab");
    assert_eq!(map_cursor(&mut browser).0, first);
    let columns = browser.number("document.querySelector('canvas.map').cells.columns") as u64;
    for (key, page) in [
        ("ArrowRight", first + 1),
        ("ArrowDown", first + 1 + columns),
        ("ArrowLeft", first + columns),
        ("ArrowUp", first),
        ("ArrowLeft", first),
        ("End", last),
        ("ArrowRight", last),
        ("Home", first),
    ] {
        browser.key(key);
        assert_eq!(map_cursor(&mut browser).0, page, "{key}");
    }
    assert_eq!(moment(&mut browser).0, time, "the moment does not move");

    // Free and used pages side by side are ranges.
    let mut page = first;
    let mut seen = [false; 2];
    for _ in 0..4 {
        let is_used = used.contains(&page);
        let next = (page..=last).find(|page| used.contains(page) != is_used);
        page = next.expect("another range");
        browser.shift_key("ArrowRight");
        let (shown, text) = map_cursor(&mut browser);
        assert_eq!(shown, page);
        assert_eq!(text.ends_with(" · free"), !used.contains(&page), "{text}");
        seen[usize::from(used.contains(&page))] = true;
    }
    assert_eq!(seen, [true; 2]);

    // The allocations of a page that is in use.
    let page = *used.first().expect("a page in use");
    browser.key("Home");
    for _ in first..page {
        browser.key("ArrowRight");
    }
    browser.key("Enter");
    let heading = browser.text("document.querySelector('.pinned h3').textContent");
    assert!(heading.starts_with(&format!("{:#x} to ", page * expected::PAGE)));
    let inside = alive.iter().filter(|allocation| {
        let pages = expected::pages(&run, [**allocation]);
        pages.contains(&page)
    });
    let shown = browser.number("document.querySelectorAll('.pinned tbody tr').length");
    assert_eq!(shown as usize, inside.count());

    // Another moment, and the cursor stays.
    browser.key("p");
    assert_ne!(moment(&mut browser).0, time);
    browser.wait("document.querySelector('canvas.map:focus')");
    assert_eq!(map_cursor(&mut browser).0, page);
    browser.assert_silent();
}

#[test]
fn the_keyboard_moves_between_regions_of_the_map() {
    let Some(mut browser) = start("the_keyboard_moves_between_regions_of_the_map") else {
        return;
    };
    let mut run = runs::small();
    let pages = expected::pages(&run, &run.allocations);
    let far = 1 << 40;
    for allocation in run.allocations.iter_mut().skip(1) {
        allocation.address += far;
    }
    let (first, second) = run.allocations.split_at(1);
    let last = *expected::pages(&run, first).last().expect("a page");
    let next = *expected::pages(&run, second).first().expect("a page");
    assert!(pages.contains(&last) && next > last + far / expected::PAGE / 2);
    browser.open_at(&html(std::slice::from_ref(&run)), "#view=map");
    browser.wait("document.querySelectorAll('canvas.map')[1].cells");
    browser.eval("document.querySelector('canvas.map').focus()");
    for (key, page) in [
        ("End", last),
        ("ArrowRight", next),
        ("ArrowUp", last),
        ("ArrowDown", next),
        ("ArrowLeft", last),
    ] {
        browser.key(key);
        assert_eq!(map_cursor(&mut browser).0, page, "{key}");
    }
    browser.assert_silent();
}

#[test]
fn the_map_names_who_holds_a_page() {
    let Some(mut browser) = start("the_map_names_who_holds_a_page") else {
        return;
    };
    let run = runs::fragmented();
    browser.open_at(
        &html(std::slice::from_ref(&run)),
        "#view=map&at=oom&scheme=dark",
    );
    let failed = run
        .marks
        .iter()
        .find(|mark| matches!(mark.kind, MarkKind::OutOfMemory { .. }));
    assert_eq!(moment(&mut browser).0, failed.expect("the mark").time);
    assert_eq!(
        browser.text("document.documentElement.dataset.scheme"),
        "dark"
    );
    let wasted = figure(&mut browser, "map-wasted");
    let by_site = browser.number("[...document.querySelectorAll('#waste tbody tr')].reduce((sum, row) => sum + Number(row.dataset.wasted), 0)");
    assert_eq!(by_site as u64, wasted, "every wasted byte has a holder");

    // The second cell of the map is the second page.
    browser.wait("document.querySelector('canvas.map').cells");
    let place = browser.eval("(() => { const c = document.querySelector('canvas.map'); c.scrollIntoView({ block: 'center' }); const b = c.getBoundingClientRect(); return [b.x + c.cells.size * 1.5, b.y + c.cells.size / 2]; })()");
    let point = (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    browser.drag(point, point);
    let first = expected::pages(&run, &run.allocations)
        .into_iter()
        .next()
        .expect("a page");
    let page = (first + 1) * expected::PAGE;
    let heading = browser.text("document.querySelector('.pinned h3').textContent");
    assert_eq!(
        heading,
        format!("{page:#x} to {:#x}", page + expected::PAGE)
    );
    let alive = expected::alive(&run, failed.expect("the mark").time);
    let inside = alive.iter().filter(|allocation| {
        allocation.address < page + expected::PAGE && allocation.address + allocation.bytes > page
    });
    let shown = browser.number("document.querySelectorAll('.pinned tbody tr').length");
    assert_eq!(shown as usize, inside.count());
    browser.assert_silent();
}
