//! Puts the parts of a page into one file.

use std::io::{self, Write};

use super::column::pack;
use super::overview::Overview;

const PAGE: &str = include_str!("assets/page.html");
const STYLES: [&str; 2] = [
    include_str!("vendor/uplot/uPlot.min.css"),
    include_str!("assets/page.css"),
];
const UPLOT: &str = include_str!("vendor/uplot/uPlot.iife.min.js");
/// In the order in which they use each other. One scope holds all of them.
const SCRIPTS: [&str; 14] = [
    include_str!("assets/element.js"),
    include_str!("assets/format.js"),
    include_str!("assets/data.js"),
    include_str!("assets/model.js"),
    include_str!("assets/colors.js"),
    include_str!("assets/summary.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/table.js"),
    include_str!("assets/mapcursor.js"),
    include_str!("assets/map.js"),
    include_str!("assets/leaks.js"),
    include_str!("assets/ranks.js"),
    include_str!("assets/app.js"),
];

/// What all runs of a page have in common.
#[derive(serde::Serialize)]
struct Common<'a> {
    version: &'static str,
    runs: &'a [Overview],
}

/// Writes the page. Each place that it fills is a line `{{name}}` of the template.
pub(super) fn write(
    overviews: &[Overview],
    blobs: &[String],
    out: &mut dyn Write,
) -> io::Result<()> {
    let common = pack(&serde_json::to_vec(&Common {
        version: env!("CARGO_PKG_VERSION"),
        runs: overviews,
    })?)?;
    for line in PAGE.split_inclusive('\n') {
        match line.trim() {
            "{{styles}}" => STYLES
                .iter()
                .try_for_each(|style| writeln!(out, "{style}"))?,
            "{{uplot}}" => writeln!(out, "{}", UPLOT.trim_end())?,
            "{{scripts}}" => {
                writeln!(out, "(() => {{\n\"use strict\";")?;
                SCRIPTS
                    .iter()
                    .try_for_each(|script| writeln!(out, "{script}"))?;
                writeln!(out, "}})();")?;
            }
            "{{data}}" => {
                writeln!(
                    out,
                    "<script type=\"application/octet-stream\" id=\"common\">{common}</script>"
                )?;
                for (number, blob) in blobs.iter().enumerate() {
                    writeln!(
                        out,
                        "<script type=\"application/octet-stream\" id=\"run-{number}\">{blob}</script>"
                    )?;
                }
            }
            _ => out.write_all(line.as_bytes())?,
        }
    }
    Ok(())
}
