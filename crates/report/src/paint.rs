//! Colours of text on a terminal.

/// What a colour stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    Bad,
    Notice,
    Good,
    Strong,
    Quiet,
}

impl Tone {
    /// The text with ANSI codes around it, or as it is.
    pub(crate) fn paint(self, text: &str, coloured: bool) -> String {
        let code = match self {
            _ if !coloured => return text.to_owned(),
            Self::Bad => "1;31",
            Self::Notice => "33",
            Self::Good => "32",
            Self::Strong => "1",
            Self::Quiet => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
