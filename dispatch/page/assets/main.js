// SPDX-License-Identifier: Apache-2.0
// The page: one executable at a time, in the colours of the system or those that were chosen.

function themes() {
  const root = document.documentElement;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const button = h("button", { type: "button", id: "theme", onclick: () => { root.dataset.theme = dark() ? "light" : "dark"; label(); } });
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
  return button;
}

function show(facts) {
  const one = read(facts);
  one.drawn = [];
  one.show = one.showOperator = () => undefined;
  const main = document.getElementById("main");
  const made = Object.values(SECTIONS).map((make) => make(one)).filter(Boolean);
  main.replaceChildren(...made);
  document.getElementById("verdict").textContent = visible(facts.verdict);
  document.getElementById("nav").replaceChildren(...made.map((each) => h("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)));
  for (const draw of one.drawn) draw();
}

document.getElementById("title").append(named(FACTS.title, 160));
const shapes = h("select", { "aria-label": "Shapes of inputs", onchange: () => show(FACTS.executables[shapes.selectedIndex]) },
  FACTS.executables.map((each, at) => h("option", { value: at }, cut(each.inspected.key || "no inputs", 60))));
document.getElementById("switches").append(...(FACTS.executables.length > 1 ? [shapes] : []), themes());
if (FACTS.executables.length) show(FACTS.executables.at(-1));
shapes.selectedIndex = FACTS.executables.length - 1;
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
