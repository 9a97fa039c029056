// SPDX-License-Identifier: Apache-2.0
// Elements and words. Names of models are text alone: nothing here ever parses markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) element.append(child);
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Control characters, what reverses or hides text, and lone surrogates show as escapes.
const HIDDEN = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u2069\\ufeff]|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]", "g");
const escaped = (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0");
const visible = (text) => String(text).replace(HIDDEN, escaped);

// The beginning and the end of a long text.
function cut(text, most) {
  const signs = Array.from(visible(text));
  if (signs.length <= most) return signs.join("");
  const tail = Math.floor((most - 1) * 0.45);
  return signs.slice(0, most - 1 - tail).join("") + "\u2026" + signs.slice(signs.length - tail).join("");
}
// The same, by the pixels that it takes.
const ruler = document.createElement("canvas").getContext("2d");
function fitting(text, width, font) {
  ruler.font = font;
  let most = Math.min(60, Array.from(visible(text)).length);
  while (most > 1 && ruler.measureText(cut(text, most)).width > width) most--;
  return cut(text, most);
}
function named(text, most = 90) {
  const short = cut(text, most) || "(no name)";
  return h("bdi", short.includes("\u2026") ? { title: cut(text, 600) } : {}, breakable(short));
}
// Long words may break behind what joins their parts, before they break anywhere.
function breakable(text) {
  const parts = text.split(/(\S{10,})/).flatMap((word, at) => (at % 2 ? word.split(/(?<=[/_.:,;()=\u2026-])(?=[^/_.:,;()=-])/) : [word]));
  return parts.flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}
const whole = (text) => h("bdi", { class: "long mono", tabindex: String(text).length > 300 ? "0" : null }, visible(text));

const thousands = (number) => Math.round(number).toLocaleString("en-US");
const plural = (noun) => (/(s|x|ch|sh)$/.test(noun) ? "es" : "s");
const counted = (number, noun) => `${thousands(number)} ${noun}${number === 1 ? "" : plural(noun)}`;
const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
function duration(seconds) {
  for (const [scale, unit] of [[1, "s"], [1e-3, "ms"]]) if (seconds >= scale) return `${digits(seconds / scale)}\u00a0${unit}`;
  return `${digits(seconds * 1e6)}\u00a0us`;
}
function bytes(count) {
  let size = count;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1000 || unit === "GiB") return unit === "B" ? `${thousands(size)}\u00a0B` : `${digits(size)}\u00a0${unit}`;
    size /= 1024;
  }
}
function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.05) return "<\u00a00.1\u00a0%";
  return `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)}\u00a0%`;
}

const PLACES = { npu: "on the NPU", cpu: "on the host", folded: "computed when the model was compiled" };
const key = (tone) => h("span", { class: "key", css: { background: `var(--${tone})` }, "aria-hidden": "true" });
const legend = (items) => h("ul", { class: "legend" }, items.map(([tone, text]) => h("li", {}, key(tone), h("span", {}, text))));

// A stacked bar; ``shares`` are [tone, amount, words].
function bar(shares, kind = "") {
  const shown = shares.filter(([, amount]) => amount > 0);
  const sum = shown.reduce((total, [, amount]) => total + amount, 0);
  const words = shown.map(([, amount, text]) => `${text} ${percent(amount / sum)}`).join(", ");
  return h("div", { class: `bar ${kind}`, role: "img", "aria-label": words || "nothing", title: words },
    shown.map(([tone, amount]) => h("i", { css: { flex: `${amount} 0 0`, background: `var(--${tone})` } })));
}
