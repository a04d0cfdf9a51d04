//! From a program to PTX.

use std::fmt::Write as _;

use super::inputs::{LOCAL_SLOT, RECORD, REGISTERS, SHARED_SLOT, SLOT, immediate};
use super::program::{Family, Operation, Program, Statement};

/// What begins each module.
pub(super) const HEADER: &str = ".version 8.6\n.target sm_90\n.address_size 64\n";

const DECLARATIONS: &str = "\
.reg .b32 %r<8>; .reg .f32 %f<6>; .reg .b32 %x<3>; .reg .b64 %d<4>; .reg .f64 %g<4>; .reg .b16 %h<4>; .reg .b16 %e<4>;
.reg .pred %p<4>; .reg .b32 %t<4>; .reg .b64 %u<2>; .reg .b16 %v<2>; .reg .pred %q<2>; .reg .b32 %m;
.reg .b32 %c<8>; .reg .b64 %w<2>; .reg .b32 %z<4>;
";

/// The text of a kernel of this name, and of its functions.
pub(super) fn kernel(program: &Program, name: &str) -> String {
    let mut out = String::new();
    for (index, body) in program.functions.iter().enumerate() {
        let (mut writer, parameters) = (
            Writer::new(name, false),
            "(.param .b32 a, .param .b64 b, .param .b32 c)",
        );
        let _ = writeln!(
            out,
            ".func (.param .align 8 .b8 to[16]) {name}_{index} {parameters}\n{{\n{DECLARATIONS}"
        );
        // All registers have values.
        out.push_str("ld.param.b32 %r0, [a];\nld.param.b64 %d0, [b];\nld.param.b32 %f0, [c];\n");
        out.push_str(
            "mov.b32 {%h0, %e0}, %r0;\nmov.b64 {%x0, %x1}, %d0;\nmov.b64 {%r1, %f1}, %d0;\n",
        );
        out.push_str("mov.b64 %g0, {%r0, %f0};\nmov.b64 %g1, %d0;\nnot.b64 %d1, %d0;\n");
        out.push_str("shl.b64 %d2, %d0, 3;\nmov.b64 %d3, 5;\nmov.f64 %g2, 0d3ff8000000000000;\nneg.f64 %g3, %g2;\n");
        out.push_str("mov.b32 {%h1, %h2}, %x0;\nmov.b32 {%e1, %e2}, %x1;\nmov.b16 %h3, 7;\nmov.b16 %e3, 0x3c01;\n");
        for register in 2..8 {
            let _ = writeln!(
                out,
                "mul.lo.s32 %r{register}, %r{}, 0x9e3779b1;",
                register - 1
            );
        }
        out.push_str("mov.b32 %f2, %r2;\nmov.b32 %f3, 0f3f800001;\nmov.b32 %f4, 0fc2280000;\nmov.b32 %f5, %r3;\n");
        for register in 0..4 {
            let _ = writeln!(out, "setp.lt.s32 %p{register}, %r{register}, 0;");
        }
        writer.statements(body);
        out.push_str(&writer.out);
        out.push_str("st.param.b32 [to], %r0;\nst.param.b32 [to+4], %f0;\nst.param.b64 [to+8], %d0;\nret;\n}\n");
    }
    let threads = program.warps * 32;
    let total = program.blocks * threads * RECORD as u32;
    let _ = writeln!(
        out,
        ".visible .entry {name}(.param .u64 buffer)\n{{\n{DECLARATIONS}"
    );
    let _ = writeln!(
        out,
        ".reg .b64 %base; .reg .b64 %rec; .reg .b64 %ga; .reg .b64 %gs; .reg .b64 %gl; .reg .b64 %ca;"
    );
    let _ = writeln!(
        out,
        ".reg .b64 %sa; .reg .b64 %sb; .reg .b64 %la; .reg .b32 %tix; .reg .b32 %nti;"
    );
    let _ = writeln!(
        out,
        ".shared .align 16 .b8 sh[{}];\n.local .align 16 .b8 lo[64];",
        threads * 64
    );
    out.push_str("ld.param.u64 %base, [buffer];\ncvta.to.global.u64 %base, %base;\n");
    out.push_str("mov.u32 %tix, %tid.x;\nmov.u32 %nti, %ntid.x;\nmov.u32 %t0, %ctaid.x;\nmad.lo.u32 %t0, %t0, %nti, %tix;\n");
    let _ = writeln!(
        out,
        "mad.wide.u32 %rec, %t0, {RECORD}, %base;\nadd.u64 %ga, %rec, {SLOT};\nadd.u64 %ca, %base, {total};"
    );
    out.push_str("mov.u64 %sb, sh;\nmad.wide.u32 %sa, %tix, 64, %sb;\nmov.u64 %la, lo;\n");
    out.push_str("cvta.shared.u64 %gs, %sa;\ncvta.local.u64 %gl, %la;\n");
    for (register, at) in REGISTERS.iter().flat_map(|own| own.places()) {
        let _ = writeln!(
            out,
            "ld.global.b{} {register}, [%rec+{}];",
            at.bits, at.offset
        );
    }
    out.push_str("ld.global.u32 %t0, [%rec+144];\n");
    for register in 0..4 {
        let _ = writeln!(
            out,
            "and.b32 %t1, %t0, {};\nsetp.ne.u32 %p{register}, %t1, 0;",
            1 << register
        );
    }
    for part in (0..64).step_by(16) {
        let registers = "{%t0, %t1, %t2, %t3}";
        let _ = writeln!(out, "ld.global.v4.b32 {registers}, [%ga+{part}];");
        let _ = writeln!(
            out,
            "st.shared.v4.b32 [%sa+{part}], {registers};\nst.local.v4.b32 [%la+{part}], {registers};"
        );
    }
    let mut writer = Writer::new(name, !program.functions.is_empty());
    writer.statements(&program.body);
    out.push_str(&writer.out);
    for (register, at) in REGISTERS.iter().flat_map(|own| own.places()) {
        let _ = writeln!(
            out,
            "st.global.b{} [%rec+{}], {register};",
            at.bits, at.offset
        );
    }
    for register in 0..4 {
        let _ = writeln!(out, "selp.u32 %t{register}, 1, 0, %p{register};");
    }
    out.push_str("st.global.v4.b8 [%rec+144], {%t0, %t1, %t2, %t3};\n");
    for part in (0..64).step_by(16) {
        let registers = "{%t0, %t1, %t2, %t3}";
        let _ = writeln!(
            out,
            "ld.shared.v4.b32 {registers}, [%sa+{part}];\nst.global.v4.b32 [%rec+{}], {registers};",
            SHARED_SLOT + part
        );
        let _ = writeln!(
            out,
            "ld.local.v4.b32 {registers}, [%la+{part}];\nst.global.v4.b32 [%rec+{}], {registers};",
            LOCAL_SLOT + part
        );
    }
    out.push_str("ret;\n}\n");
    out
}

struct Writer<'a> {
    out: String,
    kernel: &'a str,
    labels: u32,
    depth: usize,
    /// Whether there are functions to call.
    calls: bool,
}

impl<'a> Writer<'a> {
    fn new(kernel: &'a str, calls: bool) -> Self {
        Self {
            out: String::new(),
            kernel,
            labels: 0,
            depth: 0,
            calls,
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn statements(&mut self, all: &[Statement]) {
        for own in all {
            self.statement(own);
        }
    }

    fn statement(&mut self, own: &Statement) {
        match own {
            Statement::Do(operation) => self.operation(operation),
            Statement::If(predicate, first, second) => {
                let (other, end) = (self.label(), self.label());
                self.line(&format!("@{} bra {other};", guard(*predicate)));
                self.statements(first);
                self.line(&format!("bra {end};\n{other}:"));
                self.statements(second);
                self.line(&format!("{end}:"));
            }
            Statement::Warp(predicate, body) => {
                let (end, own) = (self.label(), guard(*predicate));
                self.line(&format!("vote.sync.ballot.b32 %m, {own}, -1;\n@{own} bra {end}_in;\nbra {end};\n{end}_in:"));
                self.statements(body);
                self.line(&format!("{end}:\nbar.warp.sync -1;"));
            }
            Statement::Repeat(count, body) => {
                let (start, counter) = (self.label(), self.depth);
                self.line(&format!(
                    "mov.u32 %c{counter}, {};\n{start}:",
                    count % 4 + 1
                ));
                self.inside(body);
                self.line(&format!("sub.u32 %c{counter}, %c{counter}, 1;\nsetp.ne.u32 %q0, %c{counter}, 0;\n@%q0 bra {start};"));
            }
            Statement::While(register, body) => {
                let (start, end, counter) = (self.label(), self.label(), self.depth);
                self.line(&format!(
                    "and.b32 %c{counter}, %r{}, 3;\n{start}:",
                    register % 8
                ));
                self.line(&format!(
                    "setp.eq.u32 %q0, %c{counter}, 0;\n@%q0 bra {end};"
                ));
                self.inside(body);
                if *register >= 128 {
                    self.line(&format!("@%p{} bra {end};", register % 4));
                }
                self.line(&format!(
                    "sub.u32 %c{counter}, %c{counter}, 1;\nbra {start};\n{end}:"
                ));
            }
            Statement::Switch(register, cases) => {
                let (end, table) = (self.label(), self.label());
                let labels: Vec<String> = cases.iter().map(|_| self.label()).collect();
                self.line(&format!(
                    "rem.u32 %t0, %r{}, {};",
                    register % 8,
                    cases.len()
                ));
                self.line(&format!(
                    "{table}: .branchtargets {};\nbrx.idx %t0, {table};",
                    labels.join(", ")
                ));
                for (label, body) in labels.iter().zip(cases) {
                    self.line(&format!("{label}:"));
                    self.statements(body);
                    self.line(&format!("bra {end};"));
                }
                self.line(&format!("{end}:"));
            }
            Statement::Call(picks, through_pointer) if self.calls => {
                self.call(*picks, *through_pointer)
            }
            // There are no functions.
            Statement::Call(..) => {}
        }
    }

    fn inside(&mut self, body: &[Statement]) {
        self.depth += 1;
        self.statements(body);
        self.depth -= 1;
    }

    fn call(&mut self, picks: [u8; 4], through_pointer: bool) {
        let [function, a, b, c] = picks;
        let (name, label) = (format!("{}_{}", self.kernel, function % 2), self.label());
        self.line(
            "{\n.param .b32 a1; .param .b64 b1; .param .b32 c1; .param .align 8 .b8 to1[16];",
        );
        self.line(&format!(
            "st.param.b32 [a1], %r{};\nst.param.b64 [b1], %d{};\nst.param.b32 [c1], %f{};",
            a % 8,
            b % 4,
            c % 6
        ));
        if through_pointer {
            // Each lane the function that a predicate says.
            self.line(&format!(
                "mov.u64 %w0, {0}_0;\nmov.u64 %w1, {0}_1;\nselp.b64 %w0, %w0, %w1, %p{1};",
                self.kernel,
                a % 4
            ));
            self.line(&format!("{label}: .callprototype (.param .align 8 .b8 _[16]) _ (.param .b32 _, .param .b64 _, .param .b32 _);"));
            self.line(&format!("call (to1), %w0, (a1, b1, c1), {label};"));
        } else {
            self.line(&format!("call (to1), {name}, (a1, b1, c1);"));
        }
        self.line(&format!(
            "ld.param.b32 %r{}, [to1];\nld.param.b32 %f{}, [to1+4];\nld.param.b64 %d{}, [to1+8];\n}}",
            c % 8,
            a % 6,
            b / 4 % 4
        ));
    }

    fn operation(&mut self, own: &Operation) {
        let template = own.family.templates()[own.template];
        let (template, always) = match template.strip_prefix('^') {
            Some(rest) => (rest, true),
            None => (template, false),
        };
        let text = Expansion {
            own,
            next: 0,
            remembered: None,
        }
        .expand(template);
        let is_single = !text.contains(';');
        let may_guard = !always && !matches!(own.family, Family::Together | Family::Masked);
        if is_single && may_guard && own.guard < 48 {
            let _ = write!(self.out, "@{} ", guard(own.guard));
        }
        self.line(&(text + ";"));
    }
}

/// A predicate or its complement.
fn guard(pick: u8) -> String {
    format!("{}%p{}", if pick & 4 == 0 { "" } else { "!" }, pick % 4)
}

struct Expansion<'a> {
    own: &'a Operation,
    next: usize,
    remembered: Option<(char, String)>,
}

impl Expansion<'_> {
    fn pick(&mut self) -> usize {
        let pick = self.own.picks[self.next % 16];
        // Where they are used up, others follow from them.
        let round = (self.next / 16) as u8;
        self.next += 1;
        usize::from(
            pick.wrapping_mul(round * 2 + 1)
                .rotate_left(u32::from(round)),
        )
    }

    fn expand(&mut self, template: &str) -> String {
        let (template, normalizes) = match template.strip_suffix('~') {
            Some(rest) => (rest, true),
            None => (template, false),
        };
        let mut out = self.choose(template);
        if normalizes && let Some((kind, register)) = self.remembered.take() {
            let _ = match kind {
                'F' => write!(
                    out,
                    "; setp.nan.f32 %q0, {register}, {register}; selp.f32 {register}, 0f7fffffff, {register}, %q0"
                ),
                'G' => write!(
                    out,
                    "; setp.nan.f64 %q0, {register}, {register}; selp.f64 {register}, 0d7ff8000000000000, {register}, %q0"
                ),
                'E' | 'B' => {
                    let of = if kind == 'E' { "f16" } else { "bf16" };
                    write!(
                        out,
                        "; setp.nan.{of} %q0, {register}, {register}; selp.b16 {register}, 0x7fff, {register}, %q0"
                    )
                }
                _ => {
                    let of = if kind == 'X' { "f16x2" } else { "bf16x2" };
                    write!(
                        out,
                        "; setp.nan.{of} %q0|%q1, {register}, {register}; mov.b32 {{%v0, %v1}}, {register}; \
                         selp.b16 %v0, 0x7fff, %v0, %q0; selp.b16 %v1, 0x7fff, %v1, %q1; mov.b32 {register}, {{%v0, %v1}}"
                    )
                }
            };
        }
        out
    }

    /// Alternatives first, then placeholders.
    fn choose(&mut self, template: &str) -> String {
        let mut chosen = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            chosen.push_str(before);
            let Some((inside, after)) = after.split_once('}') else {
                break;
            };
            if inside.contains('|') {
                let all: Vec<&str> = inside.split('|').collect();
                chosen.push_str(all[self.pick() % all.len()]);
            } else {
                let _ = write!(chosen, "{{{inside}}}");
            }
            rest = after;
        }
        chosen.push_str(rest);
        self.fill(&chosen)
    }

    fn fill(&mut self, template: &str) -> String {
        let mut out = String::new();
        let mut characters = template.chars();
        while let Some(character) = characters.next() {
            if character != '$' {
                out.push(character);
                continue;
            }
            let kind = characters.next().unwrap_or_default();
            let pick = self.pick();
            let text = match kind {
                'b' => (pick & 255).to_string(),
                '5' => (pick % 32).to_string(),
                'o' => {
                    let size: String = characters.by_ref().take(1).collect();
                    // `$o16` has two digits.
                    let size = match size.as_str() {
                        "1" if characters.as_str().starts_with('6') => {
                            characters.next();
                            16
                        }
                        "1" => 1,
                        "2" => 2,
                        "4" => 4,
                        _ => 8,
                    };
                    (pick % (64 / size) * size).to_string()
                }
                'i' | 'j' | 'k' | 'l' if pick >= 160 => immediate(
                    kind,
                    pick,
                    self.own.number.rotate_left(self.next as u32 * 8),
                ),
                _ => register(kind, pick),
            };
            if kind.is_ascii_uppercase() {
                self.remembered = Some((kind, text.clone()));
            }
            out.push_str(&text);
        }
        out
    }
}

fn register(kind: char, pick: usize) -> String {
    let (letter, count) = match kind.to_ascii_lowercase() {
        'i' | 'r' => ('r', 8),
        'j' | 'd' => ('d', 4),
        'k' | 'f' => ('f', 6),
        'l' | 'g' => ('g', 4),
        'h' => ('h', 4),
        'e' | 'b' => ('e', 4),
        'x' | 'y' => ('x', 2),
        _ => ('p', 4),
    };
    format!("%{letter}{}", pick % count)
}
