// Requests to the REST API of the server that the page comes from.

import { session } from "./session.js";

/** The root of the API: the page is in the folder `ui` of it. */
const ROOT = new URL("../", document.baseURI);
/** Most entries of a list that are read at once. */
const MOST = 1000;

/** A refused request, or one without an answer. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    /** The HTTP status; 0 if there was no answer. */
    this.status = status;
    /** The stable code of the daemon. */
    this.code = code;
  }
}

/** Sends a request. Paths have no slash at their begin. Throws a {@link Problem}. */
export async function request(method, path, signal = undefined) {
  const headers = { Authorization: `Bearer ${session.key}` };
  if (session.actsFor !== null) {
    headers["Hartline-Tenant"] = session.actsFor;
  }
  let answer;
  try {
    answer = await fetch(new URL(path, ROOT), { method, headers, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new Problem(0, "unreachable", "The daemon does not answer.");
  }
  if (answer.ok) {
    return answer;
  }
  throw await problemOf(answer);
}

async function problemOf(answer) {
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // A proxy answers, not the daemon.
  }
  const field = problem.field ? `${problem.field}: ` : "";
  const detail = problem.detail ?? `The answer has the status ${answer.status}.`;
  return new Problem(answer.status, problem.code ?? "", field + detail);
}

/** Reads an object. */
export async function read(path) {
  return (await request("GET", path)).json();
}

/** Reads a list, page by page. Result: its entries, and whether there are more. */
export async function list(path, most = MOST) {
  const entries = [];
  let next = path;
  while (next !== null && entries.length < most) {
    const answer = await request("GET", next);
    entries.push(...(await answer.json()));
    next = nextPage(answer);
  }
  return { entries, hasMore: next !== null };
}

/** The path of the next page, from the header `Link` (RFC 8288); null if there is none. */
function nextPage(answer) {
  const link = /^<\/(v1\/[^>]*)>; rel="next"$/.exec(answer.headers.get("Link") ?? "");
  return link === null ? null : link[1];
}

/** Opens a WebSocket. A page cannot set its headers: the key is in the name of a subprotocol. */
export function open(path) {
  const url = new URL(path, ROOT);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const protocols = ["v1.hartline", `base64url.bearer.authorization.hartline.${base64(session.key)}`];
  if (session.actsFor !== null) {
    protocols.push(`tenant.hartline.${session.actsFor}`);
  }
  const socket = new WebSocket(url, protocols);
  socket.binaryType = "arraybuffer";
  return socket;
}

/** Base64url without padding (RFC 4648, section 5). */
function base64(text) {
  const binary = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
