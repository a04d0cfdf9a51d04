//! The command line.

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts the others.
    Start,
    /// Runs programs on two GPUs.
    Compare,
    /// Prints hashes of results of the simulated GPU.
    Hash,
    /// Prints the module of `count` programs.
    Print,
    /// Runs the programs of files again.
    Replay,
    /// Lists the tests for a runner of tests: there are none.
    List,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) count: usize,
    pub(crate) seed: u64,
    pub(crate) jobs: usize,
    pub(crate) batch: usize,
    pub(crate) sim_only: bool,
    pub(crate) keep: String,
    pub(crate) files: Vec<String>,
}

impl Options {
    pub(crate) fn from_args() -> Result<Self, String> {
        let mut options = Self {
            role: Role::Start,
            count: 400,
            seed: 1,
            jobs: 1,
            batch: 50,
            sim_only: false,
            keep: "random_ptx-differences".to_owned(),
            files: Vec::new(),
        };
        let variable = std::env::var("CUGUARD_RANDOM_PTX").unwrap_or_default();
        for pair in variable.split(',').filter(|own| !own.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or("CUGUARD_RANDOM_PTX: name=value,…")?;
            options.set(name, value)?;
        }
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let Some(name) = argument.strip_prefix("--") else {
                options.files.push(argument);
                continue;
            };
            match name {
                "compare" => options.role = Role::Compare,
                "hash" => options.role = Role::Hash,
                "print" => options.role = Role::Print,
                "replay" => options.role = Role::Replay,
                "list" => options.role = Role::List,
                "count" | "seed" | "jobs" | "batch" | "keep" | "driver" => {
                    let value = arguments.next().ok_or(format!("--{name} needs a value"))?;
                    options.set(name, &value)?;
                }
                // Options of other test programs, which cargo passes to all.
                _ => {}
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|error| format!("{name}={value}: {error}"))
        };
        match name {
            "count" => self.count = number()? as usize,
            "seed" => self.seed = number()?,
            "jobs" => self.jobs = number()?.max(1) as usize,
            "batch" => self.batch = number()?.max(1) as usize,
            "keep" => value.clone_into(&mut self.keep),
            "driver" => self.sim_only = value == "sim",
            _ => return Err(format!("unknown: {name}")),
        }
        Ok(())
    }
}
