//! Pages of long recordings: how much fits, and what is left out.

use cuguard_view::{Allocation, At, FOREVER, page};

use super::support::browser::start;
use super::support::builder::{PINNED, STREAM};
use super::support::shown::{assert_moment, figure, html, moment, timeline_point};
use super::support::{expected, runs};

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
    let mut run = runs::many(20_000);
    // Some of what is left out is host memory, some has no bytes.
    for (index, kind) in [(17, PINNED), (18, PINNED), (19, STREAM)] {
        let allocation = &mut run.allocations[index];
        assert!(allocation.end < FOREVER);
        allocation.kind = kind;
        allocation.bytes = if kind == STREAM { 0 } else { 64 };
        allocation.end = allocation.start + 1;
    }
    let mut page = Vec::new();
    page::write(
        std::slice::from_ref(&run),
        &mut page,
        &page::Options {
            max_allocations: 4000,
            ..page::Options::default()
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
    // What is left out counts, but for what is not on the device.
    let on_device = |allocation: &&Allocation| expected::on_device(&run, allocation);
    let device: Vec<_> = run.allocations.iter().filter(on_device).collect();
    assert_eq!(figure(&mut browser, "allocated"), expected::bytes(&device));
    assert_eq!(
        browser.text("document.querySelector('[data-figure=allocated] .tile-note').textContent"),
        "9,997 allocations"
    );
    browser.assert_silent();
}

/// Also what is alive for a short time, and small.
#[test]
fn beyond_the_limit_the_moment_at_which_the_page_opens_is_exact() {
    let Some(mut browser) = start("beyond_the_limit_the_moment_at_which_the_page_opens_is_exact")
    else {
        return;
    };
    let run = runs::many(20_000);
    let options = page::Options {
        max_allocations: 100,
        at: At::Percent(30.0),
    };
    let mut page = Vec::new();
    page::write(std::slice::from_ref(&run), &mut page, &options).expect("memory takes all");
    browser.open(&page);
    let opened = moment(&mut browser).0;
    assert_eq!(opened, (run.end as f64 * 0.3).round() as u64);
    assert_moment(&mut browser, &run);
    browser.assert_silent();
}
