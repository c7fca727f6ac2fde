// The list of programs, and their names for other lists.

import { deletion } from "./actions.js";
import { list } from "./api.js";
import { element } from "./dom.js";
import { bytes, shortId, shortTime } from "./format.js";
import { Table } from "./table.js";

const PATH = "v1/programs?limit=100";
/** Milliseconds for which names are not read again. */
const FRESH = 10_000;

/** Shows the list. */
export function show(main, _words, perform) {
  const table = new Table({
    caption: "Programs of the tenant",
    empty: "There are no programs. `hartline push FILE` uploads one.",
    key: (program) => program.id,
    columns: [
      { title: "Program", kind: "name", text: (program) => program.name },
      { title: "Id", kind: "short", text: (program) => shortId(program.id) },
      { title: "Kind", text: ({ kind }) => (kind === "elf" ? "one program" : "root file system") },
      { title: "State", kind: "short", text: ({ state }) => state, state: ({ state }) => state },
      { title: "Size", kind: "number", text: (program) => bytes(program.size) },
      { title: "Unpacked", kind: "number", text: (program) => bytes(program.tree_size) },
      { title: "Message", text: ({ problem, message }) => [problem, message].filter(Boolean).join(": ") },
      { title: "Uploaded", kind: "short", text: (program) => shortTime(program.created_ms) },
    ],
    actions: (program) => {
      const question = `Delete the program ${program.name}?`;
      return deletion(`v1/programs/${program.id}`, question, perform, refresh);
    },
  });
  const more = element("p", { class: "note", hidden: true }, "There are more than these.");
  main.append(element("h1", { tabindex: "-1" }, "Programs"), table.container, more);

  async function refresh() {
    const { entries, hasMore } = await list(PATH);
    table.update(entries);
    more.hidden = !hasMore;
  }
  return { refresh };
}

/** The names of programs by their ids, which machines and runs have. */
export function programNames() {
  let names = new Map();
  let readAt = -FRESH;
  return {
    /** Reads the names, now and then. */
    async refresh() {
      if (performance.now() - readAt >= FRESH) {
        readAt = performance.now();
        const { entries } = await list(PATH);
        names = new Map(entries.map((program) => [program.id, program.name]));
      }
    },
    /** The name of a program, or the begin of its id. */
    of: (id) => names.get(id) ?? shortId(id),
  };
}
