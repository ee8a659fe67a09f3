// Elements and texts that the page of a report and the console share.

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    // The pages' Content-Security-Policy forbids style attributes.
    else if (name === "style") element.style.cssText = value;
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((child) => child != null && child !== false));
  return element;
}
export const el = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
export const fold = (title, content, open = false) => el("details", {open}, el("summary", {}, title), content);

export function styled(element, styles) {
  Object.assign(element.style, styles);
  return element;
}

export const number = (value) => Number(value).toLocaleString("en-US");
export const count = (many, what) => `${number(many)} ${what}${many === 1 ? "" : what.endsWith("x") ? "es" : "s"}`;

// Return the two ends of a long name, because names often differ only at the end.
export function shortName(name) { return name.length > 32 ? `${name.slice(0, 16)}…${name.slice(-12)}` : name; }

// Escape characters that are invisible or look like others, as visible() in bodies.py does.
export function visible(text) {
  const hidden = text.normalize() === text ? /(?! )[\p{Cf}\p{Z}]/gu : /(?! )[\p{Cf}\p{Z}\p{Mn}]/gu;
  return text.replace(hidden, (one) => [...Array(one.length).keys()].map((at) => `\\u${one.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));
}
