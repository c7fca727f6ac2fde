// The frame of the page: signing in, the parts of the page by the address, and refreshing.

import { Problem, read } from "./api.js";
import { element, setText } from "./dom.js";
import * as machine from "./machine.js";
import * as machines from "./machines.js";
import * as overview from "./overview.js";
import * as programs from "./programs.js";
import * as run from "./run.js";
import * as runs from "./runs.js";
import { session } from "./session.js";
import * as tenants from "./tenants.js";

/** Milliseconds between two refreshes of what is shown. */
const PERIOD = 2000;

const PAGES = [
  { name: "overview", label: "Overview", all: overview, one: overview },
  { name: "machines", label: "Machines", all: machines, one: machine },
  { name: "runs", label: "Runs", all: runs, one: run },
  { name: "programs", label: "Programs", all: programs, one: programs },
  { name: "tenants", label: "Tenants", all: tenants, one: tenants },
];

const by = (id) => document.getElementById(id);
const main = by("main");

/** What is shown now: a function that refreshes it, and one that ends it. */
let shown = null;
let timer = 0;

/** Runs an action of the user and shows its error. */
async function perform(action) {
  try {
    await action();
    showError(null);
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  if (error instanceof Problem && error.status === 401) {
    signOut("The key is not valid.");
  } else {
    showError(error.message);
  }
  if (!(error instanceof Problem)) {
    // A defect of the page: the console shows where.
    console.error(error);
  }
}

function showError(text) {
  setText(by("error"), text ?? "");
  by("error").hidden = text === null;
}

/** Shows the part of the page that the address names. */
function navigate() {
  shown?.close?.();
  shown = null;
  clearTimeout(timer);
  main.replaceChildren();
  by("sign-in").hidden = session.key !== null;
  by("header").hidden = session.key === null;
  if (session.key === null) {
    by("key").focus();
    return;
  }
  showError(null);
  const [name, ...words] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const page = PAGES.find((page) => page.name === name) ?? PAGES[0];
  for (const link of by("navigation").children) {
    const isCurrent = link.getAttribute("href") === `#/${page.name}`;
    link.toggleAttribute("aria-current", isCurrent);
  }
  document.title = `${page.label} – Hartline`;
  const part = words.length > 0 ? page.one : page.all;
  shown = part.show(main, words, perform);
  main.querySelector("h1")?.focus();
  refresh();
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Refreshes what is shown, now and after a time, while the page is visible. */
async function refresh() {
  clearTimeout(timer);
  const present = shown;
  if (present === null || document.hidden) {
    return;
  }
  let failure = null;
  try {
    await present.refresh();
  } catch (error) {
    failure = error;
  }
  if (present !== shown) {
    // The user has gone on.
    return;
  }
  if (failure !== null) {
    present.hasFailed = true;
    fail(failure);
  } else if (present.hasFailed) {
    present.hasFailed = false;
    showError(null);
  }
  if (present === shown) {
    timer = setTimeout(refresh, PERIOD);
  }
}

/** Finds out who the key belongs to, and shows the page. */
async function begin() {
  const { tenant, scope } = await read("v1/identity");
  session.tenant = tenant;
  session.scope = scope;
  setText(by("identity"), `${tenant} (${scope})`);
  const { version } = await read("version");
  setText(by("version"), `hartlined ${version}`);
  by("tenant-label").hidden = !session.isAdmin;
  if (session.isAdmin) {
    const all = await read("v1/tenants");
    const options = all.map(({ name }) => element("option", { selected: name === tenant }, name));
    by("tenant").replaceChildren(...options);
  }
  const links = PAGES.map(({ name, label }) => element("a", { href: `#/${name}` }, label));
  by("navigation").replaceChildren(...links);
  navigate();
}

function signOut(reason) {
  session.end();
  navigate();
  showError(reason);
}

by("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  session.keep(by("key").value.trim());
  by("key").value = "";
  perform(begin);
});
by("sign-out").addEventListener("click", () => signOut(null));
by("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
by("tenant").addEventListener("change", () => {
  const chosen = by("tenant").value;
  session.actsFor = chosen === session.tenant ? null : chosen;
  // An object of the other tenant is not there: its list is shown.
  const list = location.hash.split("/").slice(0, 2).join("/");
  if (location.hash === list) {
    navigate();
  } else {
    location.hash = list;
  }
});
addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", refresh);

if (session.key === null) {
  navigate();
} else {
  perform(begin);
}
