// The list of the runs that the daemon keeps.

import { deletion } from "./actions.js";
import { list } from "./api.js";
import { element } from "./dom.js";
import { command, shortId, shortTime } from "./format.js";
import { stateOf } from "./machines.js";
import { programNames } from "./programs.js";
import { Table } from "./table.js";

/** Shows the list. */
export function show(main, _words, perform) {
  const names = programNames();
  const table = new Table({
    caption: "Asynchronous runs of the tenant: the daemon keeps no others",
    empty: "There are no runs that are kept.",
    key: (run) => run.id,
    columns: [
      { title: "Run", kind: "short", text: (run) => shortId(run.id), href: (run) => `#/runs/${run.id}` },
      { title: "State", kind: "short", text: stateOf, state: (run) => run.state },
      { title: "Program", kind: "name", text: ({ spec }) => names.of(spec.program) },
      { title: "Command", text: ({ spec }) => command(spec) },
      { title: "Message", text: (run) => run.message },
      { title: "Created", kind: "short", text: (run) => shortTime(run.created_ms) },
      { title: "Ended", kind: "short", text: (run) => shortTime(run.ended_ms) },
    ],
    actions: (run) => {
      const question = `Delete the run ${shortId(run.id)}? It is ended first if it has not ended.`;
      return deletion(`v1/runs/${run.id}`, question, perform, refresh);
    },
  });
  const more = element("p", { class: "note", hidden: true }, "There are more than these.");
  main.append(element("h1", { tabindex: "-1" }, "Runs"), table.container, more);

  async function refresh() {
    const [{ entries, hasMore }] = await Promise.all([list("v1/runs?limit=100"), names.refresh()]);
    table.update(entries);
    more.hidden = !hasMore;
  }
  return { refresh };
}
