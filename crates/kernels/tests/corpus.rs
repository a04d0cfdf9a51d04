//! All kernels of the corpus on the simulated GPU. With CUGUARD_KERNELS=write, writes the results that it finds into the files of
//! launches.

use std::fs;
use std::path::Path;

use cuguard_kernels::corpus::{MODULES, run};
use cuguard_kernels::{Device, Driver};

#[test]
fn results_are_as_expected() {
    let driver = Driver::simulated().unwrap();
    let device = Device::new(&driver).unwrap();
    let writes = std::env::var_os("CUGUARD_KERNELS").is_some_and(|own| own == "write");
    let (mut kernels, mut wrong) = (0, Vec::new());
    for module in MODULES {
        let outcomes = match run(&device, module) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                wrong.push(format!("{}: {error}", module.name));
                continue;
            }
        };
        let mut text = module.launches.to_owned();
        for outcome in outcomes {
            kernels += 1;
            match outcome {
                Ok(found) if writes => {
                    let lines = text.lines().map(|line| match line.split_once(" = ") {
                        Some((head, _))
                            if head.starts_with(&format!("{} ", found.launch.kernel)) =>
                        {
                            format!("{head} = {}\n", found.sums_text())
                        }
                        _ => format!("{line}\n"),
                    });
                    text = lines.collect();
                }
                Ok(found) if !found.is_expected() => {
                    let line = found.printed.lines().next().unwrap_or_default().to_owned();
                    wrong.push(format!(
                        "{}: {} = {} {line}",
                        module.name,
                        found.launch.kernel,
                        found.sums_text()
                    ));
                }
                Ok(_) => {}
                Err(error) => wrong.push(format!("{}: {error}", module.name)),
            }
        }
        if writes {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
            fs::write(folder.join(format!("{}.launches", module.name)), text).unwrap();
        }
    }
    assert!(kernels >= 100, "{kernels} kernels");
    assert!(
        wrong.is_empty(),
        "{} of {kernels}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
