// Line charts of the last minutes or the last hour, as drawings with axes, units and a legend.

import { drawing, element, setText } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 480;
const HEIGHT = 170;
/** The plot's distances from the edges of the drawing. */
const EDGE = { left: 62, right: 14, top: 8, bottom: 20 };
const MINUTE = 60_000;

/**
 * A chart: its title, the text of a value, the names of its lines, and whether its values are bytes, whose
 * axis has powers of two.
 */
export class Chart {
  constructor({ title, format, lines, isBinary = false }) {
    this.title = title;
    this.format = format;
    this.niceStep = isBinary ? binaryStep : decimalStep;
    this.lines = lines;
    this.axes = drawing("g");
    this.plots = lines.map((_, index) => drawing("path", { class: `plot series-${index}` }));
    this.latest = lines.map(() => element("span"));
    this.drawing = drawing(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
      this.axes,
      ...this.plots,
    );
    const legend = lines.map((line, index) =>
      element("li", {}, sample(index), `${line}: `, this.latest[index]),
    );
    this.node = element(
      "figure",
      {},
      element("figcaption", {}, title),
      this.drawing,
      element("ul", { class: "legend" }, ...legend),
    );
    this.update([], Date.now(), MINUTE);
  }

  /**
   * Shows the points of a span of time until now, in milliseconds: each has a `time`, and `values` for the
   * lines, null where there is none.
   */
  update(points, now, span) {
    const start = now - span;
    const shown = points.filter((point) => point.time >= start);
    const values = shown.flatMap((point) => point.values).filter((value) => value !== null);
    const step = this.niceStep(Math.max(0, ...values) / 4);
    const top = step * 4;
    const x = (time) => EDGE.left + ((time - start) / span) * (WIDTH - EDGE.left - EDGE.right);
    const y = (value) => HEIGHT - EDGE.bottom - (value / top) * (HEIGHT - EDGE.top - EDGE.bottom);
    this.axes.replaceChildren(...this.levels(step, y), ...times(start, now, x));
    this.lines.forEach((line, index) => {
      this.plots[index].setAttribute("d", path(shown, index, x, y));
      const last = shown.at(-1)?.values[index] ?? null;
      setText(this.latest[index], last === null ? "–" : this.format(last));
    });
    const texts = this.lines.map((line, index) => `${line} ${this.latest[index].textContent}`);
    this.drawing.setAttribute("aria-label", `${this.title}: now ${texts.join(", ")}`);
  }

  /** Horizontal lines with their values. */
  levels(step, y) {
    return [0, 1, 2, 3, 4].flatMap((level) => {
      const at = y(level * step);
      const attributes = { x: EDGE.left - 6, y: at + 4, class: "tick tick-y" };
      return [
        drawing("line", { x1: EDGE.left, x2: WIDTH - EDGE.right, y1: at, y2: at, class: "axis" }),
        drawing("text", attributes, this.format(level * step)),
      ];
    });
  }
}

/** The clock below the plot: at most seven times. */
function times(start, now, x) {
  const period = [1, 2, 5, 10].map((minutes) => minutes * MINUTE).find((p) => (now - start) / p < 7);
  const marks = [];
  for (let time = Math.ceil(start / period) * period; time <= now; time += period) {
    const attributes = { x: x(time), y: HEIGHT - 5, class: "tick tick-x" };
    marks.push(drawing("text", attributes, clock(new Date(time))));
  }
  return marks;
}

/** A piece of a line, for the legend. */
function sample(index) {
  const line = drawing("path", { d: "M0 4H24", class: `plot series-${index}` });
  return drawing("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" }, line);
}

/** The line through the points that have a value. A missing value is a gap. */
function path(points, index, x, y) {
  let text = "";
  let isDrawing = false;
  for (const point of points) {
    const value = point.values[index];
    if (value !== null) {
      text += `${isDrawing ? "L" : "M"}${x(point.time).toFixed(1)} ${y(value).toFixed(1)}`;
    }
    isDrawing = value !== null;
  }
  return text;
}

/** The next number of the form 1, 2 or 5 times a power of ten that is not less; 1 for 0. */
function decimalStep(least) {
  if (!(least > 0)) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

/** The next power of two that is not less; a MiB for less than that. */
function binaryStep(least) {
  return 2 ** Math.max(20, Math.ceil(Math.log2(Math.max(1, least))));
}
