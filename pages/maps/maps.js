// The four maps, or those of them that there are: a Plotly figure of heatmaps, over it a canvas for the numbers (Plotly's own cell text takes ten
// times as long, and stays where it is illegible) and an SVG for outlines.
// Hover, outlines and keyboard work without a rerun; a picked cell or an opened region goes to Python.

const TYPES = { f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u1: Uint8Array };
const GAP = 12, TITLE = 22, BAR = 56, BOTTOM = 18;
const NARROW = 520;         // px of width: below it the maps are in one column
const ROW = 1600;           // px of the window's width: from here on they are in one row
const WORTH = 1.5;          // the other arrangement is used if its maps are this much larger
const LOWEST = 170;         // px: minimum height of a map, unless its tensor has few rows,
const FLAT = 40;            // px: whose cells are at least this high
const FOOT = 8;             // px left free below the maps
const TALL = 860;           // px of the window's height: from here on the arithmetic starts within the window,
const BENEATH = 190, OPENED = 145; // px: minimum left for it; height of the tabs with its first lines
const CELL = 72;            // px: maximum height of a cell
const STRETCH = 1.7;        // maximum width of a cell over its height: room for its number
const READABLE = 9;         // px: minimum size of the numbers
const LARGE = 1.6;          // type and cells of the large mode, relative to the normal one
const NUMBERS_UP_TO = 400;  // visible cells: with more, numbers are not read one by one
const SVG = "http://www.w3.org/2000/svg";

const instances = new WeakMap();

function decode({ dtype, bdata }) {
  const bytes = Uint8Array.from(atob(bdata), (c) => c.charCodeAt(0));
  return new TYPES[dtype](bytes.buffer);
}

function grid(values, height, width) {
  const rows = [];
  for (let r = 0; r < height; r++) rows.push((values.subarray ?? values.slice).call(values, r * width, (r + 1) * width));
  return rows;
}

// The shortest decimal that parses back to the same float32
function exact(value) {
  if (!Number.isFinite(value)) return String(value);
  for (let digits = 1; digits < 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(Number(value.toPrecision(9)));
}

function mount(parent) {
  const root = parent.querySelector(".qs-maps");
  const state = { root, plot: root.querySelector(".qs-plot"), canvas: root.querySelector("canvas"), tip: root.querySelector(".qs-tip"), live: root.querySelector(".qs-live"), steps: root.querySelector(".qs-steps"), cursor: null, drawn: null };
  // the size of the window and the sidebar and the content above the maps determine their size
  state.refit = () => {
    if (state.P && state.data && root.clientWidth && placed(root, place(state.data, root)) !== state.placed) draw(state);
  };
  state.observer = new ResizeObserver(state.refit);
  state.observer.observe(root);
  const page = root.closest("[data-testid=stMainBlockContainer]");
  if (page) state.observer.observe(page);
  window.addEventListener("resize", state.refit);
  root.addEventListener("pointermove", (event) => hover(state, event));
  root.addEventListener("pointerleave", () => point(state, null));
  root.addEventListener("pointerdown", (event) => press(state, event), true);
  state.steps.querySelector("button").addEventListener("click", () => follow(state, false));
  root.addEventListener("keydown", (event) => key(state, event));
  root.addEventListener("blur", () => point(state, null));
  return state;
}

function zoom(data) {
  return data.large ? LARGE : 1;
}

// Height left in the window for the maps, below the content above them
function heightLeft(data, root) {
  const scrolled = root.closest("[data-testid=stMain]")?.scrollTop ?? 0;
  const { top, bottom } = root.getBoundingClientRect();
  let beneath = Math.max(FOOT, data.beneath ?? 0);
  if (window.innerHeight >= TALL && !root.classList.contains("qs-large")) {
    const tabs = document.querySelector("[data-testid=stTabs]")?.getBoundingClientRect().top ?? bottom;
    beneath = Math.max(BENEATH, tabs - bottom + OPENED);
  }
  return window.innerHeight - top - scrolled - beneath;
}

// Position of each map: four of them two by two, on wide windows and if they are fewer in one row, unless the other arrangement shows much more
function place(data, root) {
  const width = Math.floor(root.clientWidth), left = heightLeft(data, root);
  const count = data.maps.length;
  if (width < NARROW) return boxes(data, width, 1, count * 290);
  const [row, two] = [count, Math.ceil(count / 2)].map((columns) => boxes(data, width, columns, left));
  const [usual, other] = count < 4 || (window.innerWidth >= ROW && !data.large) ? [row, two] : [two, row];
  return seen(data, other[0]) > WORTH * seen(data, usual[0]) ? other : usual;
}

// The window state that a drawing depends on
function placed(root, boxes) {
  return JSON.stringify([Math.floor(root.clientWidth), boxes]);
}

// Effective size of a map in px²: width beyond square cells counts only if it gives numbers room
function seen(data, box) {
  const stretch = data.numbers && data.width * data.height <= NUMBERS_UP_TO ? STRETCH : 1;
  return box.height * Math.min(box.width, stretch * box.height * (data.width / data.height));
}

function boxes(data, width, columns, left) {
  const k = zoom(data), [bar, title, bottom] = [BAR * k, TITLE * k, BOTTOM * k], rows = Math.ceil(data.maps.length / columns);
  const margin = (14 + 6 * String(Math.max(data.rows[1], 10) - 1).length) * k;
  const room = Math.max(40, (width - columns * (margin + bar) - GAP * (columns - 1)) / columns);
  const aspect = data.width / data.height;
  const most = Math.max(LOWEST, Math.floor(left / rows) - title - bottom);
  const least = Math.min(LOWEST, FLAT * k * data.height, room);
  const height = Math.round(Math.min(Math.max(room / aspect, least), CELL * k * data.height, most));
  // maps with few columns keep nearly square cells; others use the full width
  const wide = Math.round(data.width > 32 ? room : Math.min(room, Math.max(height * aspect * STRETCH, 150)));
  return data.maps.map((_, i) => ({
    left: (i % columns) * (margin + wide + bar + GAP) + margin,
    top: Math.floor(i / columns) * (title + height + bottom) + title,
    width: wide, height, total: Math.ceil(rows * (title + height + bottom)),
  }));
}

function style(root) {
  const css = getComputedStyle(root);
  const get = (name, other) => css.getPropertyValue(name).trim() || other;
  return { ink: get("--st-text-color", "#31333f"), font: get("--st-font", "sans-serif"), faint: get("--st-border-color", "#ccc") };
}

// Number formats for one map, most precise first; all cells get the same number of decimals
function writers(name, values) {
  if (name === "codes") return [String];
  let most = 0;
  for (const v of values) if (Number.isFinite(v)) most = Math.max(most, Math.abs(v));
  if (most && (most >= 1e5 || most < 1e-3)) return [1, 0].map((n) => (v) => (v === 0 ? "0" : v.toExponential(n).replace("e+", "e")));
  const decimals = most >= 1000 ? 0 : most >= 100 ? 1 : most >= 1 ? 2 : most >= 0.1 ? 3 : most >= 0.01 ? 4 : 5;
  const fixed = (n) => (v) => (v === 0 ? "0" : v.toFixed(n));
  const short = (n) => (v) => (v === 0 ? "0" : v.toFixed(n).replace(/^(-?)0\./, "$1."));
  // if that does not fit either, two digits: .75 and -1.6
  const fewer = short(Math.max(0, decimals - 1)), digits = short(2);
  return [fixed(decimals), short(decimals), (v) => (Math.abs(v) < 0.995 && decimals === 2 ? digits(v) : fewer(v))];
}

// A color scale as a function: value -> whether its color is dark
function darkness({ zmin, zmax, colorscale }) {
  const grey = colorscale.map(([, colour]) => colour.match(/[\d.]+/g).reduce((sum, part, i) => sum + part * [0.299, 0.587, 0.114][i], 0));
  return (value) => {
    const place = Math.max(0, Math.min(1, (value - zmin) / (zmax - zmin))) * (grey.length - 1), i = Math.floor(place);
    return grey[i] + ((grey[i + 1] ?? grey[i]) - grey[i]) * (place - i) < 140;
  };
}

// Write the numbers of the visible cells, if they are few and legible
function write(state) {
  const { data, values, root, canvas } = state, ratio = devicePixelRatio || 1;
  canvas.width = root.clientWidth * ratio;
  canvas.height = root.clientHeight * ratio;
  const pen = canvas.getContext("2d"), { font, ink } = style(root);
  pen.scale(ratio, ratio);
  pen.textAlign = "center";
  const written = frames(state).map((f, i) => {
    const name = data.maps[i], { step, rows, columns } = data;
    const inSight = (range, first, s, n) => [Math.max(0, Math.floor((Math.min(...range) + 0.5 - first) / s)), Math.min(n, Math.ceil((Math.max(...range) + 0.5 - first) / s))];
    const [r0, r1] = inSight(f.ya.range, rows[0], step[0], data.height), [c0, c1] = inSight(f.xa.range, columns[0], step[1], data.width);
    if (!data.numbers || (r1 - r0) * (c1 - c0) > NUMBERS_UP_TO) return 0;
    const cells = [];
    for (let r = r0; r < r1; r++) for (let c = c0; c < c1; c++) cells.push([r, c, values[name][r * data.width + c]]);
    const found = fitting(name, values[name], cells, zoom(data), f.width / Math.abs(f.xa.range[1] - f.xa.range[0]) * step[1], f.height / Math.abs(f.ya.range[1] - f.ya.range[0]) * step[0]);
    if (!found) return 0;
    pen.save();
    pen.beginPath();
    pen.rect(f.left, f.top, f.width, f.height);
    pen.clip();
    pen.font = `${found.size}px ${font}`;
    const dark = darkness(data.colours[name]);
    cells.forEach(([r, c, value], k) => {
      pen.fillStyle = !Number.isFinite(value) ? ink : dark(value) ? "#fff" : "#1a1a1a"; // NaN has no color of its own
      pen.fillText(found.texts[k], f.left + f.xa.d2p(columns[0] + (c + 0.5) * step[1] - 0.5), f.top + f.ya.d2p(rows[0] + (r + 0.5) * step[0] - 0.5) + found.size * 0.35);
    });
    pen.restore();
    return cells.length;
  });
  root.dataset.numbers = written.join(" ");
}

// The most precise legible texts of the cells and their size in px; null if none is legible
function fitting(name, values, cells, k, width, height) {
  for (const write of writers(name, values)) {
    const texts = cells.map(([, , value]) => write(value));
    const size = Math.min(width / (Math.max(...texts.map((t) => t.length)) * 0.58), height * 0.7, 15 * k);
    if (size >= READABLE) return { size, texts };
  }
  return null;
}

// Tick distance of an axis: 1, 2, 5, 10, … elements, never a fraction
function tick(span) {
  const rough = Math.abs(span) / 7, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return rough <= 1.2 ? 1 : power * [1, 2, 5, 10].find((n) => n * power >= rough);
}

function ticks(xRange, yRange) {
  return [tick(xRange[1] - xRange[0]), tick(yRange[1] - yRange[0])];
}

// Ticks of the color bar of codes: both ends, and quarters that do not overlap them
function codeTicks({ zmin, zmax }) {
  const step = Math.max(1, 2 ** Math.round(Math.log2(zmax - zmin + 1) - 2)), ticks = [zmin];
  for (let v = Math.ceil((zmin + step / 2) / step) * step; v <= zmax - step / 2; v += step) ticks.push(v);
  return [...ticks, zmax];
}

function axis(domain, anchor, range, matches, dtick, k) {
  return { domain, anchor, range, matches, tick0: 0, dtick, showgrid: false, zeroline: false, ticks: "", tickfont: { size: 10 * k }, tickangle: 0, constrain: "domain" };
}

function draw(state) {
  const { data, P, plot, root } = state;
  const width = Math.floor(root.clientWidth);
  if (!width) return;
  const plotStyle = style(root);
  // a new element, borders or numbers switched: nothing for Plotly to redraw
  const boxes = place(data, root), height = boxes[0].total;
  state.placed = placed(root, boxes);
  const figure = JSON.stringify([data.arrays_key, data.uirevision, data.colours, data.large, state.placed, plotStyle]);
  if (state.drawn && state.figure === figure) {
    state.drawn = data;
    overlay(state);
    root.dataset.painted = data.painted;
    return;
  }
  state.figure = figure;
  const [r0, r1] = data.rows, [c0, c1] = data.columns, k = zoom(data);
  const layout = {
    width, height, margin: { l: 0, r: 0, t: 0, b: 0 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: plotStyle.ink, family: plotStyle.font, size: 12 * k }, template: { layout: {} }, showlegend: false,
    dragmode: "zoom", hovermode: false, uirevision: data.uirevision,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: plotStyle.ink, activecolor: plotStyle.ink },
  };
  // a zoom kept by uirevision keeps its ticks too
  const before = plot._fullLayout?.uirevision === data.uirevision ? plot._fullLayout : null;
  const [xTick, yTick] = ticks(before?.xaxis.range ?? [c0, c1], before?.yaxis.range ?? [r0, r1]);
  const traces = data.maps.map((name, i) => {
    const box = boxes[i], n = i ? i + 1 : "";
    const x = [box.left / width, (box.left + box.width) / width];
    const y = [1 - (box.top + box.height) / height, 1 - box.top / height];
    layout["xaxis" + n] = axis(x, "y" + n, [c0 - 0.5, c1 - 0.5], i ? "x" : undefined, xTick, k);
    layout["yaxis" + n] = axis(y, "x" + n, [r1 - 0.5, r0 - 0.5], i ? "y" : undefined, yTick, k);
    return {
      type: "heatmap", z: state.z[name], x0: c0 + (data.step[1] - 1) / 2, dx: data.step[1], y0: r0 + (data.step[0] - 1) / 2, dy: data.step[0],
      xaxis: "x" + n, yaxis: "y" + n, ...data.colours[name], hoverinfo: "skip", showscale: false,
    };
  });
  root.style.height = height + "px";
  scales(state, boxes);
  const config = {
    displaylogo: false, showSendToCloud: false, responsive: false, doubleClick: "reset",
    modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "autoScale2d", "hoverClosestCartesian", "hoverCompareCartesian", "toggleSpikelines"],
  };
  state.drawing = P.react(plot, traces, layout, config).then(() => {
    if (state.gone) return;
    if (!state.listening) {
      state.listening = true;
      plot.on("plotly_afterplot", () => overlay(state));
      plot.on("plotly_relayouting", () => overlay(state));
      plot.on("plotly_relayout", (change) => zoomed(state, change));
    }
    state.drawn = state.data;
    overlay(state);
    root.dataset.painted = data.painted;
  });
}

function zoomed(state, change) {
  const { data, plot, P } = state, full = plot._fullLayout;
  const [xTick, yTick] = ticks(full.xaxis.range, full.yaxis.range);
  if (xTick !== full.xaxis.dtick || yTick !== full.yaxis.dtick) {
    state.drawing = P.relayout(plot, Object.fromEntries(data.maps.flatMap((_, i) => [[`xaxis${i ? i + 1 : ""}.dtick`, xTick], [`yaxis${i ? i + 1 : ""}.dtick`, yTick]])));
  }
  // on a reduced map, a dragged box opens that part of the tensor element by element
  const dragged = full.dragmode === "zoom" && ("xaxis.range[0]" in change || "yaxis.range[0]" in change);
  if (!dragged || data.step[0] * data.step[1] === 1) return;
  const cut = (range, [low, high]) => {
    const [a, b] = [Math.min(...range), Math.max(...range)].map((v) => Math.round(v + 0.5));
    return [Math.max(low, Math.min(a, high - 1)), Math.min(high, Math.max(b, low + 1))];
  };
  const rows = cut(full.yaxis.range, data.rows), columns = cut(full.xaxis.range, data.columns);
  if (`${rows} ${columns}` !== `${data.rows} ${data.columns}`) state.emit("region", { rows, columns });
}

function overlay(state) {
  write(state);
  outline(state);
  follow(state);
}

function frames(state) {
  const full = state.plot._fullLayout;
  if (!full) return [];
  return (state.drawn ?? state.data).maps.map((_, i) => {
    const n = i ? i + 1 : "", xa = full["xaxis" + n], ya = full["yaxis" + n];
    return { xa, ya, left: xa._offset, top: ya._offset, width: xa._length, height: ya._length };
  });
}

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
    const px = (c) => f.xa.d2p(c - 0.5), py = (r) => f.ya.d2p(r - 0.5);
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

// Whether the block covers everything shown, so that its outline would say nothing
function all({ block, rows, columns }) {
  return block[0] <= rows[0] && block[1] >= rows[1] && block[2] <= columns[0] && block[3] >= columns[1];
}

// Bounds of the drawn cell that contains an element
function cell(data, [row, column]) {
  const r = data.rows[0] + Math.floor((row - data.rows[0]) / data.step[0]) * data.step[0];
  const c = data.columns[0] + Math.floor((column - data.columns[0]) / data.step[1]) * data.step[1];
  return [r, Math.min(r + data.step[0], data.rows[1]), c, Math.min(c + data.step[1], data.columns[1])];
}

// Row, column and map under the pointer
function cellUnder(state, event) {
  const rect = state.root.getBoundingClientRect();
  const x = event.clientX - rect.left, y = event.clientY - rect.top;
  for (const [frame, f] of frames(state).entries()) {
    if (x < f.left || x >= f.left + f.width || y < f.top || y >= f.top + f.height) continue;
    const column = Math.floor(f.xa.p2d(x - f.left) + 0.5), row = Math.floor(f.ya.p2d(y - f.top) + 0.5);
    const { rows, columns } = state.data;
    if (row >= rows[0] && row < rows[1] && column >= columns[0] && column < columns[1]) return [row, column, frame];
  }
  return null;
}

// What a map's cell at an element shows: position of the shown element, and its values
function read(state, [row, column, map]) {
  const { data } = state, name = data.maps[map], of = elementsOf(state, name);
  const n = Math.floor((row - data.rows[0]) / data.step[0]) * data.width + Math.floor((column - data.columns[0]) / data.step[1]);
  return { shown: of.at(n), x: of.x?.[n], q: of.codes?.[n], xHat: of.dequantized[n], error: of.error?.[n], scale: of.scale?.(n), z: of.zero_point?.(n), other: name === "error" ? state.other?.[n] : undefined };
}

// The elements that a map shows; for a reduced tensor the error map shows different ones
function elementsOf(state, name) {
  return name === "error" ? state.worst : state.largest;
}

// [name, value] pairs of a cell, first the full index of its element
function facts(state, cursor) {
  const v = read(state, cursor), place = { row: v.shown[0], column: v.shown[1] };
  const index = state.data.index.map((part) => place[part] ?? part).join(", ");
  const own = v.x === undefined && v.q === undefined ? "value" : "x̂";
  const known = [["x", v.x], ["q", v.q], [own, v.xHat], ["error", v.error], ["scale", v.scale], ["zero point", v.z], ["error of pinned", v.other]];
  return [["element", `(${index})`], ...known.filter(([, value]) => value !== undefined).map(([name, value]) => [name, ["q", "zero point"].includes(name) ? value : exact(value)])];
}

function point(state, cursor, event) {
  const same = cursor && state.cursor && cursor.every((n, i) => n === state.cursor[i]);
  const { tip, root } = state;
  if (!same && (cursor || state.cursor)) {
    state.cursor = cursor;
    outline(state);
    tip.hidden = !cursor;
    if (cursor) tip.replaceChildren(...facts(state, cursor).flat().map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  }
  if (!cursor) return;
  let x, y;
  if (event) {
    const rect = root.getBoundingClientRect();
    [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
  } else {
    const f = frames(state)[cursor[2]];
    [x, y] = [f.left + f.xa.d2p(cursor[1]), f.top + f.ya.d2p(cursor[0])];
  }
  tip.style.left = (x + 18 + tip.offsetWidth > root.clientWidth ? x - 18 - tip.offsetWidth : x + 18) + "px";
  tip.style.top = Math.max(0, Math.min(y + 14, root.clientHeight - tip.offsetHeight)) + "px";
}

function hover(state, event) {
  if (state.drawn && !event.buttons) point(state, cellUnder(state, event), event);
}

// A click is a press without a drag; Plotly covers the page during a drag, so listen for the release on the document
function press(state, event) {
  if (!state.drawn || event.button !== 0 || event.target.closest?.(".modebar, .qs-steps")) return;
  const start = [event.clientX, event.clientY];
  document.addEventListener("pointerup", (up) => {
    const moved = Math.hypot(up.clientX - start[0], up.clientY - start[1]);
    const cursor = moved < 4 ? cellUnder(state, up) : null;
    if (cursor) pick(state, cursor);
  }, { once: true, capture: true });
}

function pick(state, cursor) {
  state.pickedIn = cursor[2];
  state.emit("picked", read(state, cursor).shown);
  follow(state, Boolean(state.data.arithmetic));
}

// Show the arithmetic of the chosen element over the maps, from a pick until it is closed, if the page shows it outside
// the window: over the row of maps without the pick, so that the picked cell stays visible
function follow(state, wanted = state.following) {
  const { data, steps, root } = state, { title, lines, elsewhere } = data.arithmetic ?? {};
  state.following = wanted;
  const below = elsewhere && document.querySelector("pre." + elsewhere)?.getBoundingClientRect();
  steps.hidden = !wanted || !title || Boolean(below && below.height && below.bottom <= window.innerHeight);
  if (steps.hidden) return;
  steps.querySelector("b").textContent = title;
  steps.querySelector("pre").textContent = lines.join("\n");
  const [first, last] = [frames(state)[0], frames(state).at(-1)], selected = data.selected;
  if (!first || !selected) return;
  const upper = (state.pickedIn ?? 0) < data.maps.length / 2, rows = first.top !== last.top;
  const top = !rows ? first.top + first.height + 22 : upper ? last.top - 20 : 0;
  steps.style.top = Math.max(0, top) + "px";
}

// Move a zoomed view so that it shows a cell
function reveal(state, cursor) {
  const full = state.plot._fullLayout, [r0, r1, c0, c1] = cell(state.data, cursor), change = {};
  for (const [name, start, stop] of [["xaxis", c0, c1], ["yaxis", r0, r1]]) {
    const range = full[name].range, low = Math.min(...range), high = Math.max(...range);
    const shift = start - 0.5 < low ? start - 0.5 - low : stop - 0.5 > high ? stop - 0.5 - high : 0;
    if (shift) change[name + ".range"] = range.map((v) => v + shift);
  }
  if (Object.keys(change).length) state.drawing = state.P.relayout(state.plot, change);
}

// Move the keyboard cursor and announce its cell
function announce(state, cursor) {
  reveal(state, cursor);
  point(state, cursor);
  state.live.textContent = facts(state, cursor).map((fact) => fact.join(" ")).join(", ");
}

function key(state, event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const { data } = state;
  if (!state.drawn) return;
  if (event.key === "Enter" && state.cursor) {
    pick(state, state.cursor);
  } else if (event.key === "Escape") {
    point(state, null);
    follow(state, false);
  } else if (moves[event.key]) {
    const [down, right] = moves[event.key];
    const from = state.cursor ?? data.selected ?? [data.rows[0], data.columns[0]];
    const to = state.cursor ? [from[0] + down * data.step[0], from[1] + right * data.step[1]] : from;
    const clamp = (v, [low, high]) => Math.max(low, Math.min(high - 1, v));
    announce(state, [clamp(to[0], data.rows), clamp(to[1], data.columns), state.cursor?.[2] ?? 0]);
  } else if (state.cursor && data.maps[event.key - 1]) {
    announce(state, [state.cursor[0], state.cursor[1], event.key - 1]);
  } else {
    return;
  }
  event.preventDefault();
}

// One element per cell: its values by cell number, and its position in the plane by `at`
function elements({ rows, columns, step, width, blocks }, arrays, prefix) {
  const own = (name) => arrays[prefix + name], inside = own("inside");
  const at = (n) => {
    const i = inside ? inside[n] : 0;
    return [rows[0] + Math.floor(n / width) * step[0] + Math.floor(i / step[1]), columns[0] + (n % width) * step[1] + i % step[1]];
  };
  // scales and zero points: one for all, one per block of the plane, or one per cell
  const parameter = (name) => {
    const array = blocks ? arrays[name] : own(name);
    if (array.length === 1) return () => array[0];
    if (!blocks) return (n) => array[n];
    return (n) => { const [row, column] = at(n); return array[Math.floor((row - blocks[3]) / blocks[0]) * blocks[2] + Math.floor(column / blocks[1])]; };
  };
  const x = own("x"), codes = own("codes");
  if (!codes) {
    const dequantized = own("dequantized");
    return { at, x, dequantized, error: x?.map((v, n) => v - dequantized[n]) };
  }
  const values = own("values") ?? codes, scale = parameter("scale"), z = parameter("zero_point");
  // (q - z) · s and x - x̂ as in Python: a product of two float32 is exact in JavaScript's float64, so one rounding
  // to float32 gives the same bits; this halves the data to send
  const dequantized = own("dequantized") ?? Float32Array.from(values, (v, n) => Math.fround(v - Math.fround(z(n))) * scale(n));
  return { at, x, codes, dequantized, error: x?.map((v, n) => v - dequantized[n]), scale, zero_point: z };
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  let state = instances.get(parentElement);
  if (!state) {
    state = mount(parentElement);
    instances.set(parentElement, state);
  }
  state.emit = setTriggerValue;
  state.root.setAttribute("aria-label", data.alt);
  if (state.data?.arrays_key !== data.arrays_key || !state.values) {
    const arrays = Object.fromEntries(Object.entries(data.arrays).map(([name, array]) => [name, decode(array)]));
    state.largest = elements(data, arrays, "");
    state.worst = arrays.worst_x ? elements(data, arrays, "worst_") : state.largest;
    state.values = Object.fromEntries(data.maps.map((name) => [name, elementsOf(state, name)[name]]));
    // when two results are compared: |this error| - |the other's|
    state.other = arrays.other?.map((xHat, n) => state.worst.x[n] - xHat);
    if (state.other) state.values.error = state.other.map((error, n) => Math.abs(state.worst.error[n]) - Math.abs(error));
    state.z = Object.fromEntries(data.maps.map((name) => [name, grid(state.values[name], data.height, data.width)]));
  }
  state.data = data;
  state.root.classList.toggle("qs-large", Boolean(data.large));
  // content below must not move when plotly.js arrives
  if (!state.P && state.root.clientWidth) state.root.style.height = place(data, state.root)[0].total + "px";
  loadPlotly(data.vendor).then(
    (P) => { state.P = P; if (!state.gone) draw(state); },
    () => state.gone || setTriggerValue("failed", true),
  );
  return () => {
    state.gone = true;
    state.observer.disconnect();
    window.removeEventListener("resize", state.refit);
    // pending work of plotly.js goes on after a purge, and would fail on removed nodes
    const purge = () => state.P?.purge(state.plot);
    Promise.resolve(state.drawing).then(purge, purge);
    instances.delete(parentElement);
  };
}
