// SPDX-License-Identifier: Apache-2.0
// What a designer would complain of in a page: [what, where] of each. Elements that scroll may hold more than they show.
(() => {
  const found = [];
  const room = document.documentElement.clientWidth;
  const name = (e) => e.tagName.toLowerCase() + (e.id ? `#${e.id}` : "") + (typeof e.className === "string" && e.className ? `.${e.className}` : "");
  const scrolls = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
  const inside = (e) => e && (scrolls(e) || inside(e.parentElement));
  const hidden = (e, box) => !box.width || e.closest("svg") || e.closest(".skip") || (e.closest("thead") && box.right < 0);

  function overflows(e) {
    const box = e.getBoundingClientRect();
    if (hidden(e, box)) return;
    if (!inside(e.parentElement) && (box.right > room + 1 || box.left < -1)) found.push(["outside of the page", name(e)]);
    const block = getComputedStyle(e).display !== "inline" && e.clientWidth;
    if (block && !scrolls(e) && e.scrollWidth > e.clientWidth + 1) found.push(["holds more than it shows", name(e)]);
  }
  function breaks(e) {
    const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      for (const word of text.data.matchAll(/[^\s/_.:,;()=-]+/g)) {
        if (word[0].length >= 24) continue; // no line need have room for it
        if (!/^[\x21-\x7e\u2026]+$/.test(word[0])) continue; // scripts without spaces break between any two signs
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].filter((box) => box.width).map((box) => Math.round(box.top)));
        if (lines.size > 1) found.push(["broken inside a word", `${name(e)}: ${word[0]}`]);
      }
    }
  }
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(["the page scrolls sideways", `${width} in ${innerWidth}`]);
  document.body.querySelectorAll("*").forEach(overflows);
  document.querySelectorAll("th, h1, h2, h3, dt, button, nav a, label, caption").forEach(breaks);
  return found;
})()
