//! The corpus of kernels: each has the result that its description says.

use cuguard_kernels::Device;
use cuguard_kernels::corpus::{MODULES, run};

use crate::case::Case;
use crate::driver::for_kernels;

macro_rules! modules {
    ($($name:ident)*) => {
        cases! {"corpus": all_modules_are_here, $($name),*}

        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(fn $name(c: &Case) {
            check(c, stringify!($name));
        })*
    };
}

modules! {
    algorithms groups language matrices numbers vectors blocks sorting science
    halves tensor cooperation approximate integers atomics clang numba rust
}

/// Each module of the corpus is a case.
fn all_modules_are_here(c: &Case) {
    let modules: Vec<&str> = MODULES.iter().map(|module| module.name).collect();
    c.same("modules", &modules[..], NAMES);
}

fn check(c: &Case, name: &str) {
    let driver = for_kernels();
    let outcomes = Device::new(&driver).and_then(|device| {
        let module = MODULES.iter().find(|module| module.name == name);
        run(&device, module.ok_or("there is no such module")?)
    });
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(error) => return c.same("the module runs", error.as_str(), ""),
    };
    for outcome in outcomes {
        match outcome {
            Ok(found) => {
                if !found.is_expected() {
                    keep(&found.launch.kernel, &found.bytes, &found.printed);
                }
                c.same(
                    &found.launch.kernel,
                    found.sums_text(),
                    found.launch.expected_text(),
                );
            }
            Err(error) => c.same("a kernel runs", error.as_str(), ""),
        }
    }
}

/// Keeps what a kernel left in files beside the program's other output, where `CUGUARD_KERNELS` names a folder.
fn keep(kernel: &str, bytes: &[u8], printed: &str) {
    let Some(folder) = std::env::var_os("CUGUARD_KERNELS") else {
        return;
    };
    let file = std::path::Path::new(&folder).join(kernel);
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, bytes));
    if let Err(error) =
        written.and_then(|()| std::fs::write(file.with_extension("printed"), printed))
    {
        eprintln!("{}: {error}", file.display());
    }
}
