//! The decoded code of a module.

use super::communication::communicates;
use crate::error::{LoadError, LoadErrors};
use crate::instructions::{Action, decode, runtime_function};
use crate::program::{Function, Guard, Parameter, Place, Program};

/// The decoded code of a module: the instructions of all functions in a row.
pub(crate) struct Code {
    pub(super) steps: Vec<Step>,
    pub(super) functions: Vec<Entry>,
    /// The line of each step in the text, and the file and line that it was compiled from.
    lines: Vec<(u32, Option<(u32, u32)>)>,
}

/// The line of functions of the device's runtime, which are not in the text.
const RUNTIME: u32 = 0;

/// A decoded instruction.
pub(super) struct Step {
    pub(super) guard: Option<Guard>,
    pub(super) action: Action,
}

/// A decoded function.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its first step; `None` if it is declared only.
    pub(super) start: Option<u32>,
    pub(super) registers: [u32; 3],
    pub(super) frame: u32,
    /// The alignment of the frame.
    pub(super) align: u32,
    pub(super) params: Vec<(Place, u32)>,
    pub(super) returns: Vec<(Place, u32)>,
    pub(super) is_entry: bool,
    /// Whether blocks may communicate in it.
    communicates: bool,
}

impl Code {
    /// Decodes all functions. Fails with each instruction that is not supported.
    pub(crate) fn new(program: &Program) -> Result<Self, LoadErrors> {
        let mut code = Self {
            steps: Vec::new(),
            functions: Vec::new(),
            lines: Vec::new(),
        };
        let mut errors = Vec::new();
        for function in &program.functions {
            code.add(program, function, &mut errors);
        }
        if errors.is_empty() {
            return Ok(code);
        }
        Err(LoadErrors(errors))
    }

    fn add(&mut self, program: &Program, function: &Function, errors: &mut Vec<LoadError>) {
        let places = |of: &[Parameter]| of.iter().map(|own| (own.place, own.size)).collect();
        let start = self.steps.len() as u32;
        let mut entry = Entry {
            start: None,
            registers: function.registers,
            frame: function.frame,
            align: function.frame_align,
            params: places(&function.params),
            returns: places(&function.returns),
            is_entry: function.is_entry,
            communicates: communicates(function),
        };
        if let Some(body) = &function.body {
            entry.start = Some(start);
            for instruction in body {
                let hint = self.steps.len() as u8;
                match decode(program, function, instruction, hint) {
                    Ok(action) => {
                        let action = relocate(action, start);
                        let guard = instruction.guard;
                        self.push(
                            Step { guard, action },
                            instruction.line,
                            instruction.location,
                        );
                    }
                    Err(error) => errors.push(error),
                }
            }
        } else if let Some(execute) = runtime_function(function) {
            entry.start = Some(start);
            for action in [Action::Execute(execute), Action::Return] {
                self.push(
                    Step {
                        guard: None,
                        action,
                    },
                    RUNTIME,
                    None,
                );
            }
        }
        self.functions.push(entry);
    }

    fn push(&mut self, step: Step, line: u32, location: Option<(u32, u32)>) {
        self.steps.push(step);
        self.lines.push((line, location));
    }

    /// Whether blocks may communicate in a function.
    pub(crate) fn communicates(&self, function: usize) -> bool {
        self.functions[function].communicates
    }

    /// Whether a step is of a function of the device's runtime.
    pub(super) fn is_runtime(&self, pc: u32) -> bool {
        self.line(pc).0 == RUNTIME
    }

    /// Where a step is in the text, and in the file that it was compiled from.
    pub(super) fn line(&self, pc: u32) -> (u32, Option<(u32, u32)>) {
        self.lines.get(pc as usize).copied().unwrap_or_default()
    }
}

/// Targets count from the start of the function.
fn relocate(action: Action, start: u32) -> Action {
    match action {
        Action::Branch(target) => Action::Branch(start + target),
        Action::BranchIndexed { index, targets, .. } => Action::BranchIndexed {
            index,
            targets,
            start,
        },
        action => action,
    }
}
