// The maps as an SVG element, as they are shown: for slides.

const RECTS = 1024;        // visible cells of a map: more are an image
const FINE = 2, FINEST = 16; // pixels of that image per px, and maximum per cell and side: whoever smooths it leaves the cells sharp
const UNPAINTED = new Set(["svg", "linearGradient", "stop"]);
const DRAWN = ["fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "font-family", "font-size", "font-weight", "dominant-baseline"];

async function drawn(state) {
  const { data, root, boxes, plot } = state, height = boxes[0].total, P = await document.qsPlotly(data.base);
  const width = Math.ceil(Math.max(...boxes.map((box) => box.left + box.width)) + barWidth(data));
  const svg = document.createElementNS(SVG, "svg"), look = style(root);
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
  const numbers = numbersOf(state);
  for (const [i, f] of frames(state).entries()) {
    const clip = element("svg", { x: f.left, y: f.top, width: f.width, height: f.height }, svg), name = data.maps[i];
    const cells = inSight(data, f, RECTS);
    if (cells.length) rects(state, name, f, cells, clip);
    else element("image", { ...extent(data, f), preserveAspectRatio: "none", href: await enlarged(state.pictures[name], data, f), style: "image-rendering: pixelated" }, clip);
    const found = numbers[i], colour = shade(data.colours[name]);
    found?.cells.forEach((n, k) => {
      const text = element("text", { x: middle(data, f, n)[0], y: middle(data, f, n)[1] + found.size * BASELINE, "font-size": found.size, "font-family": look.font, "text-anchor": "middle", fill: inkOn(state.values[name][n], colour, look) }, clip);
      text.textContent = found.texts[k];
    });
  }
  const axes = await P.toImage(plot, { format: "svg", width: mapsWidth(state), height });
  svg.append(document.importNode(new DOMParser().parseFromString(decodeURIComponent(axes.slice(axes.indexOf(",") + 1)), "image/svg+xml").documentElement, true));
  for (const layer of root.querySelectorAll(":scope > svg.qs-scales, :scope > svg.qs-over")) svg.append(inlined(layer));
  return svg;
}

// Each visible cell as a rectangle; non-finite values have no color
function rects({ data, values }, name, f, cells, parent) {
  const colour = shade(data.colours[name]), [down, across] = data.step, size = { width: f.x.element * across, height: f.y.element * down };
  for (const n of cells) {
    if (!Number.isFinite(values[name][n])) continue;
    const [x, y] = middle(data, f, n), parts = colour(values[name][n]);
    element("rect", { x: x - size.width / 2, y: y - size.height / 2, ...size, fill: `rgb(${parts & 255},${parts >> 8 & 255},${parts >> 16 & 255})`, "shape-rendering": "crispEdges" }, parent);
  }
}

// The colors of all cells as a PNG
async function enlarged(picture, data, f) {
  const times = [f.x.element * data.step[1], f.y.element * data.step[0]].map((px) => Math.min(FINEST, Math.max(1, Math.round(FINE * px))));
  const canvas = new OffscreenCanvas(picture.width * times[0], picture.height * times[1]), pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const reader = new FileReader();
  const read = new Promise((resolve) => { reader.onload = () => resolve(reader.result); });
  reader.readAsDataURL(await canvas.convertToBlob({ type: "image/png" }));
  return read;
}

// A copy with the style of the page written into its attributes
function inlined(layer) {
  const copy = layer.cloneNode(true), from = [layer, ...layer.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, n) => {
    const css = getComputedStyle(node);
    to[n].removeAttribute("class");
    if (!UNPAINTED.has(node.tagName)) for (const name of DRAWN) to[n].setAttribute(name, css.getPropertyValue(name));
  });
  copy.removeAttribute("aria-hidden");
  return copy;
}
