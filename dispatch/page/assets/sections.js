// SPDX-License-Identifier: Apache-2.0
// The sections of the page: each takes the facts of an executable, and is left out where it has nothing to say.

const section = (id, title, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), children);
const note = (text) => h("p", { class: "note" }, text);
const boundLegend = () => legend(BOUNDS.map((bound) => [bound, `bound by ${bound}`]));

function summary(one) {
  const { profile } = one;
  const count = (place) => one.nodes.filter((node) => node.device === place).length;
  const figure = (name, value, small) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, small)));
  const places = Object.entries(PLACES).map(([place, text]) => [place, count(place), text]);
  const figures = [figure("nodes on the NPU", thousands(count("npu")), `of ${thousands(one.nodes.length)}; ${thousands(count("cpu"))} on the host, ${thousands(count("folded"))} folded`),
    figure("dispatches", thousands(one.inspected.dispatches.length), counted(one.operators.length, "operator"))];
  if (profile) figures.unshift(
    figure("modelled time", duration(one.cycles / one.hz), `${thousands(one.cycles)} cycles of ${profile.machine.device}`),
    figure("bound by", profile.bound, BOUNDS.map((bound) => [bound, profile.bounds[bound]]).sort((a, b) => b[1] - a[1]).slice(0, 2).map(([bound, n]) => `${bound} ${percent(n / one.cycles)}`).join(", ")),
    figure("cores busy", percent(profile.busy_share), `${counted(profile.machine.cores, "core")} in ${counted(profile.machine.columns, "column")}`),
    figure("device memory", `${digits(profile.gigabytes_per_second)} GB/s`, `of ${digits(profile.peak_gigabytes_per_second)} GB/s`),
    figure("ideal", duration(profile.ideal / one.hz), "all cores alike, memory never idle"));
  return section("summary", "In short", h("dl", { class: "tiles" }, figures),
    one.unprofiled ? h("p", {}, "Without times: ", named(one.unprofiled, 600)) : null,
    profile ? [h("h3", {}, "What the time goes into"), bar(partsOf(profile.parts)),
      legend(Object.entries(PARTS).filter(([part]) => profile.parts[part]).map(([part, [bound, words]]) => [part, `${part} ${percent(profile.parts[part] / one.cycles)}: ${words} (${bound})`]))] : null,
    h("h3", {}, "Where nodes run"), bar(places), legend(places.filter(([, n]) => n).map(([place, n, text]) => [place, `${thousands(n)} ${text}`])));
}

function host(one) {
  const rows = one.nodes.filter((node) => node.device === "cpu");
  if (!rows.length) return null;
  const edits = one.inspected.edits || {};
  const moves = { id: "edit", label: "what moves it, tried", value: (row) => edits[row.node] || "", kind: "text", cell: (row) => named(edits[row.node] || "\u2013", 200) };
  return section("host", "Nodes on the host", note("Why each is there, and the nearest that the NPU would take. `onedispatch advise` tries edits of the model that move them."), table({
    caption: "nodes on the host", rows, first: 8, text: (row) => [row.node, row.op_type, row.reason, row.nearest, row.engine].join(" "),
    columns: [nodeColumn(one), { id: "operator", label: "operator", kind: "word", value: (row) => row.op_type, cell: (row) => named(row.op_type, 24) },
      { id: "why", label: "why", value: (row) => row.reason, kind: "text", cell: reasonCell },
      { id: "nearest", label: "what would map", value: (row) => row.nearest, kind: "text", cell: (row) => named(row.nearest || "\u2013", 600) },
      ...(Object.keys(edits).length ? [moves] : [])] }));
}
function reasonCell(row) {
  const more = [["also tried", row.remark], ["computed by", row.engine]].filter(([, text]) => text);
  return h("div", {}, named(row.reason, 900), more.map(([name, text]) => h("small", {}, `${name}: `, named(text, 600))));
}
const nodeColumn = (one) => ({ id: "node", label: "node", kind: "name", value: (row) => row.node,
  cell: (row) => h("button", { class: "link", type: "button", onclick: () => one.show(row) }, named(row.node, 90)) });
const placeCell = (row) => h("span", { class: "place" }, key(row.device), row.device);

function graph(one) {
  if (!one.nodes.length) return null;
  const detail = h("div", { id: "detail", tabindex: "0", role: "region", "aria-live": "polite", "aria-label": "What is known of what was chosen" },
    h("p", { class: "note" }, "Choose a box: it says why it runs where it does, and what its operator does with its time. A box with \u25b8 is a name scope: a double click or Enter opens it."));
  const view = graphView(one, (what) => {
    detail.replaceChildren(...(what.scope ? scopeDetail(what.scope, one, view) : nodeDetail(what.node, one, view)).flat());
    detail.scrollTop = 0;
    const chosen = new Set(what.node ? what.node.operators.map((each) => String(each.index)) : []);
    document.querySelectorAll("[data-operator]").forEach((each) => each.classList.toggle("chosen", chosen.has(each.dataset.operator)));
  });
  one.show = (node) => { view.reveal(node); document.getElementById("graph").scrollIntoView(); };
  one.showOperator = (operator) => operator.members.length && one.show(operator.members[0]);
  one.drawn.push(() => view.start([...one.operators].sort((a, b) => b.cycles - a.cycles).find((each) => each.members.length)));
  return section("graph", "Graph", view.tools, view.key, h("div", { class: "split" }, view.canvas, detail));
}

function operators(one) {
  if (!one.profile || !one.operators.length) return null;
  const number = (id, label, value, cell) => ({ id, label, value, cell, num: true });
  return section("operators", "Operators", note("Cycles are those of the critical path: what each thing on it waited for last. They add up to the time."), boundLegend(), table({
    caption: "operators", rows: one.operators.filter((each) => each.row), order: "time",
    text: (row) => [row.name, row.op_type, row.bound, ...row.members.map((node) => node.node)].join(" "),
    filters: [{ label: "kind", of: (row) => row.op_type }, { label: "bound by", of: (row) => row.bound }],
    columns: [{ id: "name", label: "operator", kind: "name", value: (row) => row.name, cell: (row) => h("div", {}, h("button", { class: "link", type: "button", onclick: () => one.showOperator(row) }, named(row.name, 70)),
        row.members.length > 1 ? h("small", {}, counted(row.members.length, "node")) : null) },
      { id: "kind", label: "kind", kind: "word", value: (row) => row.op_type, cell: (row) => named(row.op_type, 24) },
      number("time", "time", (row) => row.cycles, (row) => duration(row.seconds)),
      number("share", "share", (row) => row.share, (row) => percent(row.share)),
      { id: "bound", label: "bound by", value: (row) => row.bound, cell: (row) => h("span", { class: "place" }, key(row.bound), row.bound) },
      { id: "parts", label: "parts", cell: (row) => bar(partsOf(row.row.parts), "thin") },
      number("busy", "cores busy", (row) => row.busy, (row) => percent(row.busy)),
      number("read", "read", (row) => row.row.read, (row) => bytes(row.row.read)),
      number("written", "written", (row) => row.row.written, (row) => bytes(row.row.written)),
      number("rate", "GB/s", (row) => row.rate, (row) => digits(row.rate)),
      ...(one.profile.tops ? [number("tops", "TOPS", (row) => row.tops, (row) => (row.tops ? digits(row.tops) : "\u2013"))] : []),
      number("gain", "gain", (row) => row.cycles - row.row.ideal, (row) => duration((row.cycles - row.row.ideal) / one.hz))] }));
}

function kinds(one) {
  if (!one.profile) return null;
  const rows = one.profile.kinds.map((kind) => [named(kind.kind, 40), thousands(kind.count), duration(kind.cycles / one.hz), percent(kind.cycles / one.cycles), kind.cycles ? h("span", { class: "place" }, key(kind.bound), kind.bound) : "", bar(partsOf(kind.parts), "thin")]);
  return section("kinds", "Kinds of operators", plain(["kind", "count", "time", "share", "bound by", "parts"], rows, ["name", "num", "num", "num", "", ""]));
}

function times(one) {
  if (!one.profile || !one.profile.timelines.length || !one.cycles) return null;
  for (const [at, line] of one.profile.timelines.entries()) line.end = (one.profile.timelines[at + 1] || { start: one.cycles }).start;
  const drawing = timeline(one, one.showOperator);
  one.drawn.push(drawing.again);
  const { peak_gigabytes_per_second: peak } = one.profile;
  return section("timeline", "Timeline", note("The strip has the operators, coloured by what bounds them. Below: of all columns, then of each, the share of the cores' time that they computed, and traffic of device memory; " +
    `for all columns on the scale of the peak, ${digits(peak)} GB/s, for one column on the scale of the busiest.`), boundLegend(), legend([["compute", "cores busy"], ["ddr", "device memory, read and written"]]), drawing.holder);
}

function tiles(one) {
  if (!one.profile || !one.profile.tiles.length) return null;
  return section("array", "Array", note("Per cent of the run that each tile was busy: cores computed; channels of memory tiles and shims moved data, as the mean of those that had tasks."), array(one));
}

function roof(one) {
  if (!one.profile || !one.operators.some((each) => each.cycles)) return null;
  const drawing = roofline(one, one.showOperator);
  one.drawn.push(drawing.again);
  return section("roofline", "Roofline", note((drawing.macs ? "Operations per byte of device memory, and billions of them per second (GOPS): two for each multiply-accumulate of convolutions and matrix products; operators without any are left out." : "What operators reach of both: how busy cores are, and how fast device memory moves.") +
    " Larger points took longer; dashes are peaks."), boundLegend(), drawing.holder);
}

function scratch(one) {
  const { dispatches } = one.inspected;
  if (!dispatches.length) return null;
  const rows = dispatches.map((dispatch, number) => [`dispatch ${number}`, ...["in", "out", "scratch"].map((name) => bytes(dispatch.buffers[name])), bytes(dispatch.scratch_bound), ...["const", "params"].map((name) => bytes(dispatch.buffers[name])), bytes(dispatch.transaction_bytes)]);
  const buffers = plain(["dispatch", "in", "out", "scratch", "alive at most", "const", "params", "transaction"], rows, ["name", ...Array(7).fill("num")]);
  if (!one.cycles || !dispatches.some((dispatch) => dispatch.buffers.scratch)) return section("memory", "Memory", buffers);
  const drawing = memory(one);
  one.drawn.push(drawing.again);
  return section("memory", "Memory over time", note("Bytes of scratch in device memory that hold a tensor while each operator runs: from the operator that makes it to its last reader. Dashes: the scratch buffer. Inputs, outputs, constants and parameters have buffers of their own."),
    drawing.holder, h("h3", {}, "Buffers"), buffers);
}

function nodes(one) {
  if (!one.nodes.length) return null;
  return section("nodes", "Nodes", note("Every node of the model, where it runs, and why. Its time is that of its operators, which may compute other nodes too."), table({
    caption: "nodes", rows: one.nodes, text: (row) => [row.node, row.op_type, row.device, row.reason, row.nearest, row.remark, row.engine].join(" "),
    filters: [{ label: "place", of: (row) => row.device }, { label: "operator", of: (row) => row.op_type }],
    columns: [nodeColumn(one), { id: "operator", label: "operator", kind: "word", value: (row) => row.op_type, cell: (row) => named(row.op_type, 24) },
      { id: "place", label: "place", value: (row) => row.device, cell: placeCell },
      { id: "why", label: "why", value: (row) => row.reason, kind: "text", cell: (row) => h("div", {}, reasonCell(row), row.nearest ? h("small", {}, "nearest that would map: ", named(row.nearest, 600)) : null) },
      ...(one.profile ? [{ id: "time", label: "time", num: true, value: (row) => row.cycles, cell: (row) => (row.cycles ? duration(row.cycles / one.hz) : "\u2013") }] : [])] }));
}

function groups(one) {
  const found = one.inspected.grouping;
  if (!found || !(found.groups.length || found.passed.length || found.reason)) return null;
  const lines = (names) => h("div", {}, names.map((name) => h("div", {}, named(name, 80))));
  return section("groups", "Tensors in memory tiles", found.reason ? note(found.reason) : null,
    found.groups.length ? plain(["operators", "kept tensors", "bytes saved", "of each memory tile", "cycles saved, estimated"],
      found.groups.map((each) => [lines(each.operators), lines(each.tensors), thousands(each.saved_bytes), thousands(each.tile_bytes), thousands(each.saved_cycles)]), ["name", "text", "num", "num", "num"]) : null,
    found.banded.length ? plain(["operators", "bands", "cycles saved, estimated"],
      found.banded.map((each) => [lines(each.operators), thousands(each.bands), thousands(each.saved_cycles)]), ["name", "num", "num"]) : null,
    found.passed.length ? h("details", {}, h("summary", {}, `${counted(found.passed.length, "tensor")} in device memory, and why`),
      plain(["tensor", "bytes", "why"], found.passed.map((each) => [named(each.tensor, 80), thousands(each.nbytes), named(each.reason, 400)]), ["name", "num", "text"])) : null);
}

function model(one) {
  const { inspected } = one;
  const sizes = Object.entries(inspected.dimension_names || {}).map(([name, those]) => ["dimension name", `${visible(name)} stands for different sizes: ${those.join(", ")}`]);
  const frozen = Object.entries(inspected.frozen || {}).map(([name, value]) => ["frozen input", `${visible(name)}: ${cut(JSON.stringify(value), 200)}`]);
  const programs = inspected.dispatches.map((dispatch, number) => [`dispatch ${number}`,
    h("div", {}, `${thousands(dispatch.program.bytes)} of ${thousands(dispatch.program_memory_bytes)} bytes of a core's program memory: `, named(dispatch.program.kernels.join(", "), 2000),
      dispatch.reloads.map((reload) => h("small", {}, `reload before ${reload.before < dispatch.operators.length ? cut(dispatch.operators[reload.before].name, 60) : "the end"}: ${thousands(reload.bytes)} bytes, `, named(reload.kernels.join(", "), 400))))]);
  const custom = inspected.kernels.map((kernel) => ["custom kernel", h("div", {}, named(kernel.name, 80), ` from `, named(kernel.origin, 120), kernel.nodes.length ? ", on the host for " : "", named(kernel.nodes.join(", "), 400),
    (kernel.notes || []).map((text) => h("small", {}, named(text, 600))))]);
  return section("model", "Model", pairs([...FACTS.model, ["shapes", inspected.key || "no inputs"], ...(inspected.device_notes || []).map((text) => ["device", text]), ...frozen, ...sizes, ...custom]),
    programs.length ? [h("h3", {}, "Programs"), pairs(programs)] : null);
}

function words() {
  const of = (rows) => h("dl", {}, rows.map(([tone, name, text]) => [h("dt", {}, tone ? key(tone) : null, tone ? " " : null, name), h("dd", {}, text)]));
  return section("words", "Words and colours",
    h("h3", {}, "Parts of the critical path"), of(Object.entries(PARTS).map(([part, [bound, text]]) => [part, part, `${text}; summed up as ${bound}`])),
    h("h3", {}, "Places"), of(Object.entries(PLACES).map(([place, text]) => [place, place, text])),
    h("h3", {}, "Figures"), of([[null, "operator", "a device operator: one or several nodes of the model that the array computes together"],
      [null, "cores busy", "of all cores and cycles, those that computed"],
      [null, "ideal", "the time that is left if all cores compute alike and device memory is never idle: the longer of the two"],
      [null, "gain", "the time above the ideal"], [null, "TOPS", "10\u00b9\u00b2 operations per second of convolutions and matrix products: two for each multiply-accumulate"],
      [null, "GB/s", "of device memory, in whole bursts"], [null, "alive at most", "the most bytes of scratch that hold a tensor at once"]]));
}
const SECTIONS = { summary, host, graph, operators, kinds, timeline: times, array: tiles, roofline: roof, memory: scratch, nodes, groups, model, words };
