// SPDX-License-Identifier: Apache-2.0
// The facts, indexed: nodes with their operators, edges both ways, operators with what a second of theirs went into.

const FACTS = JSON.parse(document.getElementById("facts").textContent);
const PARTS = FACTS.parts; // part -> [what it is summed up as, what it is]
const BOUNDS = [...new Set(Object.values(PARTS).map(([bound]) => bound))];
const IDLE = new Set(["launch", "reload", "end"]); // rows that are no operators

function read(one) {
  const { inspected, profile } = one;
  const nodes = inspected.placement.map((row, index) => ({ ...row, index, from: [], to: [], operators: [] }));
  for (const [a, b] of one.edges) { nodes[a].to.push(b); nodes[b].from.push(a); }
  const rows = inspected.dispatches.map((_, number) => (profile ? profile.rows : []).filter((row) => row.dispatch === number && !IDLE.has(row.kind)));
  const hz = profile ? profile.machine.array_hz : 1;
  const operators = [];
  inspected.dispatches.forEach((dispatch, number) => dispatch.operators.forEach((info, at) => {
    const row = rows[number][at]; // they run in their order; several may have one name
    const operator = { ...info, dispatch: number, at, row, index: operators.length, alive: (one.scratch[number] || [])[at] || 0 };
    operator.members = (one.members[number] || [])[at].map((index) => nodes[index]);
    for (const node of operator.members) node.operators.push(operator);
    operators.push(operator);
  }));
  const sum = profile ? profile.cycles : 0;
  for (const operator of operators) describe(operator, profile, sum);
  for (const node of nodes) node.cycles = node.operators.reduce((total, each) => total + each.cycles, 0);
  return { ...one, nodes, operators, hz, cycles: sum };
}

function describe(operator, profile, sum) {
  const row = operator.row;
  operator.cycles = row ? row.cycles : 0;
  operator.seconds = row ? row.cycles / profile.machine.array_hz : 0;
  operator.share = row && sum ? row.cycles / sum : 0;
  operator.busy = row && row.cycles ? row.busy / (row.cycles * profile.machine.cores) : 0;
  operator.rate = operator.seconds ? row.bursts / operator.seconds / 1e9 : 0; // GB/s, in whole bursts
  operator.tops = operator.seconds ? ((row.macs || 0) * 2e-12) / operator.seconds : 0;
  operator.bound = row && row.cycles ? row.bound : "";
}

const partsOf = (parts) => Object.entries(PARTS).map(([part]) => [part, parts[part] || 0, part]);
