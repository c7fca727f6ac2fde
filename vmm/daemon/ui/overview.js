// Graphs of the last hour, from the samples that the daemon keeps.

import { read } from "./api.js";
import { Chart } from "./chart.js";
import { element, setText } from "./dom.js";
import { bytes, short } from "./format.js";
import { session } from "./session.js";

/** Milliseconds between two samples of the daemon. */
const PERIOD = 10_000;
const HOUR = 3_600_000;
/** Shorter times, which are shown until the daemon has samples of a longer one. */
const SPANS = [HOUR / 12, HOUR / 4, HOUR / 2, HOUR];

/** Each chart: its title, its lines, and the values of a sample, which has a span in seconds. */
const CHARTS = [
  {
    title: "Machines and runs",
    lines: ["running"],
    format: short,
    values: (sample) => [sample.running],
  },
  {
    title: "Ends per minute",
    lines: ["all", "unsuccessful"],
    format: short,
    values: (sample, span) => [(sample.ended * 60) / span, (sample.unsuccessful * 60) / span],
  },
  {
    title: "CPUs",
    lines: ["used", "vCPUs of what runs"],
    format: short,
    values: (sample, span) => [sample.cpu_ms / 1000 / span, sample.vcpus],
  },
  {
    title: "Memory of machines and runs",
    lines: ["used"],
    format: bytes,
    isBinary: true,
    values: (sample) => [sample.memory],
  },
  {
    title: "Exits per operation",
    lines: ["of machines with a network or volumes"],
    format: short,
    values: (sample) => [sample.operations > 0 ? sample.exits / sample.operations : null],
  },
  {
    title: "Requests per second",
    lines: ["to the API"],
    format: short,
    values: (sample, span) => [sample.requests / span],
  },
];

/** Shows the graphs. */
export function show(main) {
  const charts = CHARTS.map((chart) => ({ chart: new Chart(chart), values: chart.values }));
  const note = element("p", { class: "note" });
  main.append(
    element("h1", { tabindex: "-1" }, "The last hour"),
    note,
    element("div", { class: "charts" }, ...charts.map(({ chart }) => chart.node)),
  );
  let samples = [];
  let readAt = -PERIOD;

  async function refresh() {
    if (performance.now() - readAt < PERIOD / 2) {
      return;
    }
    readAt = performance.now();
    const after = samples.at(-1)?.time_ms ?? 0;
    const tenant = session.actsFor === null ? "" : `&tenant=${session.actsFor}`;
    const added = await read(`v1/history?after_ms=${after}${tenant}`);
    // The daemon's clock is the one of the samples.
    const now = Math.max(Date.now(), added.at(-1)?.time_ms ?? 0);
    samples = [...samples, ...added].filter((sample) => sample.time_ms >= now - HOUR);
    const age = samples.length === 0 ? 0 : now - samples[0].time_ms;
    const span = SPANS.find((span) => span >= age) ?? HOUR;
    for (const { chart, values } of charts) {
      const points = samples.map((sample) => ({
        time: sample.time_ms,
        values: values(sample, sample.span_ms / 1000),
      }));
      chart.update(points, now, span);
    }
    const whose = session.isAdmin && session.actsFor === null ? "All tenants" : `Tenant ${whom()}`;
    setText(note, `${whose}, a sample for each ten seconds since the start of the daemon.`);
  }
  return { refresh };
}

function whom() {
  return session.actsFor ?? session.tenant;
}
