// SPDX-License-Identifier: Apache-2.0
// Tables that sort, filter and search. On narrow screens each row is a card, so the order has a list of its own too.

const firstRows = (most) => Math.min(most, innerWidth < 640 ? 30 : most); // cards are long

// columns: {id, label, value(row), cell(row), num, kind}; filters: {label, of(row)}; text(row): what search looks in.
function table({ caption, columns, rows, filters = [], text, order, first = 150 }) {
  const state = { column: order || null, down: Boolean(order), words: "", picked: filters.map(() => ""), all: false };
  const found = rows.map((row) => ({ row, text: text(row).toLowerCase() }));
  const body = h("tbody");
  const count = h("span", { class: "count", role: "status" });
  const more = h("button", { class: "more", type: "button", onclick: () => { state.all = true; show(); } });
  const heads = columns.map(head);
  const sorter = h("select", { onchange: () => sortBy(sorter.value || null) },
    h("option", { value: "" }, "as the model has them"), columns.filter((c) => c.value).map((c) => h("option", { value: c.id }, c.label)));
  const turn = h("button", { type: "button", "aria-label": "Reverse the order", onclick: () => { state.down = !state.down; show(); } }, "\u2195");

  function head(column) {
    const label = column.value ? h("button", { type: "button", onclick: () => sortBy(column.id) }, column.label) : column.label;
    return h("th", { scope: "col", class: (column.num ? "num " : "") + (column.kind || "") }, label);
  }
  function sortBy(id) {
    const column = columns.find((one) => one.id === id);
    state.down = state.column === id ? !state.down : Boolean(column && column.num);
    state.column = id;
    show();
  }
  function wanted() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = found.filter((one) => words.every((word) => one.text.includes(word)) &&
      filters.every((filter, at) => !state.picked[at] || filter.of(one.row) === state.picked[at])).map((one) => one.row);
    const column = columns.find((one) => one.id === state.column);
    if (!column) return state.down ? kept.reverse() : kept;
    const sign = state.down ? -1 : 1;
    return kept.map((row, at) => [column.value(row), at, row])
      .sort((a, b) => sign * (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) || a[1] - b[1]).map(([, , row]) => row);
  }
  function line(row) {
    const cells = columns.map((column) => h("td", { class: (column.num ? "num " : "") + (column.kind || ""), "data-label": column.label },
      column.cell ? column.cell(row) : String(column.value(row))));
    return h("tr", {}, cells);
  }
  function show() {
    const kept = wanted();
    const shown = state.all ? kept : kept.slice(0, firstRows(first));
    body.replaceChildren(...shown.map(line));
    count.textContent = `${thousands(kept.length)} of ${thousands(rows.length)}`;
    more.textContent = `Show all ${thousands(kept.length)}`;
    more.hidden = shown.length === kept.length;
    sorter.value = state.column || "";
    heads.forEach((cell, at) => {
      if (columns[at].id === state.column) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": `Search: ${caption}`,
    oninput: () => { state.words = search.value; show(); } });
  const pickers = filters.map((filter, at) => {
    const values = [...new Set(rows.map(filter.of))].filter(Boolean).sort();
    const picker = h("select", { onchange: () => { state.picked[at] = picker.value; show(); } },
      h("option", { value: "" }, "all"), values.map((value) => h("option", { value }, cut(value, 40))));
    return values.length > 1 ? h("label", {}, filter.label, picker) : null;
  });
  const tools = h("div", { class: "tools" }, search, pickers, h("label", {}, "order", sorter), turn, count);
  const grid = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", { class: "cards" }, h("thead", {}, h("tr", {}, heads)), body));
  window.addEventListener("beforeprint", () => { state.all = true; show(); });
  show();
  return h("div", {}, rows.length > 8 ? tools : null, grid, more);
}

// A table of texts alone.
function plain(heads, rows, kinds = []) {
  return h("div", { class: "scroll", role: "region", "aria-label": heads.join(", "), tabindex: "0" }, h("table", { class: "cards" },
    h("thead", {}, h("tr", {}, heads.map((text, at) => h("th", { scope: "col", class: kinds[at] || null }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: kinds[at] || null, "data-label": heads[at] }, cell)))))));
}
