//! Text of the program with any characters: in text and folded stacks nothing that a terminal or a parser would obey.

use cuguard_view::{
    Allocation, At, By, CallSite, FOREVER, Frame, Frames, Look, Overview, RecordedKind, Run,
    flamegraph, folded, json, text,
};

const HOSTILE: &str = "a;b c\n\x1b[2J<script>alert(1)</script>\u{202e}\"";

fn run() -> Run {
    let frame = Frame {
        function: HOSTILE.to_owned(),
        file: HOSTILE.to_owned(),
        line: 1,
        library: HOSTILE.to_owned(),
        in_app: true,
    };
    Run {
        source: HOSTILE.to_owned(),
        command: HOSTILE.to_owned(),
        host: HOSTILE.to_owned(),
        kinds: vec![RecordedKind {
            name: HOSTILE.to_owned(),
            on_device: true,
            is_memory: true,
        }],
        sites: vec![CallSite {
            type_name: HOSTILE.to_owned(),
            frames: vec![frame],
        }],
        names: vec![HOSTILE.to_owned(), HOSTILE.to_owned()],
        allocations: vec![Allocation {
            end: FOREVER,
            bytes: 7,
            label: 1,
            ..Allocation::default()
        }],
        problems: vec![HOSTILE.to_owned()],
        ..Run::default()
    }
}

fn is_plain(text: &str) -> bool {
    let is_bad =
        |character: char| (character.is_control() && character != '\n') || character == '\u{202e}';
    !text.contains(is_bad)
}

#[test]
fn text_has_no_control_characters() {
    let run = run();
    let overview = Overview::new(&run, At::Peak).expect("every run has a peak");
    for by in By::ALL {
        let look = Look {
            by,
            ..Look::default()
        };
        let text = text(&overview, look);
        assert!(is_plain(&text), "{by}: {text:?}");
        // The line break of the name is escaped too.
        assert!(!text.contains("a;b c\n"), "{by}: {text:?}");
    }
    let runs = [overview.clone(), overview];
    let ranks = cuguard_view::Ranks::new(&runs).text(Look::default());
    assert!(is_plain(&ranks), "{ranks:?}");
    let diff = cuguard_view::diff(&runs[0].moment, &runs[1].moment).text(Look::default());
    assert!(is_plain(&diff), "{diff:?}");
}

#[test]
fn folded_stacks_have_one_line_each_and_flame_graphs_no_markup() {
    let run = run();
    let overview = Overview::new(&run, At::Peak).expect("every run has a peak");
    let folded = folded(&[&overview.moment], Frames::Program);
    assert_eq!(folded.lines().count(), 1, "{folded:?}");
    let (stack, bytes) = folded.trim_end().rsplit_once(' ').expect("a count ends it");
    assert_eq!(bytes, "7");
    assert!(!stack.contains(';') && is_plain(stack), "{stack:?}");
    let mut svg = Vec::new();
    flamegraph(&[&overview.moment], Frames::Program, &mut svg).expect("memory can be written to");
    let svg = String::from_utf8(svg).expect("SVG is text");
    assert!(
        !svg.contains("<script>alert") && svg.contains("&lt;script&gt;"),
        "{svg}"
    );
    let mut again = Vec::new();
    flamegraph(&[&overview.moment], Frames::Program, &mut again).expect("memory can be written to");
    assert_eq!(
        svg.as_bytes(),
        again,
        "the same moment has the same picture"
    );
}

#[test]
fn json_has_names_as_they_are() {
    let run = run();
    let overview = Overview::new(&run, At::Peak).expect("every run has a peak");
    let document: serde_json::Value =
        serde_json::from_str(&json(&[overview], Look::default())).expect("it is JSON");
    let group = &document["runs"][0]["groups"][0];
    assert_eq!(group["labels"][0], HOSTILE);
    assert_eq!(group["stack"][0]["function"], HOSTILE);
}

/// A run with these functions and bytes.
fn named(functions: &[(&str, u64)]) -> Run {
    let mut run = run();
    (run.sites, run.allocations) = (Vec::new(), Vec::new());
    for (function, bytes) in functions {
        let frame = Frame {
            function: (*function).to_owned(),
            in_app: true,
            ..Frame::default()
        };
        run.allocations.push(Allocation {
            end: FOREVER,
            bytes: *bytes,
            site: run.sites.len() as u32,
            ..Allocation::default()
        });
        run.sites.push(CallSite {
            frames: vec![frame],
            ..CallSite::default()
        });
    }
    run
}

/// A number behind a space would be a second column of numbers, as in the folded stacks of a difference.
#[test]
fn names_that_end_in_a_number_stay_names() {
    let names = ["x 123", "x 1.5", " 77", "y 8 ", "z 5x", "9"];
    let run = named(&names.map(|name| (name, 7)));
    let overview = Overview::new(&run, At::Exit).expect("every run has an end");
    let folded = folded(&[&overview.moment], Frames::Program);
    let stacks: Vec<&str> = folded
        .lines()
        .map(|line| line.strip_suffix(" 7").expect("the bytes end it"))
        .collect();
    assert_eq!(stacks, ["77", "9", "x_1.5", "x_123", "y_8", "z 5x"]);
    let mut svg = Vec::new();
    flamegraph(&[&overview.moment], Frames::Program, &mut svg).expect("memory can be written to");
    let svg = String::from_utf8(svg).expect("SVG is text");
    for stack in stacks {
        let title = format!("<title>{stack} (7 bytes, 16.67%)</title>");
        assert!(svg.contains(&title), "{title}: {svg}");
    }
}

#[test]
fn a_flame_graph_of_more_bytes_than_fit_is_refused() {
    let run = named(&[("load", u64::MAX), ("step", 1)]);
    let overview = Overview::new(&run, At::Exit).expect("every run has an end");
    let mut svg = Vec::new();
    let refused = flamegraph(&[&overview.moment], Frames::Program, &mut svg);
    let error = refused.expect_err("the sum does not fit").to_string();
    assert!(
        error.ends_with(
            "the live bytes add up to more than 18446744073709551615: there is no flame graph"
        ),
        "{error}"
    );
    assert!(svg.is_empty());
}
