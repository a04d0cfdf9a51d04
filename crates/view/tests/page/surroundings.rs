//! What must hold wherever a page is opened and whatever it shows: hostile names, no request, both schemes, small screens.

use serde_json::json;

use super::support::browser::{Browser, start};
use super::support::runs;
use super::support::shown::{choose, html, timeline_point};

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
        choose(&mut browser, "Group by", by);
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
