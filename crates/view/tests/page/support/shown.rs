//! What a page shows, read from it.

use cuguard_view::{At, Run, page};
use serde_json::Value;

use super::browser::Browser;
use super::expected;

pub fn html(runs: &[Run]) -> Vec<u8> {
    let mut html = Vec::new();
    page::write(runs, &mut html, &page::Options::default()).expect("memory takes all");
    html
}

/// A page that opens at a moment.
pub fn html_at(runs: &[Run], at: At) -> Vec<u8> {
    let mut html = Vec::new();
    let options = page::Options {
        at,
        ..page::Options::default()
    };
    page::write(runs, &mut html, &options).expect("memory takes all");
    html
}

/// The raw value of a figure.
pub fn figure(browser: &mut Browser, name: &str) -> u64 {
    browser.number(&format!(
        "Number(document.querySelector('[data-figure={name}]').dataset.value)"
    )) as u64
}

/// The chosen moment: its time, bytes and count.
pub fn moment(browser: &mut Browser) -> (u64, u64, u64) {
    let value = browser.eval("(() => { const d = document.querySelector('[data-figure=moment]').dataset; return [d.time, d.value, d.count].map(Number); })()");
    let number = |index: usize| value[index].as_f64().expect("a number") as u64;
    (number(0), number(1), number(2))
}

/// Key, bytes and count of the rows of the table, in their order.
pub fn rows(browser: &mut Browser) -> Vec<(u64, u64, u64)> {
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
pub fn timeline_point(browser: &mut Browser, part: f64) -> (f64, f64) {
    let value = browser.eval("(() => { const o = document.querySelector('.u-over'); o.scrollIntoView({ block: 'center' }); const b = o.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()");
    let number = |index: usize| value[index].as_f64().expect("a number");
    (number(0) + number(2) * part, number(1) + number(3) / 2.0)
}

/// The window of the timeline, in nanoseconds.
pub fn window(browser: &mut Browser) -> (f64, f64) {
    (
        browser.number("Number(document.querySelector('.plot').dataset.from)"),
        browser.number("Number(document.querySelector('.plot').dataset.to)"),
    )
}

pub fn assert_moment(browser: &mut Browser, run: &Run) {
    let (time, bytes, count) = moment(browser);
    let alive = expected::alive(run, time);
    assert_eq!(
        (bytes, count),
        (expected::bytes(&alive), alive.len() as u64),
        "at {time} ns"
    );
}

/// Chooses a value of a list of the panel.
pub fn choose(browser: &mut Browser, list: &str, value: &str) {
    browser.eval(&format!("(() => {{ const s = document.querySelector('#panel [aria-label=\"{list}\"]'); s.value = {value:?}; s.dispatchEvent(new Event('change')); }})()"));
}
