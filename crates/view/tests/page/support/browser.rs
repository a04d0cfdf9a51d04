//! Drives Chromium by the DevTools protocol over pipes: messages are JSON, ended by a NUL byte.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// After so long without a message the browser hangs. A limit for a broken machine, not a measure.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    folder: PathBuf,
    session: String,
    /// What the page stores.
    store: Value,
    last_id: u64,
}

/// The program, where it is installed.
pub fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// Browsers that no test uses. Starting one takes longer than most tests.
static IDLE: Mutex<Vec<Browser>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<Browser>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A browser with a new page, for one test.
pub struct Borrowed(Option<Browser>);

impl Deref for Borrowed {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.as_ref().expect("until it is dropped")
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Browser {
        self.0.as_mut().expect("until it is dropped")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // What a failed test leaves may be broken.
        if let Some(mut browser) = self.0.take().filter(|_| !thread::panicking()) {
            browser.close_page();
            idle().push(browser);
        }
    }
}

/// A browser with a new page, or `None`, with a line that the test was not run.
pub fn start(test: &str) -> Option<Borrowed> {
    let Some(program) = chromium() else {
        cuguard_testing::not_run(cuguard_testing::Requirement::Browser, test);
        return None;
    };
    let taken = idle().pop();
    let mut browser = taken.unwrap_or_else(|| {
        extern "C" fn close_all() {
            idle().clear();
        }
        static ONCE: Once = Once::new();
        // SAFETY: the function takes no arguments and does not unwind.
        ONCE.call_once(|| assert_eq!(unsafe { libc::atexit(close_all) }, 0));
        Browser::new(&program)
    });
    browser.open_page();
    Some(Borrowed(Some(browser)))
}

impl Browser {
    fn new(program: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("cuguard-page-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the browser");
        // Chromium reads from descriptor 3 and writes to 4; the shell makes them of the pipes that a child can have safely.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .arg(program)
            // Root has no sandbox, and shared memory may be small in a container.
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                // Drawn by the processor: speedscope needs WebGL, which is off without this where there is no GPU.
                "--enable-unsafe-swiftshader",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", folder.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let input = child.stdin.take().expect("is piped");
        let mut output = BufReader::new(child.stdout.take().expect("is piped"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while output
                .read_until(0, &mut message)
                .is_ok_and(|length| length > 0)
            {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else {
                    return;
                };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        Self {
            child,
            input,
            messages,
            events: VecDeque::new(),
            folder,
            session: String::new(),
            store: Value::Null,
            last_id: 0,
        }
    }

    /// Opens a page that shares nothing with those before: no storage, no cache.
    fn open_page(&mut self) {
        self.store = self.call("Target.createBrowserContext", json!({}))["browserContextId"].take();
        let page = json!({ "url": "about:blank", "browserContextId": self.store });
        let target = self.call("Target.createTarget", page)["targetId"].take();
        let session = self.call(
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        );
        self.session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.screen(1280, 900);
    }

    fn close_page(&mut self) {
        self.session.clear();
        let store = json!({ "browserContextId": self.store });
        self.call("Target.disposeBrowserContext", store);
        self.events.clear();
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser runs");
        loop {
            let mut message = self
                .messages
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("{method}: no reply of the browser: {error}"));
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push_back(message);
        }
    }

    pub fn screen(&mut self, width: u32, height: u32) {
        self.dense_screen(width, height, 1);
    }

    /// A screen with `scale` pixels for each of the page's, in both directions.
    pub fn dense_screen(&mut self, width: u32, height: u32, scale: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub fn scheme(&mut self, name: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": name }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens a page from disk and waits until it is usable. Returns the milliseconds that the page measured.
    pub fn open(&mut self, html: &[u8]) -> f64 {
        self.open_at(html, "")
    }

    /// The same, with what stands behind the file's name in the address.
    pub fn open_at(&mut self, html: &[u8], fragment: &str) -> f64 {
        let file = self.folder.join("page.html");
        fs::write(&file, html).expect("the page is written");
        // An address that differs only behind # would not be loaded again.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call(
            "Page.navigate",
            json!({ "url": format!("file://{}{fragment}", file.display()) }),
        );
        self.wait("document.readyState === 'complete' && document.documentElement.dataset.ready");
        self.number("Number(document.documentElement.dataset.ready)")
    }

    /// Opens an address, and does not wait.
    pub fn visit(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Chooses a file, as in the dialog that an `<input type=file>` opens.
    pub fn choose_file(&mut self, selector: &str, file: &Path) {
        let expression = format!("document.querySelector({selector:?})");
        let mut found = self.call("Runtime.evaluate", json!({ "expression": expression }));
        let object = found["result"]["objectId"].take();
        let params = json!({ "objectId": object, "files": [file] });
        self.call("DOM.setFileInputFiles", params);
    }

    /// A folder that is removed with the browser.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The value of an expression; promises are awaited.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true });
        let mut result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].take()
    }

    pub fn number(&mut self, expression: &str) -> f64 {
        let value = self.eval(expression);
        value
            .as_f64()
            .unwrap_or_else(|| panic!("{expression}: {value} is not a number"))
    }

    pub fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        value
            .as_str()
            .unwrap_or_else(|| panic!("{expression}: {value} is not a text"))
            .to_owned()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.eval(&format!("Boolean({expression})")) != true {
            assert!(
                std::time::Instant::now() < deadline,
                "never true: {expression}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks the middle of an element, as a mouse does.
    pub fn click(&mut self, selector: &str) {
        let place = self.eval(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        let (x, y) = (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
        self.drag((x, y), (x, y));
    }

    /// Presses the button at one point of the window and releases it at another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from, 0);
        self.mouse("mousePressed", from, 1);
        if from != to {
            self.mouse("mouseMoved", ((from.0 + to.0) / 2.0, to.1), 1);
            self.mouse("mouseMoved", to, 1);
        }
        self.mouse("mouseReleased", to, 0);
    }

    pub fn mouse(&mut self, event: &str, (x, y): (f64, f64), buttons: u32) {
        let is_button = event != "mouseMoved";
        let params = json!({
            "type": event, "x": x, "y": y, "buttons": buttons,
            "button": if is_button || buttons > 0 { "left" } else { "none" }, "clickCount": u32::from(is_button),
        });
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Presses and releases a key.
    pub fn key(&mut self, key: &str) {
        self.press(key, 0);
    }

    /// The same with Shift.
    pub fn shift_key(&mut self, key: &str) {
        self.press(key, 8);
    }

    fn press(&mut self, key: &str, modifiers: u32) {
        // The browser's own actions, such as closing a dialog or moving the focus, go by the code of the key.
        let code = match key {
            "Escape" => 27,
            "Tab" => 9,
            _ => 0,
        };
        let mut params = json!({
            "type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers,
        });
        if key.chars().count() == 1 {
            params["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", params);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key }),
        );
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Fails if the page logged anything, threw, or asked for anything but itself.
    pub fn assert_silent(&mut self) {
        // A round trip: what happened before it has been reported.
        self.eval("new Promise((done) => setTimeout(done, 50))");
        for event in &self.events {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or("") {
                "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled" => {
                    panic!("the page logged: {event}")
                }
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap_or("");
                    let own = url.starts_with("file://") && url.ends_with("/page.html");
                    assert!(
                        own || url.starts_with("data:") || url == "about:blank",
                        "the page requested {url}"
                    );
                }
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A test may be failing: whatever goes wrong here must not hide why.
        let _ = self
            .input
            .write_all(b"{\"id\":999999999,\"method\":\"Browser.close\"}\0");
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
