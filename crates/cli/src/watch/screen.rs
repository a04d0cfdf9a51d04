//! The terminal: a header, the bytes over time, and the call sites. A thread takes the samples, so that keys work while the process
//! is slow to reply.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use cuguard_live::AskError;
use cuguard_report::ByteSize;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};

use super::history::History;
use super::sample::{self, Sample};
use super::text;

/// How long a key waits at most.
const GLANCE: Duration = Duration::from_millis(50);

/// Shows a process until it ends or a key ends the watch.
pub(super) fn run(
    mut history: History,
    process: u32,
    sites: usize,
    interval: Duration,
) -> Result<(), String> {
    let paused = Arc::new(AtomicBool::new(false));
    let samples = take_samples(process, sites, interval, paused.clone());
    let mut terminal = ratatui::try_init().map_err(|error| error.to_string())?;
    let end = loop {
        let drawn = terminal.draw(|frame| draw(frame, &history, paused.load(Ordering::Relaxed)));
        if let Err(error) = drawn {
            break Err(error.to_string());
        }
        match samples.recv_timeout(GLANCE) {
            Ok(Ok(sample)) => history.push(sample),
            Ok(Err(why)) => break Ok(Some(why)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Ok(None),
        }
        match keys() {
            Ok(Some(Key::End)) => break Ok(None),
            Ok(Some(Key::Pause)) => {
                paused.fetch_xor(true, Ordering::Relaxed);
            }
            Ok(None) => {}
            Err(error) => break Err(error.to_string()),
        }
    };
    ratatui::restore();
    if let Some(why) = end? {
        let last = text::device(&history);
        println!("{}: {last}\n{why}", text::process(history.last()));
    }
    Ok(())
}

fn take_samples(
    process: u32,
    sites: usize,
    interval: Duration,
    paused: Arc<AtomicBool>,
) -> Receiver<Result<Sample, String>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        loop {
            thread::sleep(interval);
            if paused.load(Ordering::Relaxed) {
                continue;
            }
            let mut sample = sample::take(process, sites);
            // A process that exits closes its server first. The error is the same however far the exit is.
            if sample.is_err() && wait_for_exit(process) {
                sample = Err(AskError::NoProcess { process }.to_string());
            }
            let is_last = sample.is_err();
            if sender.send(sample).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// Waits until the process has exited, for some seconds at most. Returns whether it has.
fn wait_for_exit(process: u32) -> bool {
    let begin = Instant::now();
    loop {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The state follows the name, which may contain anything. A zombie has exited, although its parent has not waited for it.
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return true;
        }
        if begin.elapsed() > Duration::from_secs(5) {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

enum Key {
    End,
    Pause,
}

/// The next key that means something.
fn keys() -> std::io::Result<Option<Key>> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && let Some(key) = meaning(key)
        {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn meaning(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::End),
        KeyCode::Char('c') if with_control => Some(Key::End),
        KeyCode::Char('p' | ' ') => Some(Key::Pause),
        _ => None,
    }
}

fn draw(frame: &mut Frame<'_>, history: &History, is_paused: bool) {
    let sample = history.last();
    let kinds = sample.kinds.len().min(8) as u16;
    let [header, graph, table, footer] = Layout::vertical([
        Constraint::Length(2 + kinds),
        Constraint::Length(8),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let mut lines = vec![
        Line::from(text::process(sample)).bold(),
        Line::from(text::device(history)),
    ];
    let kinds = sample.kinds.iter().take(kinds.into());
    lines.extend(kinds.map(|kind| Line::from(format!("  {}", text::kind(kind))).dim()));
    frame.render_widget(Paragraph::new(lines), header);

    let title = format!(" device memory, at most {} ", ByteSize(history.most()));
    let block = Block::new().borders(Borders::ALL).title(title);
    let values = history.newest(usize::from(block.inner(graph).width));
    let sparkline = Sparkline::default()
        .block(block)
        .max(history.most().max(1))
        .style(Style::new().fg(Color::Cyan))
        .data(values);
    frame.render_widget(sparkline, graph);

    let rows = sample.sites.iter().map(|site| {
        let size = format!("{:>10}", ByteSize(site.bytes).to_string());
        Row::new([
            size,
            format!("{:>8}", site.count),
            site.kind.clone(),
            site.name(),
        ])
    });
    let widths = [
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(16),
        Constraint::Min(20),
    ];
    let heads = ["     bytes", "   count", "kind", "call site"];
    let sites = Table::new(rows, widths)
        .header(Row::new(heads).bold())
        .block(
            Block::new()
                .borders(Borders::ALL)
                .title(" largest call sites "),
        );
    frame.render_widget(sites, table);
    let keys = match is_paused {
        true => "paused   p resume   q quit",
        false => "p pause   q quit",
    };
    frame.render_widget(Line::from(keys).dim(), footer);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::super::history::History;
    use super::super::sample::{Kind, Sample, Site};
    use super::{Key, draw, meaning};

    fn shown(history: &History, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, history, false)).unwrap();
        terminal.backend().to_string()
    }

    fn sample(bytes: u64) -> Sample {
        Sample {
            process: 4711,
            command: "train".to_owned(),
            bytes,
            count: 3,
            kinds: vec![Kind {
                kind: "device".to_owned(),
                live_bytes: bytes,
                live_count: 3,
                peak_bytes: 4 << 20,
            }],
            sites: vec![Site {
                kind: "device".to_owned(),
                bytes,
                count: 3,
                ..Site::default()
            }],
            ..Sample::default()
        }
    }

    #[test]
    fn the_screen_has_the_figures() {
        let mut history = History::new(sample(1 << 20));
        history.push(sample(3 << 20));
        let screen = shown(&history, 100, 30);
        for part in [
            "process 4711 (train)",
            "device memory: 3 MiB in 3 allocations",
            "device: 3 MiB in 3, peak 4 MiB",
            "at most 3 MiB",
            "unknown call site",
            "q quit",
        ] {
            assert!(screen.contains(part), "{part}\n{screen}");
        }
    }

    #[test]
    fn a_tiny_terminal_does_not_panic() {
        let history = History::new(sample(0));
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            shown(&history, width, height);
        }
    }

    #[test]
    fn keys() {
        let key = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert!(matches!(key(KeyCode::Char('q'), none), Some(Key::End)));
        assert!(matches!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Key::End)
        ));
        assert!(matches!(key(KeyCode::Char(' '), none), Some(Key::Pause)));
        assert!(key(KeyCode::Char('c'), none).is_none());
    }
}
