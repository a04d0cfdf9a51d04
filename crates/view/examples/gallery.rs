//! Writes finished pages: `cargo run -p cuguard-view --example gallery -- FOLDER`.

use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;

use cuguard_view::{Allocation, Run, page};

#[path = "../tests/page/support/builder.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod builder;
#[path = "../tests/page/support/runs.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod runs;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(
            "usage: gallery FOLDER [EVENTS]: the folder that the pages are written to".into(),
        );
    };
    fs::create_dir_all(&folder)?;
    let write = |name: &str, runs: &[Run]| -> Result<(), Box<dyn Error>> {
        let path = folder.join(name);
        let mut out = BufWriter::new(File::create(&path)?);
        page::write(runs, &mut out, &page::Options::default())?;
        drop(out);
        println!("{}: {} bytes", path.display(), fs::metadata(&path)?.len());
        Ok(())
    };
    // A large page, for measuring.
    if let Some(events) = std::env::args().nth(2) {
        return write("many.html", &[runs::many(events.parse()?)]);
    }
    write("training.html", &[runs::training(60, true)])?;
    write("fragmentation.html", &[runs::fragmented()])?;
    write("ranks.html", &runs::ranks())?;
    let is_stream = |one: &Allocation| one.kind == builder::STREAM;
    let small = runs::searched(runs::small(), |one| !is_stream(one));
    write("small.html", &[small])
}
