// SPDX-License-Identifier: Apache-2.0
// Timeline, memory, array and roofline. Each is drawn anew for the width that it has.

const PAPER = 700; // what is printed is as wide as a sheet, in CSS pixels

function chart(draw, label) {
  const holder = h("div", { class: "chart" });
  let width = 0;
  const again = (force, given) => {
    const now = given || Math.max(280, Math.round(holder.clientWidth || 900));
    if (!force && Math.abs(now - width) < 3) return;
    width = now;
    const { svg, height } = draw(width);
    fill(svg, { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, []);
    holder.replaceChildren(svg);
  };
  new ResizeObserver(() => again(false)).observe(holder);
  window.addEventListener("beforeprint", () => again(true, PAPER));
  window.addEventListener("afterprint", () => again(true));
  return { holder, again: () => again(true) };
}

function steps(most, count) {
  const rough = most / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let at = 0; at <= most * 1.0001; at += step) found.push(at);
  return found;
}

const GUTTER = 58;

function timeAxis(svg, one, width, top, bottom) {
  const seconds = one.cycles / one.hz;
  const scale = (cycle) => GUTTER + ((width - GUTTER - 8) * cycle) / one.cycles;
  for (const at of steps(seconds, Math.max(2, width / 130))) {
    const x = scale(at * one.hz);
    svg.append(s("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }),
      s("text", { class: "label", x, y: bottom + 15, "text-anchor": x > width - 40 ? "end" : "middle" }, at ? duration(at).replace(/(\.\d*?)0+\u00a0/, "$1\u00a0").replace(".\u00a0", "\u00a0") : "0"));
  }
  return scale;
}

// -- timeline ----------------------------------------------------------------------------------------

function timeline(one, choose) {
  return chart((width) => {
    const svg = s("svg");
    const lines = one.profile.timelines;
    const count = Math.max(...lines.map((line) => line.columns.length));
    const { cores, columns, ddr_bytes_per_cycle: peak } = one.profile.machine;
    const lane = 30, top = 34, bottom = top + (count + 1) * (lane + 6);
    const scale = timeAxis(svg, one, width, 4, bottom);
    strip(svg, one, scale, choose);
    const most = Math.max(1, ...lines.flatMap((line) => line.columns.flatMap((column) => column.read.map((n, bin) => (n + column.written[bin]) / line.bin_cycles))));
    for (let row = 0; row <= count; row++) {
      const y = top + row * (lane + 6) + lane;
      svg.append(s("line", { class: "axis", x1: GUTTER, x2: width - 8, y1: y, y2: y }),
        s("text", { class: row ? "label" : "label strong", x: GUTTER - 8, y: y - lane / 2 + 4, "text-anchor": "end" }, row ? `col ${row - 1}` : "all"));
      for (const line of lines) {
        const picked = row ? [line.columns[row - 1]].filter(Boolean) : line.columns;
        if (!picked.length) continue;
        const together = Math.ceil((BIN * line.columns[0].busy.length) / (scale(line.end) - scale(line.start)));
        const bins = coarser(picked[0].busy.map((_, bin) => [sum(picked, (c) => c.busy[bin]), sum(picked, (c) => c.read[bin] + c.written[bin])]), together);
        const drawn = { ...line, bin_cycles: line.bin_cycles * together };
        const whole = drawn.bin_cycles * (row ? cores / columns : cores);
        svg.append(area(bins.map(([busy]) => busy / whole), drawn, scale, y, lane, "compute"),
          trace(bins.map(([, moved]) => moved / drawn.bin_cycles / (row ? most : peak)), drawn, scale, y, lane, "ddr"));
      }
    }
    return { svg, height: bottom + 20 };
  }, "Timeline: operators, busy share of cores and traffic of device memory by column. The table of operators has the same figures.");
}
const BIN = 3; // pixels that a bin takes at least
function coarser(bins, together) {
  const found = [];
  for (let at = 0; at < bins.length; at += together)
    found.push(bins.slice(at, at + together).reduce((total, bin) => total.map((value, which) => value + bin[which]), [0, 0]));
  return found;
}
const sum = (those, of) => those.reduce((total, one) => total + of(one), 0);
const clamp = (value) => Math.min(1, Math.max(0, value));

function points(values, line, scale, y, height) {
  const text = [];
  const end = line.end;
  values.forEach((value, bin) => {
    const x0 = scale(Math.min(end, line.start + bin * line.bin_cycles)), x1 = scale(Math.min(end, line.start + (bin + 1) * line.bin_cycles));
    if (x1 > x0) text.push(`${x0.toFixed(1)} ${(y - clamp(value) * height).toFixed(1)}L${x1.toFixed(1)} ${(y - clamp(value) * height).toFixed(1)}`);
  });
  return text;
}
function area(values, line, scale, y, height, tone) {
  const text = points(values, line, scale, y, height);
  if (!text.length) return s("g");
  const first = text[0].split(" ")[0], last = text.at(-1).split("L")[1].split(" ")[0];
  return s("path", { d: `M${first} ${y}L${text.join("L")}L${last} ${y}Z`, css: { fill: `var(--${tone})`, opacity: 0.85 } });
}
function trace(values, line, scale, y, height, tone) {
  const text = points(values, line, scale, y, height);
  return text.length ? s("path", { d: `M${text.join("L")}`, css: { fill: "none", stroke: `var(--${tone})`, "stroke-width": 1.3 } }) : s("g");
}

// Operators over time, coloured by what bounds them.
function strip(svg, one, scale, choose) {
  const found = new Map(one.operators.filter((each) => each.row).map((each) => [each.row, each]));
  for (const row of one.profile.rows) {
    const operator = found.get(row);
    const x = scale(row.start), w = Math.max(0.4, scale(row.start + row.cycles) - x);
    const tone = operator ? row.bound : row.kind === "launch" ? "launch" : "cold";
    const words = `${cut(row.name, 80)}: ${duration(row.cycles / one.hz)}, bound by ${row.bound}`;
    svg.append(s("rect", { class: "op", x, y: 4, width: w, height: 22, css: { fill: `var(--${tone})` }, "data-operator": operator ? operator.index : null,
      onclick: operator ? () => choose(operator) : null }, s("title", {}, words)));
    if (w > 90) svg.append(s("text", { x: x + 4, y: 19, css: { "pointer-events": "none", fill: "#101418" } }, fitting(row.name, w - 8, "11px system-ui, sans-serif")));
  }
}

// -- memory ------------------------------------------------------------------------------------------

function memory(one) {
  const sizes = one.inspected.dispatches.map((dispatch) => dispatch.buffers.scratch);
  const most = Math.max(1, ...sizes);
  return chart((width) => {
    const svg = s("svg");
    const top = 10, height = 150, bottom = top + height;
    const scale = timeAxis(svg, one, width, top, bottom);
    const unit = 1024 ** Math.floor(Math.log2(most) / 10);
    for (const at of steps(most / unit, 4).map((each) => each * unit)) {
      const y = bottom - (height * at) / most;
      svg.append(s("line", { class: "grid", x1: GUTTER, x2: width - 8, y1: y, y2: y }), s("text", { class: "label", x: GUTTER - 6, y: y + 4, "text-anchor": "end" }, bytes(at)));
    }
    one.inspected.dispatches.forEach((dispatch, number) => {
      const own = one.operators.filter((each) => each.dispatch === number && each.row);
      if (!own.length) return;
      for (const each of own) {
        const x = scale(each.row.start), w = Math.max(0.5, scale(each.row.start + each.row.cycles) - x), tall = (height * each.alive) / most;
        svg.append(s("rect", { x, y: bottom - tall, width: w, height: tall, css: { fill: "var(--stream)", opacity: 0.85 } },
          s("title", {}, `${cut(each.name, 80)}: ${bytes(each.alive)} alive`)));
      }
      const [first, last] = [own[0].row.start, own.at(-1).row.start + own.at(-1).row.cycles];
      const y = bottom - (height * sizes[number]) / most;
      svg.append(s("line", { class: "peak", x1: scale(first), x2: scale(last), y1: y, y2: y }));
    });
    return { svg, height: bottom + 20 };
  }, "Memory over time: bytes of scratch that hold a tensor while each operator runs");
}

// -- array -------------------------------------------------------------------------------------------

function array(one) {
  const tiles = one.profile.tiles;
  const columns = Array.from({ length: Math.max(one.profile.machine.columns, ...tiles.map((tile) => tile.column + 1)) }, (_, at) => at);
  const rows = [...new Set(tiles.map((tile) => tile.row))].sort((a, b) => b - a);
  const cell = (column, row) => {
    const tile = tiles.find((each) => each.column === column && each.row === row);
    if (!tile) return h("td", { css: { "--heat": 0 }, "aria-label": "had nothing to do", title: "had nothing to do" }, "\u2013");
    const whole = tile.busy + tile.waiting + tile.rest;
    const share = whole ? tile.busy / whole : 0;
    const words = `${tile.tile} ${column},${row}: busy ${percent(share)}, waits for locks ${percent(whole ? tile.waiting / whole : 0)}` +
      `, ${tile.tile === "core" ? "nothing to do" : "other side, or idle"} ${percent(whole ? tile.rest / whole : 0)}${tile.bytes ? `, ${bytes(tile.bytes)}` : ""}`;
    return h("td", { title: words, "aria-label": words, class: share > 0.5 ? "dark" : null, css: { "--heat": Math.sqrt(share).toFixed(3) } }, whole ? String(Math.round(share * 100)) : "\u2013");
  };
  const kind = (row) => tiles.find((tile) => tile.row === row).tile;
  const body = rows.map((row, at) => h("tr", { class: at && kind(row) !== kind(rows[at - 1]) ? "gap" : null },
    h("th", { scope: "row" }, kind(row) === "core" ? `core ${row}` : kind(row)), columns.map((column) => cell(column, row))));
  return h("div", { class: "scroll", role: "region", "aria-label": "Tiles of the array", tabindex: "0" }, h("table", { class: "heat" },
    h("thead", {}, h("tr", {}, h("th", {}), columns.map((column) => h("th", { scope: "col" }, columns.length > 8 ? column : `col ${column}`)))), h("tbody", {}, body)));
}

// -- roofline ----------------------------------------------------------------------------------------

function roofline(one, choose) {
  const known = one.operators.filter((each) => each.row && each.row.cycles);
  const counted = known.filter((each) => each.row.macs);
  return counted.length ? { ...intensity(one, counted, choose), macs: true } : { ...rates(one, known, choose), macs: false };
}

function scatter(one, shown, choose, axes, label) {
  return chart((width) => {
    const height = Math.min(380, Math.max(260, width * 0.5)), bottom = height - 40, svg = s("svg");
    const x = (value) => GUTTER + (width - GUTTER - 16) * axes.x.at(value), y = (value) => bottom - (bottom - 14) * axes.y.at(value);
    for (const tick of axes.x.ticks) svg.append(s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 14, y2: bottom }), s("text", { class: "label", x: x(tick), y: bottom + 15, "text-anchor": "middle" }, axes.x.say(tick)));
    for (const tick of axes.y.ticks) svg.append(s("line", { class: "grid", x1: GUTTER, x2: width - 16, y1: y(tick), y2: y(tick) }), s("text", { class: "label", x: GUTTER - 6, y: y(tick) + 4, "text-anchor": "end" }, axes.y.say(tick)));
    svg.append(s("text", { class: "label strong", x: width - 16, y: height - 6, "text-anchor": "end" }, axes.x.label), s("text", { class: "label strong", x: 2, y: 10 }, axes.y.label));
    for (const roof of axes.roofs) svg.append(s("path", { class: "peak", d: `M${roof.points.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("L")}` }),
      roof.text ? s("text", { class: "name", x: x(roof.points.at(-1)[0]) - 4, y: y(roof.points.at(-1)[1]) + 13, "text-anchor": "end" }, roof.text) : "");
    const names = [];
    for (const { operator, a, b } of [...shown].sort((p, q) => q.operator.cycles - p.operator.cycles)) {
      const r = 3 + 13 * Math.sqrt(operator.share);
      svg.append(s("circle", { class: "op", cx: x(a), cy: y(b), r, css: { fill: `var(--${operator.bound})`, opacity: 0.8 }, "data-operator": operator.index, onclick: () => choose(operator) },
        s("title", {}, `${cut(operator.name, 80)}: ${axes.x.say(a)} ${axes.x.unit}, ${axes.y.say(b)} ${axes.y.unit}, ${percent(operator.share)} of the time`)));
      const [left, middle] = [x(a) + r + 3, y(b) + 4];
      if (names.length < 6 && operator.share > 0.02 && left < width - 110 && names.every(([p, q]) => Math.abs(q - middle) > 13 || Math.abs(p - left) > 120)) {
        names.push([left, middle, fitting(operator.name, 100, "11px system-ui, sans-serif")]);
      }
    }
    for (const [left, middle, text] of names) svg.append(s("text", { class: "name", x: left, y: middle }, text));
    return { svg, height };
  }, label);
}
function logarithmic(least, most, say, label, unit) {
  const [low, high] = [Math.floor(Math.log10(least)), Math.log10(most)];
  const ticks = Array.from({ length: Math.floor(high + 1e-9) - low + 1 }, (_, n) => 10 ** (low + n));
  return { at: (v) => (Math.log10(Math.max(v, 10 ** low)) - low) / Math.max(0.1, high - low), ticks, say, label, unit, low: 10 ** low, high: most };
}
const short = (value) => (value >= 1000 ? thousands(value) : value >= 1 ? String(Number(value.toPrecision(3))) : String(Number(value.toPrecision(2))));

function rates(one, known, choose) {
  const peak = one.profile.peak_gigabytes_per_second;
  const x = logarithmic(0.1, 100, (v) => `${short(v)} %`, "cores busy", "of the cores' time");
  const y = logarithmic(0.1, peak * 1.05, short, "GB/s of device memory", "GB/s");
  const axes = { x, y, roofs: [{ points: [[x.low, peak], [100, peak]] }, { points: [[100, y.low], [100, peak]] }] };
  return scatter(one, known.map((operator) => ({ operator, a: operator.busy * 100, b: operator.rate })), choose, axes, "Operators by busy share of the cores and traffic of device memory");
}
function intensity(one, known, choose) {
  const { machine, peak_gigabytes_per_second: peak } = one.profile;
  const shown = known.map((operator) => ({ operator, a: (2 * operator.row.macs) / Math.max(1, operator.row.bursts), b: (2 * operator.row.macs) / operator.seconds / 1e9 }));
  const peaks = Object.entries(machine.tops || {}).map(([type, tops]) => [type, tops * 1e3]);
  const top = Math.max(...peaks.map(([, each]) => each), ...shown.map((each) => each.b));
  const x = logarithmic(Math.min(...shown.map((each) => each.a)), Math.max(top / peak, ...shown.map((each) => each.a)) * 2, short, "operations per byte of device memory", "operations per byte");
  const y = logarithmic(Math.min(...shown.map((each) => each.b)), top, short, "GOPS", "GOPS");
  const slope = { points: [[Math.max(x.low, y.low / peak), Math.max(x.low * peak, y.low)], [top / peak, top]] };
  const roofs = peaks.map(([type, each]) => ({ points: [[each / peak, each], [x.high, each]], text: type }));
  return scatter(one, shown, choose, { x, y, roofs: [slope, ...roofs] }, "Roofline: work per byte and speed of operators, log by log");
}
