// SPDX-License-Identifier: Apache-2.0
// The graph: boxes that can be opened, closed, found and walked through by keys.

function graphView(one, choose) {
  const members = withScopes(one.nodes);
  const state = { open: firstOpen(one.nodes), folded: one.nodes.length <= 150, operators: false, tone: one.profile ? "time" : "place",
    zoom: 1, now: null, chosen: null };
  const canvas = h("div", { id: "canvas", role: "group", "aria-label": "Graph: arrow keys walk along it, Enter opens a scope", onkeydown: walk });
  const status = h("span", { class: "count", role: "status" });
  const key = h("div");
  let drawing = null;

  function draw(keep) {
    const built = boxesOf(one.nodes, state);
    const placed = layered(built.boxes, built.edges);
    const svg = s("svg", { role: "presentation", viewBox: `0 0 ${placed.width} ${placed.height}` });
    svg.append(s("g", {}, placed.paths.map((path) => s("path", { class: path.far ? "edge far" : "edge", d: path.d }))));
    const elements = built.boxes.map((box, at) => boxElement(box, placed.items[at]));
    svg.append(s("g", {}, elements));
    drawing = { ...built, placed, svg, elements, paths: [...svg.firstChild.children] };
    const [left, top] = [canvas.scrollLeft, canvas.scrollTop];
    canvas.replaceChildren(svg);
    zoom(keep ? state.zoom : Math.max(0.6, Math.min(1, (canvas.clientWidth - 4) / placed.width)));
    status.textContent = `${counted(built.boxes.length, "box")} for ${counted(one.nodes.length, "node")}`;
    key.replaceChildren(keyOf());
    mark();
    if (keep) canvas.scrollTo(left, top);
    else if (built.boxes.length) canvas.scrollLeft = placed.items[0].x * state.zoom - canvas.clientWidth / 2;
  }

  function boxElement(box, item) {
    const [x, y] = [item.x - BOX.width / 2, item.y - BOX.height / 2];
    const heat = Math.sqrt(Math.min(1, box.share * (box.kind === "scope" ? 1.6 : 4)));
    const tone = state.tone === "time" ? `by-time ${heat > 0.55 ? "dark" : ""}` : "by-place";
    const aside = box.cycles && state.tone === "time" ? percent(box.share) : box.place === "cpu" ? "host" : "";
    const what = box.kind === "scope" ? `${lastPart(box.label)} \u25b8` : box.what;
    const size = { width: BOX.width, height: BOX.height, rx: 6 };
    return s("g", { class: `box ${tone} ${box.kind} ${box.place}`, role: "button", tabindex: "-1", "data-box": box.id,
      css: { "--tone": `var(--${box.place})`, "--heat": heat.toFixed(3) }, onclick: () => pick(box), ondblclick: () => toggle(box),
      "aria-label": `${cut(box.label, 80)}: ${cut(box.what, 60)}, ${PLACES[box.place]}${box.cycles ? `, ${percent(box.share)} of the time` : ""}` },
      box.kind === "scope" ? s("rect", { ...size, class: "back", x: x + 4, y: y + 4 }) : null,
      s("rect", { ...size, class: "front", x, y }),
      s("text", { class: "what", x: x + 9, y: y + 16 }, fitting(what, BOX.width - (aside ? 62 : 18), "600 11.5px system-ui, sans-serif")),
      aside ? s("text", { class: "aside", x: x + BOX.width - 8, y: y + 16, "text-anchor": "end" }, aside) : null,
      s("text", { class: "who", x: x + 9, y: y + 31 }, box.kind === "scope" ? box.what : fitting(lastPart(box.label), BOX.width - 18, "11px system-ui, sans-serif")));
  }

  function keyOf() {
    const places = Object.entries(PLACES).filter(([place]) => one.nodes.some((node) => node.device === place));
    if (state.tone === "place") return legend(places.map(([place, text]) => [place, text]));
    return legend([["cold", "no time of its own"], ["hot", "the most time. A node has the time of its operators, a scope that of the operators that begin in it"]]);
  }

  // -- choosing --------------------------------------------------------------------------------------

  function pick(box, focus = true) {
    state.now = box.id;
    state.chosen = box.kind === "scope" ? null : box.nodes[0].index;
    mark(focus);
    choose(box.kind === "scope" ? { scope: box } : { node: box.nodes[0] });
  }
  function mark(focus) {
    const at = Math.max(0, drawing.boxes.findIndex((box) => box.id === state.now));
    drawing.elements.forEach((element, index) => {
      element.setAttribute("tabindex", index === at ? "0" : "-1");
      element.classList.toggle("chosen", drawing.boxes[index].id === state.now);
    });
    drawing.edges.forEach(([a, b], index) => drawing.paths[index].classList.toggle("lit", state.now !== null && (a === at || b === at)));
    if (focus && drawing.elements[at]) { drawing.elements[at].focus({ preventScroll: true }); centre(at); }
  }
  function centre(at) {
    const item = drawing.placed.items[at];
    canvas.scrollTo({ left: item.x * state.zoom - canvas.clientWidth / 2, top: item.y * state.zoom - canvas.clientHeight / 2 });
  }
  function toggle(box) {
    if (box.kind !== "scope") return;
    openScope(box.scope);
  }
  function openScope(scope) {
    state.open.add(scope);
    state.now = null;
    draw(true);
    const at = drawing.boxes.findIndex((box) => box.nodes.some((node) => node.scopes.includes(scope)));
    if (at >= 0) pick(drawing.boxes[at]);
  }
  function closeScope(scope) {
    for (const other of [...state.open]) if (other === scope || other.startsWith(`${scope}/`)) state.open.delete(other);
    draw(true);
    const box = drawing.boxes.find((each) => each.scope === scope);
    if (box) pick(box);
  }
  function reveal(node, focus = true) {
    if (node.device === "folded") state.folded = folded.firstChild.checked = true;
    for (const scope of node.scopes) state.open.add(scope);
    draw(true);
    const at = drawing.at.get(node.index);
    state.now = drawing.boxes[at].id;
    mark(focus);
    centre(at);
    choose({ node });
  }

  // What is chosen at first: the operator that takes longest, without a jump to where it is.
  function start(operator) {
    draw(false);
    if (operator) choose({ node: operator.members[0] });
  }

  // -- keys and tools --------------------------------------------------------------------------------

  function walk(event) {
    const at = drawing.boxes.findIndex((box) => box.id === state.now);
    const box = drawing.boxes[Math.max(0, at)];
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return box.kind === "scope" ? toggle(box) : pick(box); }
    if (event.key === "Backspace" && box.nodes[0].scopes.length) {
      const scope = box.nodes[0].scopes.filter((each) => state.open.has(each)).at(-1);
      return scope ? closeScope(scope) : undefined;
    }
    const next = neighbour(Math.max(0, at), event.key);
    if (next !== undefined) { event.preventDefault(); pick(drawing.boxes[next]); }
  }
  function neighbour(at, key) {
    const { items } = drawing.placed;
    const nearest = (those) => those.sort((a, b) => Math.abs(items[a].x - items[at].x) - Math.abs(items[b].x - items[at].x))[0];
    if (key === "ArrowDown") return nearest(drawing.edges.filter(([a]) => a === at).map(([, b]) => b));
    if (key === "ArrowUp") return nearest(drawing.edges.filter(([, b]) => b === at).map(([a]) => a));
    const beside = drawing.boxes.map((_, index) => index).filter((index) => index !== at && items[index].layer === items[at].layer);
    if (key === "ArrowRight") return nearest(beside.filter((index) => items[index].x > items[at].x));
    if (key === "ArrowLeft") return nearest(beside.filter((index) => items[index].x < items[at].x));
    return undefined;
  }
  function zoom(factor) {
    state.zoom = Math.min(2.5, Math.max(0.05, factor));
    drawing.svg.setAttribute("width", Math.round(drawing.placed.width * state.zoom));
    drawing.svg.setAttribute("height", Math.round(drawing.placed.height * state.zoom));
  }
  function find(words) {
    const wanted = words.toLowerCase();
    const from = state.chosen === null ? 0 : state.chosen + 1;
    const matches = (node) => `${node.node} ${node.op_type}`.toLowerCase().includes(wanted);
    const node = one.nodes.slice(from).find(matches) || one.nodes.find(matches);
    if (node && wanted) { reveal(node, false); state.chosen = node.index; }
    else status.textContent = "no such node";
  }

  const press = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
  const finder = h("input", { type: "search", placeholder: "Find a node, Enter", "aria-label": "Find a node in the graph",
    onkeydown: (event) => { if (event.key === "Enter") find(finder.value); } });
  const folded = check("folded nodes", state.folded, (on) => { state.folded = on; });
  const merged = check("one box per operator", state.operators, (on) => { state.operators = on; });
  function check(text, on, set) {
    return h("label", {}, h("input", { type: "checkbox", checked: on, onchange: (event) => { set(event.target.checked); draw(true); } }), text);
  }
  const tones = ["time", "place"].map((tone) => h("button", { type: "button", "aria-pressed": String(state.tone === tone), onclick: () => {
    state.tone = tone;
    tones.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === tone)));
    draw(true);
  } }, tone));
  const all = (open) => { state.open = open; draw(false); };
  const tools = h("div", { class: "tools" }, finder,
    one.profile ? h("span", { class: "switch", role: "group", "aria-label": "Colour by" }, tones) : null,
    one.nodes.some((node) => node.device === "folded") ? folded : null, one.operators.some((each) => each.members.length > 1) ? merged : null,
    members.size ? [press("Close all", "Close all scopes", () => all(new Set())), press("Open all", "Open all scopes", () => all(new Set(members.keys())))] : null,
    h("span", { class: "switch", role: "group", "aria-label": "Zoom" }, press("\u2212", "Zoom out", () => zoom(state.zoom / 1.3)),
      press("Fit", "Fit into the window", () => zoom((canvas.clientWidth - 4) / drawing.placed.width)), press("+", "Zoom in", () => zoom(state.zoom * 1.3))), status);
  return { tools, canvas, key, start, reveal, closeScope, openScope };
}
