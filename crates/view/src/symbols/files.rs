//! The files of a module: those with its build id, wherever they are.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cuguard_recording::Module;
use cuguard_report::symbol_file::build_id;

use crate::resolver::file_name;

/// Where distributions install debug information.
const SYSTEM: &str = "/usr/lib/debug";

/// How deep folders are searched.
const DEPTH: usize = 16;

/// How many files of a folder are looked at.
const MOST_FILES: usize = 200_000;

/// How many modules without a file are named for each reason.
const MOST_NAMED: usize = 3;

/// Finds files. Folders are searched once, when the first module needs it.
#[derive(Debug)]
pub(super) struct Files<'a> {
    folders: &'a [PathBuf],
    system: PathBuf,
    started: SystemTime,
    /// Of files in the folders: those with a build id by that, others by name.
    index: Option<Index>,
    problems: Vec<String>,
    /// Modules without a file: why, the path, the build id.
    missing: Vec<(&'static str, String, String)>,
}

#[derive(Debug, Default)]
struct Index {
    by_build_id: HashMap<String, Vec<PathBuf>>,
    by_name: HashMap<String, Vec<PathBuf>>,
}

impl<'a> Files<'a> {
    /// `started` is when the process was recorded, in nanoseconds since 1970.
    pub(super) fn new(folders: &'a [PathBuf], started: u64) -> Self {
        Self {
            folders,
            system: SYSTEM.into(),
            started: UNIX_EPOCH + Duration::from_nanos(started),
            index: None,
            problems: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// What was not found, in words. On another machine that may be every library: some are named.
    pub(super) fn problems(mut self) -> Vec<String> {
        self.missing.sort();
        for same in self.missing.chunk_by(|one, other| one.0 == other.0) {
            let (reason, ..) = same[0];
            let advice = "functions are shown as offsets; --symbols DIR names a folder with the files that ran";
            if same.len() > MOST_NAMED {
                let names = same[..MOST_NAMED].iter().map(|(_, path, _)| path.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                let more = same.len() - MOST_NAMED;
                self.problems
                    .push(format!("{names} and {more} more: {reason}; {advice}"));
                continue;
            }
            for (_, path, id) in same {
                let id = match &**id {
                    "" => String::new(),
                    id => format!(" (build id {id})"),
                };
                self.problems
                    .push(format!("{path}{id}: {reason}; {advice}"));
            }
        }
        self.problems
    }

    /// The files of a module, without those of another build. Where there is none, that is noted.
    pub(super) fn of(&mut self, module: &Module) -> Vec<PathBuf> {
        let path = Path::new(&module.path);
        let (mut found, reason) = match self.check(path, &module.build_id) {
            Ok(()) => (vec![path.to_owned()], ""),
            Err(reason) => (Vec::new(), reason),
        };
        let index = self.index();
        let copies = match &*module.build_id {
            "" => index.by_name.get(file_name(&module.path)),
            id => index.by_build_id.get(id),
        };
        found.extend(copies.into_iter().flatten().cloned());
        let installed = by_build_id(&self.system, &module.build_id);
        let is_same = |file: &PathBuf| build_id(file).as_deref() == Some(&*module.build_id);
        found.extend(installed.filter(is_same));
        // Kernel code that is mapped into every process has no file.
        let has_file = module.path.starts_with('/');
        if found.is_empty() && has_file {
            let missing = (reason, module.path.clone(), module.build_id.clone());
            self.missing.push(missing);
        }
        found
    }

    /// Whether the file at the recorded path is the one that ran; otherwise why not.
    fn check(&self, path: &Path, wanted: &str) -> Result<(), &'static str> {
        if !path.is_absolute() || !path.is_file() {
            return Err("the file is not there");
        }
        let found = build_id(path).ok_or("the file is not a program or library")?;
        if found != wanted {
            return Err("the file has another build id than the one that ran");
        }
        // Without a build id, a file that was written later is another one.
        let written = path.metadata().and_then(|data| data.modified()).ok();
        match wanted.is_empty() && written.is_none_or(|written| written > self.started) {
            true => Err("the file has no build id, and was written after the process started"),
            false => Ok(()),
        }
    }

    fn index(&mut self) -> &Index {
        let Self {
            folders,
            index,
            problems,
            ..
        } = self;
        index.get_or_insert_with(|| {
            let mut index = Index::default();
            for folder in *folders {
                let mut left = MOST_FILES;
                if let Err(error) = search(folder, DEPTH, &mut left, &mut index) {
                    problems.push(format!("--symbols {}: {error}", folder.display()));
                }
                if left == 0 {
                    let folder = folder.display();
                    problems.push(format!(
                        "--symbols {folder}: only {MOST_FILES} of its files were looked at"
                    ));
                }
            }
            index
        })
    }
}

/// Adds the programs and libraries of a folder. Fails only for the folder itself.
fn search(folder: &Path, depth: usize, left: &mut usize, index: &mut Index) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let path = entry.path();
        // A link to a folder may lead back to this one.
        if kind.is_dir() {
            if depth > 0 {
                let _ = search(&path, depth - 1, left, index);
            }
            continue;
        }
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        if !path.is_file() {
            continue;
        }
        let Some(id) = build_id(&path) else {
            continue;
        };
        let list = match id.is_empty() {
            true => {
                let name = entry.file_name().to_string_lossy().into_owned();
                index.by_name.entry(name).or_default()
            }
            false => index.by_build_id.entry(id).or_default(),
        };
        list.push(path);
    }
    Ok(())
}

/// The file that a distribution or `debuginfod` names after a build id.
fn by_build_id(root: &Path, id: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let parts = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty());
    let file = parts.map(|(first, rest)| {
        let folder = root.join(".build-id").join(first);
        folder.join(format!("{rest}.debug"))
    });
    file.filter(|file| file.is_file()).into_iter()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use cuguard_recording::Module;

    use super::{Files, build_id};

    #[test]
    fn debug_information_of_the_distribution_is_found_by_build_id() {
        let program = std::env::current_exe().unwrap();
        let id = build_id(&program).unwrap();
        if id.is_empty() {
            cuguard_testing::not_run(cuguard_testing::Requirement::CompilerOptions, "build ids");
            return;
        }
        let root = std::env::temp_dir().join(format!("cuguard-files-{}", std::process::id()));
        let folder = root.join(".build-id").join(&id[..2]);
        fs::create_dir_all(&folder).unwrap();
        let copy = folder.join(format!("{}.debug", &id[2..]));
        fs::copy(&program, &copy).unwrap();
        let folders: [PathBuf; 0] = [];
        let mut files = Files::new(&folders, 0);
        files.system = root.clone();
        let moved = Module {
            path: "/nowhere/app".to_owned(),
            build_id: id.clone(),
            ..Module::default()
        };
        assert_eq!(files.of(&moved), std::slice::from_ref(&copy));
        // The name of a file is not enough.
        fs::write(&copy, b"\x7fELF").unwrap();
        assert!(files.of(&moved).is_empty());
        let problems = files.problems();
        let problem = &problems[0];
        assert!(
            problem.contains("/nowhere/app") && problem.contains(&id),
            "{problem}"
        );
        fs::remove_dir_all(root).unwrap();
    }

    /// On another machine, every library may be missing.
    #[test]
    fn many_missing_files_are_one_line() {
        let mut files = Files::new(&[], 0);
        for number in 0..9 {
            let module = Module {
                path: format!("/nowhere/lib{number}.so"),
                ..Module::default()
            };
            assert!(files.of(&module).is_empty());
        }
        let problems = files.problems();
        let [problem] = &problems[..] else {
            panic!("{problems:?}")
        };
        let start = "/nowhere/lib0.so, /nowhere/lib1.so, /nowhere/lib2.so and 6 more: the file is not there";
        assert!(problem.starts_with(start), "{problem}");
    }
}
