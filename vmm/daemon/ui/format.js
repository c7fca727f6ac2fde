// Numbers, times and ids as text for people.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A number of bytes, for example `64 MiB`. */
export function bytes(count) {
  let power = 0;
  let number = count;
  while (number >= 1024 && power < BINARY.length - 1) {
    number /= 1024;
    power += 1;
  }
  return `${short(number)} ${BINARY[power]}`;
}

/** A number with at most three digits after the point, fewer if it is large. */
export function short(number) {
  const digits = number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return Number(number.toFixed(digits)).toLocaleString("en");
}

/** A whole number. */
export function count(number) {
  return number === null || number === undefined ? "" : number.toLocaleString("en");
}

/** A time, milliseconds since 1970, in this browser's time zone: `2026-01-31 12:00:00`. */
export function time(ms) {
  if (ms === null || ms === undefined) {
    return "";
  }
  const date = new Date(ms);
  return `${day(date)} ${clock(date)}:${two(date.getSeconds())}`;
}

/** A time for a narrow column: without the date if it is today, otherwise without the seconds. */
export function shortTime(ms) {
  const text = time(ms);
  return text.startsWith(day(new Date())) ? text.slice(11) : text.slice(0, 16);
}

/** The hour and the minute of a date. */
export function clock(date) {
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}

function day(date) {
  return [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
}

function two(number) {
  return String(number).padStart(2, "0");
}

/** A duration in milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined) {
    return "";
  }
  if (ms < 1000) {
    return `${short(ms)} ms`;
  }
  const seconds = ms / 1000;
  if (seconds < 120) {
    return `${short(seconds)} s`;
  }
  return seconds < 7200 ? `${short(seconds / 60)} min` : `${short(seconds / 3600)} h`;
}

/** The first digits of an id, which the API accepts too. */
export function shortId(id) {
  return id.slice(0, 12);
}

/** The command of a machine or run: the program's path and its arguments. */
export function command(spec) {
  return [spec.path, ...spec.args].filter((word) => word !== null).join(" ");
}
