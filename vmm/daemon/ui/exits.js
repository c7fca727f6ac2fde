// The resources of a machine now, and the exits of its vCPUs for each operation.

import { read } from "./api.js";
import { Chart } from "./chart.js";
import { element } from "./dom.js";
import { bytes, count, duration, short } from "./format.js";

const SPAN = 5 * 60_000;

/** A view of the statistics of a machine. */
export class ExitsView {
  constructor(id) {
    this.path = `v1/machines/${id}/stats`;
    this.before = null;
    this.points = [];
    this.list = element("dl");
    this.chart = new Chart({
      title: "Exits per operation",
      format: short,
      lines: ["now", "since the start"],
    });
    this.node = element(
      "section",
      { "aria-label": "Statistics" },
      element("h2", {}, "Statistics"),
      this.list,
      element("div", { class: "charts" }, this.chart.node),
      element(
        "p",
        { class: "note" },
        "Operations are packets and requests to volumes. Interrupts of the host are not counted.",
      ),
    );
  }

  /** Reads the statistics. */
  async refresh() {
    const stats = await read(this.path);
    const now = { time: Date.now(), ...sums(stats) };
    const recent = this.before === null ? null : ratio(now, this.before);
    this.before = now;
    this.points.push({ time: now.time, values: [recent, stats.exits_per_operation] });
    this.points = this.points.filter((point) => point.time >= now.time - SPAN);
    this.chart.update(this.points, now.time, SPAN);
    const figures = [
      ["CPU time", duration(stats.cpu_ms)],
      ["Memory of the VMM", stats.memory === null ? "" : bytes(stats.memory)],
      ["Start of the program after", duration(stats.boot_ms)],
      ["Program ran", duration(stats.run_ms)],
      ["Exits by KVM's count", count(stats.kvm_exits)],
      ["Exits by reason (KVM)", reasons(stats.kvm_reasons)],
      ["Exits to the VMM", reasons(stats.exits)],
      ["Packets received, sent", packets(stats.network)],
      ["Requests to volumes", count(stats.volume_requests)],
    ];
    const shown = figures.filter(([, text]) => text !== "");
    const parts = shown.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
    this.list.replaceChildren(...parts);
  }
}

/** The exits and operations of a machine until now. */
function sums(stats) {
  const network = stats.network ?? { received_packets: 0, sent_packets: 0 };
  return {
    exits: (stats.kvm_exits ?? 0) - (stats.kvm_reasons?.irq_exits ?? 0),
    operations: network.received_packets + network.sent_packets + (stats.volume_requests ?? 0),
  };
}

/** Exits for each operation between two readings; null if there was no operation. */
function ratio(now, before) {
  const operations = now.operations - before.operations;
  return operations > 0 ? Math.max(0, now.exits - before.exits) / operations : null;
}

function reasons(counts) {
  const entries = Object.entries(counts ?? {}).filter(([, number]) => number > 0);
  return entries.map(([name, number]) => `${name} ${count(number)}`).join(", ");
}

function packets(network) {
  return network === null ? "" : `${count(network.received_packets)}, ${count(network.sent_packets)}`;
}
