// Questions before actions that cannot be undone.

import { button, element } from "./dom.js";

/** Asks whether to do something. Result: whether the user agrees. */
export function ask(question, label) {
  return new Promise((resolve) => {
    const end = (agreed) => {
      dialog.close();
      dialog.remove();
      resolve(agreed);
    };
    const cancel = button("Cancel", () => end(false), { autofocus: true });
    const dialog = element(
      "dialog",
      { "aria-label": label, cancel: () => end(false) },
      element("p", {}, question),
      element("div", { class: "tools" }, button(label, () => end(true), { class: "danger" }), cancel),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
