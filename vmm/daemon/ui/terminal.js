// A terminal of a machine: of its program (attach), or of a command that is started in it (exec).
// xterm.js is loaded by index.html as classic scripts, which set properties of `window`.

import { open } from "./api.js";
import { button, element, setText } from "./dom.js";
import { session } from "./session.js";

/** Most bytes of a message to the daemon. */
const LONGEST = 32 << 10;
/** Codes of connections that the daemon closes after the end: normal, and without a code. */
const ENDS = [1000, 1005];
/** Most bytes that wait for xterm.js; more are left out. */
const MOST_WAITING = 8 << 20;

/**
 * The terminal of xterm.js with its element. There is one, which all connections use in turn: its canvas
 * renderer cannot be disposed of without making the DOM renderer, which needs inline styles.
 */
let screen = null;

function theScreen() {
  if (screen === null) {
    const frame = element("div", { class: "terminal-frame" });
    const terminal = new window.Terminal({
      cursorBlink: true,
      fontFamily: '"DejaVu Sans Mono", ui-monospace, monospace',
      fontSize: 14,
      // The text is also in the page, for screen readers.
      screenReaderMode: true,
      scrollback: 5000,
    });
    const fit = new window.FitAddon.FitAddon();
    terminal.loadAddon(fit);
    // Before `open`: otherwise the DOM renderer is the first one.
    terminal.loadAddon(new window.CanvasAddon.CanvasAddon());
    screen = { terminal, fit, frame, isOpen: false };
  }
  return screen;
}

/** A view of terminals of a machine, one at a time. */
export class TerminalView {
  constructor(machine) {
    this.machine = machine;
    this.socket = null;
    this.listeners = [];
    this.status = element("span", { role: "status", class: "note" });
    this.command = element("input", { value: "/bin/sh", size: "30", spellcheck: "false" });
    this.place = element("div");
    const tools = element("div", { class: "tools" });
    if (machine.spec.terminal) {
      tools.append(button("Attach to the program", () => this.attach()));
    }
    if (session.mayWrite) {
      const form = element(
        "form",
        { class: "tools", submit: (event) => this.execute(event) },
        element("label", {}, "Command ", this.command),
        element("button", { type: "submit" }, "Run in a terminal"),
      );
      tools.append(form);
    }
    this.end = button("Disconnect", () => this.close(), { disabled: true });
    tools.append(this.end, this.status);
    this.node = element("section", { "aria-label": "Terminal" }, tools, this.place);
    this.sizes = new ResizeObserver(() => this.socket !== null && screen.fit.fit());
    this.sizes.observe(this.place);
  }

  /** Connects to the program's own terminal. */
  attach() {
    const isTyped = this.machine.spec.interactive && session.mayWrite;
    const query = isTyped ? "?logs=true&input=true" : "?logs=true";
    this.connect(`v1/machines/${this.machine.id}/attach${query}`, isTyped, null);
  }

  /** Starts the command of the form. */
  execute(event) {
    event.preventDefault();
    const words = split(this.command.value);
    if (words.length > 0) {
      this.connect(`v1/machines/${this.machine.id}/exec`, true, words);
    }
  }

  connect(path, isTyped, command) {
    this.close();
    const terminal = this.show(isTyped);
    const socket = open(path);
    this.socket = socket;
    this.end.disabled = false;
    setText(this.status, "Connecting");
    const size = () => ({ rows: terminal.rows, columns: terminal.cols });
    const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(message);
    const sendSize = () => session.mayWrite && send(JSON.stringify({ resize: size() }));
    socket.addEventListener("open", () => {
      if (command === null) {
        sendSize();
      } else {
        send(JSON.stringify({ command, terminal: size() }));
      }
      setText(this.status, "Connected");
      terminal.focus();
    });
    const receive = receiver(terminal);
    socket.addEventListener("message", ({ data }) => {
      if (this.socket !== socket) {
        return;
      }
      if (typeof data === "string") {
        setText(this.status, endOf(JSON.parse(data)));
      } else {
        // The first byte is the stream.
        receive(new Uint8Array(data, 1));
      }
    });
    socket.addEventListener("close", ({ code, reason }) => {
      if (this.socket !== socket) {
        return;
      }
      this.disconnect();
      if (!ENDS.includes(code)) {
        setText(this.status, reason || "The connection was refused or lost");
      }
    });
    this.listeners.push(terminal.onResize(sendSize));
    if (isTyped) {
      const encoder = new TextEncoder();
      const codes = (text) => Uint8Array.from(text, (character) => character.charCodeAt(0));
      this.listeners.push(
        terminal.onData((text) => sendBytes(send, encoder.encode(text))),
        terminal.onBinary((text) => sendBytes(send, codes(text))),
      );
    }
  }

  /** Shows the empty terminal here. */
  show(isTyped) {
    const { terminal, fit, frame } = theScreen();
    this.place.replaceChildren(frame);
    if (!screen.isOpen) {
      screen.isOpen = true;
      terminal.open(frame);
    }
    terminal.reset();
    terminal.options.disableStdin = !isTyped;
    fit.fit();
    return terminal;
  }

  /** Ends the connection. A machine goes on; a command's terminal hangs up. What is shown stays. */
  disconnect() {
    this.socket?.close();
    this.socket = null;
    this.listeners.forEach((listener) => listener.dispose());
    this.listeners = [];
    this.end.disabled = true;
  }

  /** Ends the connection, and shows nothing of it any more. */
  close() {
    this.disconnect();
    setText(this.status, "");
    this.place.replaceChildren();
  }

  /** Forgets everything: the page shows something else. */
  dispose() {
    this.close();
    this.sizes.disconnect();
  }
}

/** Writes output to a terminal, as far as it keeps up. */
function receiver(terminal) {
  let waiting = 0;
  let isLeavingOut = false;
  return (bytes) => {
    if (waiting + bytes.length > MOST_WAITING) {
      isLeavingOut = true;
      return;
    }
    if (isLeavingOut) {
      isLeavingOut = false;
      terminal.write("\r\n[output is left out]\r\n");
    }
    waiting += bytes.length;
    terminal.write(bytes, () => {
      waiting -= bytes.length;
    });
  };
}

/** Sends typed bytes. An empty message would end the input. */
function sendBytes(send, bytes) {
  for (let at = 0; at < bytes.length; at += LONGEST) {
    send(bytes.subarray(at, at + LONGEST));
  }
}

/** The text for the last message of the daemon: the end of a command, or an ended machine. */
function endOf({ exit_code: code, message }) {
  const end = code === null ? "Ended" : `Ended with exit code ${code}`;
  return message ? `${end}: ${message}` : end;
}

/** The words of a command; quotes keep a word together. */
export function split(text) {
  const words = text.match(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g) ?? [];
  return words.map((word) => word.replace(/"([^"]*)"|'([^']*)'/g, (_, a, b) => a ?? b));
}
