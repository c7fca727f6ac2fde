// The output of a machine or a run, as it is written.

import { request } from "./api.js";
import { button, element, setText } from "./dom.js";

/** Lines that are read first. */
const TAIL = 1000;
/** Most characters that are shown; the oldest are removed. */
const MOST = 1 << 20;

/** A view of the log of the object at a path of the API. */
export class LogView {
  constructor(path, perform) {
    this.path = path;
    this.perform = perform;
    this.pieces = [];
    this.length = 0;
    this.abort = null;
    this.output = element("pre", { class: "log", role: "log", tabindex: "0", "aria-label": "Output" });
    this.status = element("span", { role: "status", class: "note" });
    const restart = () => this.restart();
    this.stream = element(
      "select",
      { change: restart },
      element("option", { value: "stdout" }, "Standard output"),
      element("option", { value: "stderr" }, "Standard error"),
    );
    this.follow = element("input", { type: "checkbox", checked: true, change: restart });
    this.stamps = element("input", { type: "checkbox", change: restart });
    this.node = element(
      "section",
      { "aria-label": "Log" },
      element(
        "div",
        { class: "tools" },
        element("label", {}, "Stream ", this.stream),
        element("label", {}, this.follow, " Follow"),
        element("label", {}, this.stamps, " Times"),
        button("Read again", restart),
        this.status,
      ),
      this.output,
    );
  }

  /** Reads the log from its last lines on. */
  restart() {
    this.close();
    this.pieces = [];
    this.length = 0;
    this.output.replaceChildren();
    this.abort = new AbortController();
    this.perform(() => this.read(this.abort.signal));
  }

  /** Ends the request. */
  close() {
    this.abort?.abort();
  }

  async read(signal) {
    const query = new URLSearchParams({
      stream: this.stream.value,
      tail: TAIL,
      follow: this.follow.checked,
      timestamps: this.stamps.checked,
    });
    setText(this.status, this.follow.checked ? "Following" : "");
    const text = new TextDecoder();
    try {
      const answer = await request("GET", `${this.path}/logs?${query}`, signal);
      const reader = answer.body.getReader();
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        this.append(text.decode(next.value, { stream: true }));
      }
      this.append(text.decode());
      setText(this.status, "End of the log");
    } catch (error) {
      if (error.name === "AbortError") {
        return;
      }
      setText(this.status, "The connection was lost");
      throw error;
    }
  }

  append(text) {
    const { scrollTop, scrollHeight, clientHeight } = this.output;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - 8;
    const piece = document.createTextNode(text);
    this.output.append(piece);
    this.pieces.push(piece);
    this.length += text.length;
    while (this.length > MOST && this.pieces.length > 1) {
      const oldest = this.pieces.shift();
      this.length -= oldest.data.length;
      oldest.remove();
    }
    if (isAtEnd) {
      this.output.scrollTop = this.output.scrollHeight;
    }
  }
}
