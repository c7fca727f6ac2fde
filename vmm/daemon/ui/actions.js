// What a user may do with a machine in a state.

import { request } from "./api.js";
import { ask } from "./dialog.js";
import { session } from "./session.js";

const RESTING = ["created", "exited", "failed"];
/** Its memory is on the disk. */
const SUSPENDED = "suspended";
const ACTIVE = ["queued", "starting", "running", "paused", "restarting"];

/** All actions: the states that allow one, and the question before it, if there is one. */
const ACTIONS = [
  { label: "Start", states: [...RESTING, SUSPENDED], path: "start" },
  { label: "Stop", states: ACTIVE, path: "stop" },
  { label: "Pause", states: ["running"], path: "pause" },
  { label: "Resume", states: ["paused"], path: "resume" },
  {
    label: "Kill",
    states: [...ACTIVE, SUSPENDED],
    path: "kill",
    question: (name) => `Kill ${name}? Its program ends at once and cannot save anything.`,
  },
  {
    label: "Delete",
    states: [...RESTING, SUSPENDED],
    path: null,
    question: (name) => `Delete ${name} with its output?`,
  },
];

/** The name of a machine for people: its name, or the begin of its id. */
export function nameOf(machine) {
  return machine.name ?? machine.id.slice(0, 12);
}

/**
 * The buttons for a machine. `perform` runs an action and shows its error; `after` is called when it is
 * done, with whether the machine is deleted.
 */
export function machineActions(machine, perform, after) {
  if (!session.mayWrite) {
    return [];
  }
  const allowed = ACTIONS.filter(({ states }) => states.includes(machine.state));
  return allowed.map(({ label, path, question }) => ({
    label,
    isDangerous: question !== undefined,
    act: (now) =>
      perform(async () => {
        if (question !== undefined && !(await ask(question(nameOf(now)), label))) {
          return;
        }
        const own = `v1/machines/${now.id}`;
        await (path === null ? request("DELETE", own) : request("POST", `${own}/${path}`));
        await after(path === null);
      }),
  }));
}

/** A button that deletes an object at a path of the API. */
export function deletion(path, question, perform, after) {
  if (!session.mayWrite) {
    return [];
  }
  const act = () =>
    perform(async () => {
      if (await ask(question, "Delete")) {
        await request("DELETE", path);
        await after();
      }
    });
  return [{ label: "Delete", isDangerous: true, act }];
}
