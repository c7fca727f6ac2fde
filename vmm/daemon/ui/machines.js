// The list of machines.

import { machineActions, nameOf } from "./actions.js";
import { list } from "./api.js";
import { element } from "./dom.js";
import { bytes, command, count, shortTime } from "./format.js";
import { programNames } from "./programs.js";
import { Table } from "./table.js";

const STATES = [
  "created",
  "queued",
  "starting",
  "running",
  "paused",
  "restarting",
  "suspended",
  "exited",
  "failed",
];

/** Shows the list. */
export function show(main, _words, perform) {
  const names = programNames();
  const options = STATES.map((state) => element("option", {}, state));
  const state = element(
    "select",
    { change: () => perform(refresh) },
    element("option", { value: "" }, "all"),
    ...options,
  );
  const table = new Table({
    caption: "Machines of the tenant",
    empty: "There are no such machines. `hartline create --start PROGRAM` makes one.",
    key: (machine) => machine.id,
    columns: [
      { title: "Machine", kind: "name", text: nameOf, href: (machine) => `#/machines/${machine.id}` },
      { title: "State", kind: "short", text: stateOf, state: (machine) => machine.state },
      { title: "Program", kind: "name", text: ({ spec }) => names.of(spec.program) },
      { title: "Command", text: ({ spec }) => command(spec) },
      { title: "vCPUs", kind: "number", text: ({ spec }) => count(spec.cpus) },
      { title: "Memory", kind: "number", text: ({ spec }) => bytes(spec.memory) },
      { title: "Address", text: (machine) => machine.address ?? "" },
      { title: "Started", kind: "short", text: (machine) => shortTime(machine.started_ms) },
    ],
    actions: (machine) => machineActions(machine, perform, refresh),
  });
  const more = element("p", { class: "note", hidden: true }, "There are more than these.");
  const tools = element("div", { class: "tools" }, element("label", {}, "State ", state));
  main.append(element("h1", { tabindex: "-1" }, "Machines"), tools, table.container, more);

  async function refresh() {
    const filter = state.value === "" ? "" : `&state=${state.value}`;
    const [{ entries, hasMore }] = await Promise.all([
      list(`v1/machines?limit=100${filter}`),
      names.refresh(),
    ]);
    table.update(entries);
    more.hidden = !hasMore;
  }
  return { refresh };
}

/** The state of a machine or run, with its exit code if it has one. */
export function stateOf({ state, exit_code: code }) {
  return state === "exited" && code !== null ? `${state} (${code})` : state;
}
