// Tables that are refreshed in place: the keyboard's focus and a selection stay where they are.

import { button, element, setText } from "./dom.js";

/**
 * A table of entries.
 *
 * A column has a `title`, and functions of an entry: `text`, and optionally `href` and `state`, a word
 * that gives the cell its colour. `kind` is a class of its cells. `actions` returns the buttons of an
 * entry, each with `label`, `act` and optionally `isDangerous`.
 */
export class Table {
  constructor({ caption, empty, columns, key, actions = null }) {
    this.columns = columns;
    this.key = key;
    this.actions = actions;
    this.rows = new Map();
    this.body = element("tbody");
    const titles = columns.map((column) =>
      element("th", { scope: "col", class: column.kind }, column.title),
    );
    if (actions !== null) {
      titles.push(element("th", { scope: "col" }, "Actions"));
    }
    this.empty = element("p", { class: "note" }, empty);
    this.node = element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...titles)),
      this.body,
    );
    this.container = element("div", {}, this.node, this.empty);
    this.update([]);
  }

  /** Shows these entries, in this order. */
  update(entries) {
    const rows = new Map();
    for (const entry of entries) {
      const key = this.key(entry);
      const row = this.rows.get(key) ?? this.makeRow(key);
      this.fill(row, entry);
      rows.set(key, row);
    }
    for (const [key, row] of this.rows) {
      if (!rows.has(key)) {
        row.node.remove();
      }
    }
    let place = this.body.firstChild;
    for (const row of rows.values()) {
      if (row.node === place) {
        place = place.nextSibling;
      } else {
        this.body.insertBefore(row.node, place);
      }
    }
    this.rows = rows;
    this.empty.hidden = entries.length > 0;
    this.node.hidden = entries.length === 0;
  }

  makeRow(key) {
    const cells = this.columns.map((column) => {
      const text = column.href ? element("a") : element("span");
      return { cell: element("td", { class: column.kind }, text), text };
    });
    const buttons = element("td", { class: "buttons" });
    const nodes = cells.map(({ cell }) => cell);
    const node = element("tr", { "data-key": key }, ...nodes);
    if (this.actions !== null) {
      node.append(buttons);
    }
    return { node, cells, buttons, labels: "", entry: null };
  }

  fill(row, entry) {
    row.entry = entry;
    this.columns.forEach((column, index) => {
      const { text } = row.cells[index];
      setText(text, column.text(entry));
      if (column.href) {
        text.setAttribute("href", column.href(entry));
      }
      if (column.state) {
        text.setAttribute("class", `state-${column.state(entry)}`);
      }
    });
    if (this.actions === null) {
      return;
    }
    const actions = this.actions(entry);
    const labels = actions.map(({ label }) => label).join("\n");
    if (labels !== row.labels) {
      row.labels = labels;
      const buttons = actions.map(({ label, act, isDangerous }) =>
        button(label, () => act(row.entry), {
          class: isDangerous ? "danger" : null,
          "aria-label": `${label} ${this.columns[0].text(entry)}`,
        }),
      );
      row.buttons.replaceChildren(...buttons);
    }
  }
}
