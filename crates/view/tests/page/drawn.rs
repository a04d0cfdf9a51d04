//! What the timeline draws, read from its pixels: the top of each column is the most that was alive in its time.

use cuguard_view::{FOREVER, Run};

use super::support::browser::{Browser, start};
use super::support::builder::{Builder, DEVICE, MIB};
use super::support::expected;
use super::support::shown::{html, timeline_point};

/// From here on the canvas has areas alone: no axes, marks or labels. The rest of the page is not shown: it would be laid out
/// anew for each moment.
const ONLY_AREAS: &str = "(() => {
    const canvas = CanvasRenderingContext2D.prototype;
    const { fill } = canvas;
    canvas.stroke = () => {};
    canvas.fillText = () => {};
    const style = document.createElement('style');
    style.textContent = '#summary, #ranks, #moment, #leaks { display: none !important; }';
    document.head.append(style);
    // The areas are rectangles, or paths that are passed; the points of marks are neither.
    canvas.fill = function (path) { if (path) fill.call(this, path); };
})()";

/// The window, the height of the plot in pixels, and for each column of pixels the first row with an area.
const DRAWN: &str = "(() => {
    const box = document.querySelector('.plot');
    const canvas = box.querySelector('canvas');
    const [outer, inner] = [canvas.getBoundingClientRect(), box.querySelector('.u-over').getBoundingClientRect()];
    const scale = canvas.width / outer.width;
    const [x, y, width, height] = [inner.left - outer.left, inner.top - outer.top, inner.width, inner.height].map((length) => Math.round(length * scale));
    // A copy: reading the canvas itself again and again would slow down what is drawn on it.
    const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, x, y, width, height, 0, 0, width, height);
    const { data } = copy.getImageData(0, 0, width, height);
    const tops = Array.from({ length: width }, (_, column) => {
        let row = 0;
        while (row < height && data[4 * (row * width + column) + 3] < 128) row += 1;
        return row;
    });
    return { from: Number(box.dataset.from), to: Number(box.dataset.to), height, tops };
})()";

/// The axis ends so much above the highest value.
const ROOM: f64 = 1.04;

/// How much device memory is alive from each time on.
fn steps(run: &Run) -> Vec<(f64, u64)> {
    let mut changes: Vec<(u64, bool, u64)> = Vec::new();
    for allocation in &run.allocations {
        if expected::on_device(run, allocation) {
            changes.push((allocation.start, true, allocation.bytes));
            if allocation.end != FOREVER {
                changes.push((allocation.end, false, allocation.bytes));
            }
        }
    }
    // Frees first: what is freed and allocated at one time is never alive together.
    changes.sort_unstable();
    let mut live = 0;
    let mut steps = vec![(-1.0, 0)];
    for (time, begins, bytes) in changes {
        live = if begins { live + bytes } else { live - bytes };
        steps.push((time as f64, live));
    }
    steps
}

/// The most that is alive between two times, what is alive at the first included.
fn most(steps: &[(f64, u64)], from: f64, to: f64) -> u64 {
    let after = steps.partition_point(|(time, _)| *time <= from);
    let within = steps[after..].iter().take_while(|(time, _)| *time < to);
    let before = steps[..after].last().map_or(0, |(_, live)| *live);
    within.map(|(_, live)| *live).fold(before, u64::max)
}

/// Compares each column of the window that is shown.
#[track_caller]
fn assert_drawn(browser: &mut Browser, steps: &[(f64, u64)], what: &str) {
    let drawn = browser.eval(DRAWN);
    let number = |name: &str| drawn[name].as_f64().expect("a number");
    let (from, to, height) = (number("from"), number("to"), number("height"));
    let tops = drawn["tops"].as_array().expect("columns");
    let width = (to - from) / tops.len() as f64;
    // An event at the border of two columns belongs to either.
    let border = width * 1e-6;
    let high = most(steps, from, to + border) as f64 * ROOM;
    assert!(high > 0.0, "{what}: a window without memory shows nothing");
    let row = |live: u64| height * (1.0 - live as f64 / high);
    for (column, top) in tops.iter().enumerate() {
        let (begin, end) = (
            from + width * column as f64,
            from + width * (column + 1) as f64,
        );
        let highest = row(most(steps, begin - border, end + border));
        let lowest = row(most(steps, begin + border, end - border));
        let top = top.as_f64().expect("a row");
        assert!(
            (highest - 1.0..=lowest + 1.0).contains(&top),
            "{what}: column {column} of {} from {begin} to {end} ns begins in row {top}; expected {highest} to {lowest} of {height}",
            tops.len(),
        );
    }
}

/// Memory that stays, blocks that come and go, and spikes that are thinner than a pixel.
fn random(seed: u64) -> Run {
    let mut b = Builder::seeded("./random", seed);
    let sites: Vec<u32> = (0..1 + b.random(12))
        .map(|number| {
            let frame = format!("!work::step{number}|src/work.rs|{}|work", number + 10);
            b.site("f32", &[&frame])
        })
        .collect();
    let steady = (1 + b.random(256)) * MIB;
    b.allocate(sites[0], DEVICE, steady, "");
    let mut alive = Vec::new();
    for _ in 0..20 + b.random(300) {
        let pause = 1 << b.random(24);
        b.pass(1 + pause);
        let site = sites[b.random(sites.len() as u64) as usize];
        let bytes = 1 + b.random(512 * MIB);
        let index = b.allocate(site, DEVICE, bytes, "");
        match b.random(3) {
            // A spike.
            0 | 1 => {
                let short = 1 + b.random(2000);
                b.pass(short);
                b.free(index);
            }
            _ => alive.push(index),
        }
        while alive.len() as u64 > b.random(20) {
            let victim = b.random(alive.len() as u64) as usize;
            let victim = alive.swap_remove(victim);
            b.pass(700);
            b.free(victim);
        }
    }
    b.pass(1_000_000);
    b.finish()
}

/// Runs of which each is looked at as a whole, around its peak at several scales, and where a drag zooms.
#[track_caller]
fn assert_all_drawn(browser: &mut Browser, mut runs: Vec<Run>) {
    for (number, run) in runs.iter_mut().enumerate() {
        run.command = format!("./run {number}");
    }
    browser.open(&html(&runs));
    browser.eval(ONLY_AREAS);
    for (number, run) in runs.iter().enumerate() {
        let title = format!("{} \u{b7} cuguard", run.command);
        // The first one is shown already, and drawn again: the title tells when.
        browser.eval("document.title = ''");
        browser.eval(&format!("(() => {{ const s = document.getElementById('run-select'); s.value = '{number}'; s.dispatchEvent(new Event('change')); }})()"));
        browser.wait(&format!("document.title === {title:?}"));
        let steps = steps(run);
        browser.key("0");
        assert_drawn(browser, &steps, &format!("run {number}, as a whole"));
        browser.key("p");
        for zoom in 1..=8 {
            browser.key("+");
            if zoom % 4 == 0 {
                assert_drawn(browser, &steps, &format!("run {number}, zoom {zoom}"));
            }
        }
        browser.key("0");
        let (from, to) = (timeline_point(browser, 0.31), timeline_point(browser, 0.72));
        browser.drag(from, to);
        assert_drawn(browser, &steps, &format!("run {number}, dragged"));
    }
    browser.assert_silent();
}

#[test]
fn the_drawn_maximum_is_that_of_the_memory_at_every_zoom_level() {
    let Some(mut browser) = start("the_drawn_maximum_is_that_of_the_memory_at_every_zoom_level")
    else {
        return;
    };
    // A desktop, a dense desktop and a phone.
    for (width, height, scale, seeds) in [
        (1280, 900, 1, 1..35),
        (1440, 900, 2, 35..68),
        (390, 844, 3, 68..101),
    ] {
        browser.dense_screen(width, height, scale);
        assert_all_drawn(&mut browser, seeds.map(random).collect());
    }
}

/// Short allocations above steady memory, fewer of them than columns.
#[test]
fn thin_spikes_are_drawn_in_full() {
    let Some(mut browser) = start("thin_spikes_are_drawn_in_full") else {
        return;
    };
    let spikes = |count: u64| {
        let mut b = Builder::new("./spikes");
        let site = b.site("f32", &["!spikes::main|src/main.rs|3|spikes"]);
        b.allocate(site, DEVICE, 128 * MIB, "");
        for _ in 0..count {
            b.pass(10_000_000);
            let spike = b.allocate(site, DEVICE, 512 * MIB, "");
            b.free(spike);
        }
        b.pass(10_000_000);
        b.finish()
    };
    assert_all_drawn(&mut browser, vec![spikes(100), spikes(40)]);
}
