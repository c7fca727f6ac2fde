// Tenants with their quotas and what they use: all of them for an administrator, otherwise the own one.

import { read } from "./api.js";
import { element } from "./dom.js";
import { bytes, count, duration, time } from "./format.js";
import { session } from "./session.js";
import { Table } from "./table.js";

/** Tenants whose use is shown at first. */
const FIRST = 50;
/** Requests at a time. */
const AT_ONCE = 8;

const RESOURCES = {
  memory: "Memory of machines and runs",
  cpus: "vCPUs of machines and runs",
  runs: "Machines and runs that run",
  connections: "Connections to the daemon",
  ports: "Published ports",
  port_connections: "Connections to published ports",
  storage: "Storage",
  inodes: "Inodes",
  translation: "CPU time of translations",
};

/** Shows the tenants, or the one whose name is the first of `words`. */
export function show(main, [name], perform) {
  if (name !== undefined || !session.isAdmin) {
    return showOne(main, name ?? session.tenant);
  }
  return showAll(main, perform);
}

function showAll(main, perform) {
  let most = FIRST;
  const of = (resource) => (tenant) => {
    const use = tenant.usage.find((entry) => entry.resource === resource);
    return use === undefined ? "" : amount(use.used, use.unit) + limit(use);
  };
  const table = new Table({
    caption: "All tenants: what they use, of their quotas",
    empty: "There are no tenants.",
    key: (tenant) => tenant.name,
    columns: [
      { title: "Tenant", text: ({ name }) => name, href: ({ name }) => `#/tenants/${name}` },
      { title: "Weight", kind: "number", text: ({ quota }) => count(quota.weight) },
      { title: "Running", kind: "number", text: of("runs") },
      { title: "vCPUs", kind: "number", text: of("cpus") },
      { title: "Memory", kind: "number", text: of("memory") },
      { title: "Storage", kind: "number", text: of("storage") },
      { title: "Inodes", kind: "number", text: of("inodes") },
    ],
  });
  const showMore = () => {
    most = Infinity;
    perform(refresh);
  };
  const more = element("button", { type: "button", click: showMore, hidden: true }, "Show all");
  main.append(element("h1", { tabindex: "-1" }, "Tenants"), table.container, more);

  async function refresh() {
    const tenants = await read("v1/tenants");
    const shown = tenants.slice(0, most);
    for (let at = 0; at < shown.length; at += AT_ONCE) {
      await Promise.all(
        shown.slice(at, at + AT_ONCE).map(async (tenant) => {
          tenant.usage = await usage(tenant.name);
        }),
      );
    }
    table.update(shown);
    more.hidden = shown.length === tenants.length;
  }
  return { refresh };
}

function showOne(main, name) {
  const quota = element("dl");
  const body = element("tbody");
  const titles = ["Resource", "Used", "Limit", ""].map((title) => element("th", { scope: "col" }, title));
  const head = element("thead", {}, element("tr", {}, ...titles));
  const caption = element("caption", {}, "Use of the tenant's quotas");
  main.append(
    element("h1", { tabindex: "-1" }, `Tenant ${name}`),
    quota,
    element("table", {}, caption, head, body),
  );

  async function refresh() {
    const [tenant, uses] = await Promise.all([read(path(name)), usage(name)]);
    quota.replaceChildren(
      element("dt", {}, "Weight"),
      element("dd", {}, count(tenant.quota.weight)),
      element("dt", {}, "Machines and runs that wait, at most"),
      element("dd", {}, count(tenant.quota.max_queued)),
      element("dt", {}, "Created"),
      element("dd", {}, time(tenant.created_ms)),
    );
    body.replaceChildren(...uses.map(row));
  }
  return { refresh };
}

function row(use) {
  const title = RESOURCES[use.resource] ?? use.resource;
  const isLimited = use.limit !== null && use.limit > 0;
  const meter = { min: 0, max: use.limit, value: Math.min(use.used, use.limit), "aria-label": title };
  return element(
    "tr",
    {},
    element("td", {}, title),
    element("td", { class: "number" }, amount(use.used, use.unit)),
    element("td", { class: "number" }, use.limit === null ? "none" : amount(use.limit, use.unit)),
    element("td", {}, isLimited ? element("meter", meter) : null),
  );
}

function path(name) {
  return `v1/tenants/${encodeURIComponent(name)}`;
}

function usage(name) {
  return read(`${path(name)}/usage`);
}

function limit(use) {
  return use.limit === null ? "" : ` / ${amount(use.limit, use.unit)}`;
}

function amount(number, unit) {
  return unit === "bytes" ? bytes(number) : unit === "milliseconds" ? duration(number) : count(number);
}
