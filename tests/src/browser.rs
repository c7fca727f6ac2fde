//! Chromium without a window, in its own root directory, driven over the DevTools protocol.

use crate::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for one thing, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at the page.
const PERIOD: Duration = Duration::from_millis(50);

/// Starts Chromium in the root directory `$1`. Its libraries are those of another release than the
/// host's, so they are used with their own dynamic loader. It reads commands at descriptor 3 and writes
/// to descriptor 4. The mounts and processes are in namespaces and end with this shell.
const START: &str = r#"
    mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" || exit
    exec env -i HOME=/tmp LANG=C.UTF-8 TZ=UTC PATH=/usr/sbin:/usr/bin \
        chroot "$1" /usr/lib/chromium/chromium-headless-shell \
        --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --disable-background-networking --user-data-dir=/tmp/profile about:blank \
        3<&0 4>&1 </dev/null >/dev/null
"#;

/// A browser with one page. It ends when this is dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Standard error; `None` only after the end.
    log: Option<thread::JoinHandle<String>>,
    session: String,
    next_id: u64,
    complaints: Vec<String>,
}

/// The begin of what xterm.js says when the machine is busy: it draws later.
const SLOW: &str = "task queue exceeded allotted deadline";

/// A key of the keyboard that is not a character.
#[derive(Debug, Clone, Copy)]
pub enum Key {
    /// Enter.
    Enter,
    /// Tabulator.
    Tab,
}

impl Browser {
    /// Starts the browser in its root directory, with a page of this width and height.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(root: &Path, size: (u32, u32)) -> Result<Self> {
        let mut child = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", START, "sh"])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let commands = child.stdin.take().ok_or("no standard input")?;
        let output = child.stdout.take().ok_or("no standard output")?;
        let mut errors = child.stderr.take().ok_or("no standard error")?;
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let message = message.map(|bytes| serde_json::from_slice(&bytes));
                let Ok(Ok(message)) = message else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let log = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            log: Some(log),
            session: String::new(),
            next_id: 0,
            complaints: Vec::new(),
        };
        match browser.attach(size) {
            Ok(()) => Ok(browser),
            Err(_) => Err(format!("Chromium does not start: {}", browser.end()).into()),
        }
    }

    fn attach(&mut self, (width, height): (u32, u32)) -> Result<()> {
        let made = self.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let target = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", target)?;
        let session = attached["sessionId"].as_str().ok_or("no session")?;
        session.clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Log", "Audits"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        self.resize((width, height))
    }

    /// Changes the size of the page.
    ///
    /// # Errors
    /// The browser has ended.
    pub fn resize(&mut self, (width, height): (u32, u32)) -> Result<()> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        Ok(())
    }

    /// Uses the light or the dark colour scheme.
    ///
    /// # Errors
    /// The browser has ended.
    pub fn set_scheme(&mut self, scheme: &str) -> Result<()> {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        )?;
        Ok(())
    }

    /// Loads a page.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn go(&mut self, url: &str) -> Result<()> {
        let loaded = self.call("Page.navigate", json!({ "url": url }))?;
        match loaded["errorText"].as_str() {
            Some(error) => Err(format!("{url}: {error}").into()),
            None => Ok(()),
        }
    }

    /// The value of an expression in the page.
    ///
    /// # Errors
    /// The expression throws an exception.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let request =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", request)?;
        match answer.get("exceptionDetails") {
            Some(exception) => Err(format!("{expression}: {exception}").into()),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// It does not become true in time; the error has the page's text.
    pub fn until(&mut self, expression: &str) -> Result<()> {
        let start = Instant::now();
        while self.value(&format!("Boolean({expression})"))? != true {
            if start.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText")?;
                let complaints = self.complaints.join("\n");
                return Err(format!("not {expression}: {text}\n{complaints}").into());
            }
            thread::sleep(PERIOD);
        }
        Ok(())
    }

    /// Waits until the page shows a text.
    ///
    /// # Errors
    /// It does not in time.
    pub fn until_shown(&mut self, text: &str) -> Result<()> {
        self.until(&format!(
            "document.body.innerText.includes({})",
            json!(text)
        ))
    }

    /// Presses the mouse's button in the middle of the element that a CSS selector and its text, or its
    /// label, select. Waits until there is one.
    ///
    /// # Errors
    /// There is none.
    pub fn click(&mut self, selector: &str, text: &str) -> Result<()> {
        let find = format!(
            "[...document.querySelectorAll({})].find((node) => node.checkVisibility() && \
                (node.getAttribute('aria-label') ?? node.textContent) === {})",
            json!(selector),
            json!(text)
        );
        self.until(&find)?;
        let place = self.value(&format!(
            "(() => {{ const node = {find}; node.scrollIntoView({{ block: 'center' }}); \
                const box = node.getBoundingClientRect(); \
                return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left",
                "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Types a text.
    ///
    /// # Errors
    /// The browser has ended.
    pub fn write(&mut self, text: &str) -> Result<()> {
        for character in text.chars() {
            let text = character.to_string();
            let down = json!({ "type": "keyDown", "key": text, "text": text });
            self.call("Input.dispatchKeyEvent", down)?;
            self.call(
                "Input.dispatchKeyEvent",
                json!({ "type": "keyUp", "key": text }),
            )?;
        }
        Ok(())
    }

    /// Presses a key.
    ///
    /// # Errors
    /// The browser has ended.
    pub fn press(&mut self, key: Key) -> Result<()> {
        let (name, code, text) = match key {
            Key::Enter => ("Enter", 13, "\r"),
            Key::Tab => ("Tab", 9, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": name, "code": name,
                "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// The roles of links and controls without a name for screen readers.
    ///
    /// # Errors
    /// The browser has ended.
    pub fn nameless(&mut self) -> Result<Vec<String>> {
        const ROLES: [&str; 7] = [
            "button", "link", "textbox", "combobox", "checkbox", "meter", "image",
        ];
        let tree = self.call("Accessibility.getFullAXTree", json!({}))?;
        let nodes = tree["nodes"].as_array().ok_or("no accessibility tree")?;
        let role = |node: &Value| {
            node["role"]["value"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let seen = nodes.iter().filter(|node| node["ignored"] != true);
        let is_nameless = |node: &&Value| node["name"]["value"].as_str().is_none_or(str::is_empty);
        let roles = seen.filter(is_nameless).map(role);
        Ok(roles
            .filter(|role| ROLES.contains(&role.as_str()))
            .collect())
    }

    /// Writes a picture of the page (PNG).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn picture(&mut self, file: &Path) -> Result<()> {
        let made = self.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let data = made["data"].as_str().ok_or("no picture")?;
        Ok(std::fs::write(file, STANDARD.decode(data)?)?)
    }

    /// Takes what the browser's console has shown until now: errors and warnings of scripts, failed
    /// requests, and violations of the content security policy.
    ///
    /// # Errors
    /// The browser has ended.
    pub fn complaints(&mut self) -> Result<Vec<String>> {
        // What happened before this call is reported before its answer.
        self.value("new Promise(requestAnimationFrame)")?;
        Ok(std::mem::take(&mut self.complaints))
    }

    /// Calls a method of the DevTools protocol.
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.next_id += 1;
        let id = self.next_id;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() && !method.starts_with("Target.") {
            command["sessionId"] = self.session.as_str().into();
        }
        let bytes = [command.to_string().as_bytes(), &[0]].concat();
        self.commands.write_all(&bytes)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(mut message) = self.messages.recv_timeout(left) else {
                return Err(format!("{method}: no answer").into());
            };
            if message["id"] != id {
                self.note(&message);
            } else if let Some(error) = message.get("error") {
                return Err(format!("{method}: {error}").into());
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Notes an event if it is a complaint.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let is_complaint = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => {
                let kind = parameters["type"].as_str();
                let text = parameters["args"][0]["value"].as_str();
                matches!(kind, Some("error" | "warning" | "assert"))
                    && !text.is_some_and(|text| text.starts_with(SLOW))
            }
            "Log.entryAdded" => {
                let level = parameters["entry"]["level"].as_str();
                matches!(level, Some("error" | "warning"))
            }
            "Audits.issueAdded" => parameters["issue"]["code"] == "ContentSecurityPolicyIssue",
            _ => false,
        };
        if is_complaint {
            self.complaints.push(parameters.to_string());
        }
    }

    /// Ends the browser. Result: its standard error.
    pub fn end(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // All its processes have ended, and so does the thread.
        let log = self.log.take().map(thread::JoinHandle::join);
        log.and_then(thread::Result::ok).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
