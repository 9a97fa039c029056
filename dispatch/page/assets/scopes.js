// SPDX-License-Identifier: Apache-2.0
// Which boxes a graph has: nodes, operators, or name scopes that are closed. Scopes are the parts of names before
// each "/" and "."; a number belongs to what it counts, as in "layer.3".

const DEPTH = 12; // scopes within scopes that are distinguished
const AT_FIRST = 90; // boxes that a graph opens with, where its names have scopes ...
const FEW = 12; // ... and more where it would open with fewer than these

const partsOfName = (name) => visible(name).split(/[/]+|[.]+(?!\d+(?:[/.]|$))/).filter(Boolean);
const lastPart = (name) => partsOfName(name).at(-1) || visible(name);

function scopesOf(name) {
  const parts = partsOfName(name).slice(0, DEPTH + 1);
  return parts.slice(0, -1).map((_, at) => parts.slice(0, at + 1).join("/"));
}

function withScopes(nodes) {
  const members = new Map();
  for (const node of nodes) {
    node.scopes = scopesOf(node.node);
    for (const scope of node.scopes) members.set(scope, (members.get(scope) || 0) + 1);
  }
  for (const node of nodes) node.scopes = node.scopes.filter((scope) => members.get(scope) > 1);
  return members;
}

const closedScope = (node, open) => node.scopes.find((scope) => !open.has(scope));

// Opens the largest scopes first, as long as not too many boxes come of it.
function firstOpen(nodes) {
  const open = new Set();
  for (;;) {
    const boxes = new Map();
    for (const node of nodes) {
      const scope = closedScope(node, open);
      const box = scope || `node ${node.index}`;
      boxes.set(box, (boxes.get(box) || 0) + 1);
    }
    const closed = [...boxes].filter(([box]) => !box.startsWith("node ")).sort((a, b) => b[1] - a[1]);
    const most = boxes.size < FEW ? 4 * AT_FIRST : AT_FIRST;
    const next = boxes.size < most && closed.find(([scope]) => boxes.size - 1 + inside(nodes, scope, open) <= most);
    if (!next) return open;
    open.add(next[0]);
  }
}

// Boxes that a scope opens into.
function inside(nodes, scope, open) {
  const then = new Set(open).add(scope);
  const boxes = new Set();
  for (const node of nodes) if (closedScope(node, open) === scope) boxes.add(closedScope(node, then) || node.index);
  return boxes.size;
}

// state: {open, folded, operators}. A box: {id, kind, nodes, label, what}.
function boxesOf(nodes, state) {
  const boxes = new Map();
  for (const node of nodes) {
    if (node.device === "folded" && !state.folded) continue;
    const lead = state.operators && node.operators.length ? node.operators[0].members[0] : node;
    const scope = closedScope(lead, state.open);
    const id = scope !== undefined ? `scope ${scope}` : `node ${lead.index}`;
    if (!boxes.has(id)) boxes.set(id, { id, scope, nodes: [], kind: scope !== undefined ? "scope" : "node" });
    boxes.get(id).nodes.push(node);
  }
  const found = [...boxes.values()];
  const at = new Map(found.flatMap((box, index) => box.nodes.map((node) => [node.index, index])));
  const edges = new Map();
  for (const [index, box] of at) for (const next of nodes[index].to) {
    const to = at.get(next);
    if (to !== undefined && to !== box) edges.set(box * found.length + to, [box, to]);
  }
  found.forEach(summed);
  return { boxes: found, edges: [...edges.values()], at };
}

function summed(box) {
  const operators = new Set(box.nodes.flatMap((node) => node.operators));
  const own = box.kind === "scope" ? [...operators].filter((one) => box.nodes.includes(one.members[0])) : [...operators];
  box.cycles = own.reduce((sum, one) => sum + one.cycles, 0);
  box.share = own.reduce((sum, one) => sum + one.share, 0);
  box.operators = [...operators];
  const places = box.nodes.map((node) => node.device);
  box.place = places.includes("cpu") ? "cpu" : places.includes("npu") ? "npu" : "folded";
  const [first] = box.nodes;
  box.what = box.kind === "scope" ? counted(box.nodes.length, "node") : [...new Set(box.nodes.map((node) => node.op_type))].join(" + ");
  box.label = box.kind === "scope" ? box.scope : first.node;
}
