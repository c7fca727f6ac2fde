// One run: its outcome and its output.

import { read } from "./api.js";
import { element, setText } from "./dom.js";
import { count, duration, shortId, time } from "./format.js";
import { LogView } from "./log.js";

/** Shows a run. */
export function show(main, [id], perform) {
  const path = `v1/runs/${encodeURIComponent(id)}`;
  const state = element("p", { role: "status" });
  const details = element("dl");
  const log = new LogView(path, perform);
  main.append(element("h1", { tabindex: "-1" }, `Run ${shortId(id)}`), state, details, log.node);
  log.restart();
  let isComplete = false;

  async function refresh() {
    if (isComplete) {
      return;
    }
    const run = await read(path);
    const { outcome } = run;
    setText(state, outcome === null ? run.state : `${run.state} (${outcome.exit_code})`);
    state.setAttribute("class", `state-${run.state}`);
    const figures = [
      ["Message", run.message],
      ["Created", time(run.created_ms)],
      ["Started", time(run.started_ms)],
      ["Ended", time(run.ended_ms)],
      ["Waited", duration(outcome?.queued_ms)],
      ["Start of the program after", duration(outcome?.boot_ms)],
      ["Program ran", duration(outcome?.run_ms)],
      ["Exits by KVM's count", count(outcome?.kvm_exits)],
    ];
    const shown = figures.filter(([, text]) => text !== "");
    const parts = shown.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
    details.replaceChildren(...parts);
    // A run that has ended does not change.
    isComplete = run.ended_ms !== null;
  }
  return { refresh, close: () => log.close() };
}
