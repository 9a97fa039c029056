// SPDX-License-Identifier: Apache-2.0
// What is known of one node or scope.

function pairs(rows) {
  return h("dl", {}, rows.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, typeof value === "string" ? named(value, 2000) : value)]));
}

function nodeDetail(node, one, view) {
  const { operators } = node;
  const chip = (other) => h("button", { type: "button", onclick: () => view.reveal(other) }, named(other.node, 40));
  const chips = (those) => (those.length ? h("div", { class: "chips" }, those.slice(0, 24).map(chip), those.length > 24 ? `and ${those.length - 24} more` : null) : "");
  const scopes = node.scopes.map((scope) => h("button", { type: "button", title: "Close this scope", onclick: () => view.closeScope(scope) }, `${cut(lastPart(scope), 30)} \u25b4`));
  return [
    h("h3", {}, named(node.node, 120)),
    pairs([
      ["name", visible(node.node).length > 120 ? whole(node.node) : ""],
      ["operator", node.op_type],
      ["place", h("span", { class: "place" }, key(node.device), PLACES[node.device])],
      ["why", node.reason], ["nearest that would map", node.nearest], ["also tried", node.remark], ["computed by", node.engine],
      ["scopes", scopes.length ? h("div", { class: "chips" }, scopes) : ""],
      ["reads from", chips(node.from.map((at) => one.nodes[at]))],
      ["read by", chips(node.to.map((at) => one.nodes[at]))],
    ]),
    operators.map((operator) => operatorDetail(operator, one, view)),
  ];
}

function operatorDetail(operator, one, view) {
  const { row } = operator;
  const others = operator.members.length;
  return h("div", {},
    h("h3", {}, "Device operator ", named(operator.name, 60)),
    others > 1 ? h("p", { class: "note" }, `Computes ${counted(others, "node")} together: its figures are those of all of them.`) : null,
    row ? bar(partsOf(row.parts)) : null,
    pairs([
      ["kind", operator.op_type],
      ["time", row ? `${duration(operator.seconds)}, ${percent(operator.share)} of the run` : ""],
      ["cycles", row ? `${thousands(row.cycles)}; ${thousands(row.ideal)} if all cores computed alike and memory were never idle` : ""],
      ["bound by", operator.bound],
      ["critical path", row ? partsOf(row.parts).filter(([, cycles]) => cycles).map(([part, cycles]) => `${part} ${percent(cycles / row.cycles)}`).join(", ") : ""],
      ["cores busy", row ? percent(operator.busy) : ""],
      ["work", operator.tops ? `${thousands(row.macs)} multiply-accumulates, ${digits(operator.tops)} TOPS` : ""],
      ["device memory", row ? `${bytes(row.read)} read, ${bytes(row.written)} written, ${digits(operator.rate)} GB/s` : ""],
      ["nodes", others > 1 ? h("div", { class: "chips" }, operator.members.map((node) => h("button", { type: "button", onclick: () => view.reveal(node) }, named(node.node, 40)))) : ""],
    ]),
    operator.schedule.length ? h("details", { open: true }, h("summary", {}, "Schedule"), operator.schedule.map(whole)) : null,
    operator.arguments.length ? h("details", {}, h("summary", {}, counted(operator.arguments.length, "argument")), operator.arguments.map(whole)) : null);
}

function scopeDetail(box, one, view) {
  const places = Object.keys(PLACES).map((place) => [place, box.nodes.filter((node) => node.device === place).length, PLACES[place]]);
  const most = [...box.operators].sort((a, b) => b.cycles - a.cycles).slice(0, 8);
  return [
    h("h3", {}, named(box.label, 120)),
    h("div", { class: "chips" }, h("button", { type: "button", onclick: () => view.openScope(box.scope) }, "Open")),
    pairs([
      ["nodes", places.filter(([, count]) => count).map(([, count, text]) => `${count} ${text}`).join(", ")],
      ["time", box.cycles ? `${duration(box.cycles / one.hz)}, ${percent(box.share)} of the run, of the operators that begin here` : ""],
      ["most of it in", most.length && box.cycles ? h("div", { class: "chips" }, most.map((operator) =>
        h("button", { type: "button", onclick: () => view.reveal(operator.members[0] || box.nodes[0]) }, named(operator.name, 32), ` ${percent(operator.share)}`))) : ""],
    ]),
  ];
}
