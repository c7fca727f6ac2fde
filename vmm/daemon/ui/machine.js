// One machine: its details and statistics, its log, and its terminal.

import { machineActions, nameOf } from "./actions.js";
import { read } from "./api.js";
import { button, element, setText } from "./dom.js";
import { ExitsView } from "./exits.js";
import { bytes, command, count, time } from "./format.js";
import { LogView } from "./log.js";
import { stateOf } from "./machines.js";
import { TerminalView } from "./terminal.js";

const PARTS = [
  ["details", "Details"],
  ["log", "Log"],
  ["terminal", "Terminal"],
];

/** Shows a machine: `words` are its id and the part of the page. */
export function show(main, [id, part = "details"], perform) {
  const path = `v1/machines/${encodeURIComponent(id)}`;
  const title = element("h1", { tabindex: "-1" }, id.slice(0, 12));
  const state = element("span", { role: "status" });
  const buttons = element("span", { class: "buttons" });
  const body = element("div");
  const links = PARTS.map(([name, label]) => {
    const current = name === part ? "page" : null;
    return element("a", { href: `#/machines/${id}/${name}`, "aria-current": current }, label);
  });
  main.append(
    title,
    element("div", { class: "tools" }, state, buttons),
    element("nav", { "aria-label": "Parts of the machine's page" }, ...links),
    body,
  );
  let view = null;
  let labels = null;

  async function refresh() {
    const machine = await read(path);
    setText(title, nameOf(machine));
    setText(state, stateOf(machine));
    state.setAttribute("class", `state-${machine.state}`);
    const actions = machineActions(machine, perform, async (isDeleted) => {
      if (isDeleted) {
        location.hash = "#/machines";
      } else {
        await refresh();
      }
    });
    const now = actions.map(({ label }) => label).join();
    if (now !== labels) {
      labels = now;
      const made = actions.map(({ label, act, isDangerous }) =>
        button(label, () => act(machine), { class: isDangerous ? "danger" : null }),
      );
      buttons.replaceChildren(...made);
    }
    if (view === null) {
      view = makeView(part, machine, perform);
      body.append(view.node);
    }
    await view.refresh(machine);
  }
  return { refresh, close: () => view?.close() };
}

function makeView(part, machine, perform) {
  if (part === "log") {
    const log = new LogView(`v1/machines/${machine.id}`, perform);
    log.restart();
    return { node: log.node, refresh: async () => {}, close: () => log.close() };
  }
  if (part === "terminal") {
    const terminal = new TerminalView(machine);
    return { node: terminal.node, refresh: async () => {}, close: () => terminal.dispose() };
  }
  const details = element("dl");
  const exits = new ExitsView(machine.id);
  return {
    node: element("div", {}, details, exits.node),
    refresh: async (now) => {
      showDetails(details, now);
      await exits.refresh();
    },
    close: () => {},
  };
}

function showDetails(list, machine) {
  const { spec } = machine;
  const pairs = (map) => Object.entries(map).map(([name, value]) => `${name}=${value}`);
  const volumes = (spec.volumes ?? []).map(({ volume, path }) => `${volume}:${path}`);
  const ports = (spec.ports ?? []).map(({ host, guest }) => `${host}:${guest}`);
  const details = [
    ["Id", machine.id],
    ["Message", machine.message],
    ["Program", spec.program],
    ["Command", command(spec)],
    ["Environment", pairs(spec.env).join(" ")],
    ["Labels", pairs(spec.labels).join(" ")],
    ["vCPUs", count(spec.cpus)],
    ["Memory", bytes(spec.memory)],
    ["Address", [machine.address, machine.address6].filter(Boolean).join(" ")],
    ["Volumes", volumes.join(" ")],
    ["Ports", ports.join(" ")],
    ["Restarts", machine.restarts > 0 ? count(machine.restarts) : ""],
    ["Created", time(machine.created_ms)],
    ["Started", time(machine.started_ms)],
    ["Ended", time(machine.ended_ms)],
  ];
  const shown = details.filter(([, text]) => text !== "");
  const texts = shown.flat();
  const nodes = [...list.children];
  if (nodes.length === texts.length) {
    nodes.forEach((node, index) => setText(node, texts[index]));
  } else {
    const names = ["dt", "dd"];
    list.replaceChildren(...texts.map((text, index) => element(names[index % 2], {}, text)));
  }
}
