// Elements of the page. All text goes in as text nodes, so no name and no output can become markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an element. An attribute whose value is a function is a listener of that event; `true` is an
 * attribute without a value, and `false`, `null` and `undefined` are none.
 */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Makes an element of a drawing. */
export function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      made.addEventListener(name, value);
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Changes the text of an element, if it is another one: a selection in it stays. */
export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

/** Makes a button. */
export function button(label, act, attributes = {}) {
  return element("button", { type: "button", click: act, ...attributes }, label);
}
