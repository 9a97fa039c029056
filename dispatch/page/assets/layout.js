// SPDX-License-Identifier: Apache-2.0
// A layered layout: layers by the longest path, few crossings by barycentres, places by least squares. All of it is
// linear in nodes and bends, but for sorting, so that thousands of nodes take well under a second.

const BOX = { width: 156, height: 40, across: 22, down: 34, bend: 10, far: 60 };

// boxes: in an order that data flows in, mostly; edges: [from, to] as indices. Returns places and bends of edges.
function layered(boxes, edges) {
  const forward = edges.map(([a, b]) => (a < b ? [a, b] : [b, a]));
  const layer = layersOf(boxes.length, forward);
  const items = boxes.map((_, index) => ({ index, layer: layer[index], size: BOX.width, up: [], down: [], x: 0 }));
  const bends = chains(items, forward);
  const layers = [];
  for (const item of items) (layers[item.layer] = layers[item.layer] || []).push(item);
  const filled = layers.filter(Boolean);
  order(filled);
  place(filled);
  return drawn(items, filled, forward, bends);
}

function layersOf(count, edges) {
  const layer = new Array(count).fill(0);
  const below = Array.from({ length: count }, () => []);
  const fed = new Array(count).fill(false);
  for (const [a, b] of edges) { below[a].push(b); fed[b] = true; }
  for (let at = 0; at < count; at++) for (const b of below[at]) layer[b] = Math.max(layer[b], layer[at] + 1);
  for (let at = 0; at < count; at++) // what nothing feeds stands right above its first reader
    if (!fed[at] && below[at].length) layer[at] = Math.max(0, Math.min(...below[at].map((b) => layer[b])) - 1);
  const alone = [];
  for (let at = 0; at < count; at++) if (!fed[at] && !below[at].length) alone.push(at);
  if (alone.length > 1) {
    const wide = Math.max(4, Math.ceil(Math.sqrt(alone.length / 2)));
    const first = alone.length === count ? 0 : Math.max(...layer) + 1;
    alone.forEach((at, n) => { layer[at] = first + Math.floor(n / wide); });
  }
  return layer;
}

// Edges over several layers bend once in each; those from one node share their bends.
function chains(items, edges) {
  const shared = new Map();
  return edges.map(([a, b]) => {
    const [top, bottom] = [items[a], items[b]];
    const span = bottom.layer - top.layer;
    if (span > BOX.far || span < 1) return null;
    const chain = shared.get(a) || shared.set(a, []).get(a);
    let last = top;
    for (let n = 0; n < span - 1; n++) {
      if (!chain[n]) {
        chain[n] = { index: -1, layer: top.layer + n + 1, size: BOX.bend, up: [last], down: [], x: 0 };
        last.down.push(chain[n]);
        items.push(chain[n]);
      }
      last = chain[n];
    }
    last.down.push(bottom);
    bottom.up.push(last);
    return chain.slice(0, span - 1);
  });
}

function order(layers) {
  const mean = (those, otherwise) => (those.length ? those.reduce((sum, one) => sum + one.rank, 0) / those.length : otherwise);
  for (const one of layers) one.forEach((item, at) => { item.rank = at; });
  for (let sweep = 0; sweep < 10; sweep++) {
    const downward = sweep % 2 === 0;
    for (const one of downward ? layers : [...layers].reverse()) {
      for (const item of one) item.wish = mean(downward ? item.up : item.down, item.rank);
      one.sort((a, b) => a.wish - b.wish).forEach((item, at) => { item.rank = at; });
    }
  }
}

function place(layers) {
  for (const one of layers) {
    let x = 0;
    for (const item of one) { item.x = x + item.size / 2; x += item.size + BOX.across; }
    for (const item of one) item.x -= x / 2;
  }
  for (let sweep = 0; sweep < 12; sweep++) {
    const downward = sweep % 2 === 0;
    for (const one of downward ? layers : [...layers].reverse()) settle(one, downward);
  }
}

// Each item goes where its neighbours are, as nearly as the others of its layer let it: isotonic regression.
function settle(layer, downward) {
  const blocks = [];
  let offset = 0;
  layer.forEach((item, at) => {
    if (at) offset += (layer[at - 1].size + item.size) / 2 + BOX.across;
    const near = downward ? item.up : item.down;
    const wish = near.length ? near.reduce((sum, one) => sum + one.x, 0) / near.length : item.x;
    const weight = near.length ? (item.index < 0 ? 4 : 1) : 0.05;
    blocks.push({ items: [[item, offset]], sum: (wish - offset) * weight, weight });
    while (blocks.length > 1 && blocks.at(-2).sum / blocks.at(-2).weight > blocks.at(-1).sum / blocks.at(-1).weight) {
      const last = blocks.pop();
      const into = blocks.at(-1);
      for (const each of last.items) into.items.push(each);
      into.sum += last.sum;
      into.weight += last.weight;
    }
  });
  for (const block of blocks) for (const [item, shift] of block.items) item.x = block.sum / block.weight + shift;
}

function drawn(items, layers, edges, bends) {
  const step = BOX.height + BOX.down;
  layers.forEach((one, at) => one.forEach((item) => { item.y = at * step + BOX.height / 2; }));
  const left = items.reduce((least, item) => Math.min(least, item.x - item.size / 2), Infinity);
  const right = items.reduce((most, item) => Math.max(most, item.x + item.size / 2), -Infinity);
  for (const item of items) { item.x += 12 - left; item.y += 12; }
  const paths = edges.map(([a, b], at) => {
    const through = bends[at] ? bends[at].map((bend) => [bend.x, bend.y]) : [];
    return { far: !bends[at], d: curve([[items[a].x, items[a].y + BOX.height / 2], ...through, [items[b].x, items[b].y - BOX.height / 2]]) };
  });
  return { items, paths, width: Math.max(0, right - left) + 24, height: layers.length * step - BOX.down + 24 };
}

function curve(points) {
  const text = [`M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`];
  for (let at = 1; at < points.length; at++) {
    const [[x0, y0], [x, y]] = [points[at - 1], points[at]];
    const middle = ((y0 + y) / 2).toFixed(1);
    text.push(`C${x0.toFixed(1)} ${middle} ${x.toFixed(1)} ${middle} ${x.toFixed(1)} ${y.toFixed(1)}`);
  }
  return text.join("");
}
