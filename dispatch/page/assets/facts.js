// SPDX-License-Identifier: Apache-2.0
// The facts, indexed: nodes with their operators, edges both ways, operators with what a second of theirs went into.

const FACTS = JSON.parse(document.getElementById("facts").textContent);
const PARTS = FACTS.parts; // part -> [what it is summed up as, what it is]
const BOUNDS = [...new Set(Object.values(PARTS).map(([bound]) => bound))];
const IDLE = new Set(["launch", "reload", "end"]); // rows that are no operators

function read(one) {
  const { inspected, profile } = one;
  const nodes = inspected.placement.map((row, index) => ({ ...row, index, from: [], to: [], operator: null }));
  for (const [a, b] of one.edges) { nodes[a].to.push(b); nodes[b].from.push(a); }
  const rows = profile ? profile.rows : [];
  const hz = profile ? profile.machine.array_hz : 1;
  const operators = [];
  const byName = new Map(nodes.map((node) => [node.node, node]));
  inspected.dispatches.forEach((dispatch, number) => dispatch.operators.forEach((info, at) => {
    const row = rows.find((r) => r.dispatch === number && r.name === info.name && !IDLE.has(r.kind));
    const operator = { ...info, dispatch: number, at, row, index: operators.length, alive: (one.scratch[number] || [])[at] || 0 };
    operator.members = info.nodes.map((name) => byName.get(name)).filter(Boolean);
    for (const node of operator.members) if (!node.operator) node.operator = operator;
    operators.push(operator);
  }));
  const sum = profile ? profile.cycles : 0;
  for (const operator of operators) describe(operator, profile, sum);
  return { ...one, inspected, profile, nodes, operators, hz, cycles: sum, advice: one.advice || {} };
}

function describe(operator, profile, sum) {
  const row = operator.row;
  operator.cycles = row ? row.cycles : 0;
  operator.seconds = row ? row.cycles / profile.machine.array_hz : 0;
  operator.share = row && sum ? row.cycles / sum : 0;
  operator.busy = row && row.cycles ? row.busy / (row.cycles * profile.machine.cores) : 0;
  operator.rate = operator.seconds ? row.bursts / operator.seconds / 1e9 : 0; // GB/s, in whole bursts
  operator.bound = row && row.cycles ? row.bound : "";
}

const partsOf = (parts) => Object.entries(PARTS).map(([part]) => [part, parts[part] || 0, part]);
