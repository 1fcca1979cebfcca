// Outlines over the maps.

const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.appendChild(node);
  return node;
}

// Outline block borders, findings, the chosen element, its block and the cell under the pointer in all four maps
function outline(state) {
  const { data, root } = state;
  let svg = root.querySelector("svg.qs-over");
  if (!svg) {
    svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "qs-over");
    root.appendChild(svg);
  }
  svg.replaceChildren();
  for (const f of frames(state)) {
    const clip = element("svg", { x: f.left, y: f.top, width: f.width, height: f.height }, svg);
    const { px } = f.x, { px: py } = f.y;
    if (data.borders) {
      // lines closer than a few pixels would hide the cells between them
      const spaced = (places, at) => places.length < 2 || at(places[1]) - at(places[0]) >= 6;
      const lines = spaced(data.borders[0], py) ? data.borders[0].map((r) => `M0 ${py(r)}H${f.width}`) : [];
      if (spaced(data.borders[1], px)) lines.push(...data.borders[1].map((c) => `M${px(c)} 0V${f.height}`));
      element("path", { d: lines.join(""), class: "qs-border" }, clip);
    }
    const box = ([r0, r1, c0, c1], name) => {
      const size = { x: px(c0), y: py(r0), width: Math.max(px(c1) - px(c0), 3), height: Math.max(py(r1) - py(r0), 3) };
      element("rect", { ...size, class: name + "-under" }, clip);
      element("rect", { ...size, class: name }, clip);
    };
    if (data.block && !all(data)) box(data.block, "qs-block");
    for (const bounds of data.found) box(bounds, "qs-found");
    if (data.selected) box(cell(data, data.selected), "qs-selected");
    if (state.cursor) box(cell(data, state.cursor), "qs-hover");
  }
}

// Whether the block covers everything shown, so that its outline would be redundant
function all({ block, rows, columns }) {
  return block[0] <= rows[0] && block[1] >= rows[1] && block[2] <= columns[0] && block[3] >= columns[1];
}

// Bounds of the drawn cell that contains an element
function cell(data, [row, column]) {
  const r = data.rows[0] + Math.floor((row - data.rows[0]) / data.step[0]) * data.step[0];
  const c = data.columns[0] + Math.floor((column - data.columns[0]) / data.step[1]) * data.step[1];
  return [r, Math.min(r + data.step[0], data.rows[1]), c, Math.min(c + data.step[1], data.columns[1])];
}
