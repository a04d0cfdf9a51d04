//! The tables for programs that come from other crates: each expression of cuguard in them stands in an example of the
//! same chapter, which is compiled and run as a documentation test.

use cuguard_testing::{Requirement, not_run};
use std::path::Path;

/// The text between backticks in the last column of each row, by line.
fn expressions(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(row) = line
            .strip_prefix("| ")
            .and_then(|row| row.strip_suffix(" |"))
        else {
            continue;
        };
        // A bar in an expression is escaped in a table.
        let row = row.replace("\\|", "\u{1}");
        let Some((_, ours)) = row.rsplit_once(" | ") else {
            continue;
        };
        let ours = ours.replace('\u{1}', "|");
        for link in ours.split("[`").skip(1) {
            let expression = link.split_once("`](").map(|(expression, _)| expression);
            if let Some(expression) = expression.filter(|text| text.contains('(')) {
                found.push((number + 1, expression.to_owned()));
            }
        }
    }
    found
}

/// The code of the examples that are compiled: not of outputs and files.
fn examples(text: &str) -> String {
    let (mut code, mut is_compiled) = (String::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), is_compiled) {
            (Some(kind), None) => is_compiled = Some(matches!(kind, "" | "standalone_crate")),
            (Some(_), Some(_)) => is_compiled = None,
            (None, Some(true)) => code = code + line + "\n",
            (None, _) => {}
        }
    }
    code
}

fn check(chapter: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let Ok(text) = std::fs::read_to_string(folder.join(chapter)) else {
        not_run(Requirement::Sources, chapter);
        return;
    };
    let (expressions, code) = (expressions(&text), examples(&text));
    assert!(expressions.len() >= least, "{chapter}: {expressions:#?}");
    let missing: Vec<_> = expressions
        .iter()
        .filter(|(_, expression)| !code.contains(expression.as_str()))
        .collect();
    assert!(missing.is_empty(), "{chapter}: in no example: {missing:#?}");
}

#[test]
fn expressions_for_programs_on_cust_are_compiled() {
    check("coming-from-cust.md", 55);
}

#[test]
fn expressions_for_programs_on_cudarc_are_compiled() {
    check("coming-from-cudarc.md", 65);
}

#[test]
fn an_expression_that_is_not_compiled_is_found() {
    let text = "| a | b |\n|---|---|\n| `x()` | [`y(\\|z\\| 1)`](y), [`n()?`](n), `plain()` |\n\n```console\n$ n()?\n```\n\n```\ny(|z| 1);\n```\n";
    let found = expressions(text);
    let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["y(|z| 1)", "n()?"]);
    let code = examples(text);
    assert!(code.contains("y(|z| 1)") && !code.contains("n()?"));
}

/// All source files of the crate, one after another.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// Each name of cuguard in docs/feature-table.md is that of an item.
#[test]
fn names_in_the_feature_table_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(table) = std::fs::read_to_string(root.join("docs/feature-table.md")) else {
        not_run(Requirement::Sources, "the feature table");
        return;
    };
    let mut code = String::new();
    for folder in [
        "src",
        "crates/nvrtc/src",
        "crates/sim/src",
        "crates/driver/src",
    ] {
        sources(&root.join(folder), &mut code);
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let words: std::collections::HashSet<_> = code.split(|c| !is_name(c)).collect();
    let mut names = 0;
    let rows = table.lines().filter(|line| line.starts_with("| "));
    for row in rows.take_while(|row| !row.starts_with("| textures")) {
        let Some(ours) = row.split(" | ").nth(1) else {
            continue;
        };
        for name in ours.split('`').skip(1).step_by(2) {
            for part in name.split(|c| !is_name(c)).filter(|part| !part.is_empty()) {
                // Crates have dashes in their names.
                assert!(
                    words.contains(part) || name.contains('-'),
                    "{name} in {row}"
                );
                names += 1;
            }
        }
    }
    assert!(names > 150, "{names}");
}
