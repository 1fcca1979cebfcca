// The four maps: one Plotly figure of four heatmaps, and above it an SVG for outlines.
// Hover, outlines and keyboard live here without a rerun; a pick or an opened region goes to Python.

const NAMES = ["x", "codes", "dequantized", "error"];
const TYPES = { f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u1: Uint8Array };
const GAP = 12, TITLE = 24, LEFT = 40, BAR = 58, BOTTOM = 24;
const WIDE = 1250;          // px: from here on the maps stand in one row
const READABLE = 9;         // px: smaller numbers are not shown
const NUMBERS_UP_TO = 256;  // cells: text costs more than all the rest of a map
const SVG = "http://www.w3.org/2000/svg";

const instances = new WeakMap();
let loading = null;

function loadPlotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("no Plotly in " + url)));
    script.onerror = () => { loading = null; reject(new Error("cannot load " + url)); };
    document.head.appendChild(script);
  });
  return loading;
}

function decode({ dtype, bdata }) {
  const bytes = Uint8Array.from(atob(bdata), (c) => c.charCodeAt(0));
  return new TYPES[dtype](bytes.buffer);
}

function grid(values, height, width) {
  const rows = [];
  for (let r = 0; r < height; r++) rows.push((values.subarray ?? values.slice).call(values, r * width, (r + 1) * width));
  return rows;
}

// The shortest decimal that still reads back as the same float32
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
  const state = { root, plot: root.querySelector(".qs-plot"), tip: root.querySelector(".qs-tip"), live: root.querySelector(".qs-live"), cursor: null, drawn: null };
  state.observer = new ResizeObserver(() => {
    const width = Math.floor(root.clientWidth);
    if (state.P && state.data && width && width !== state.width) draw(state);
  });
  state.observer.observe(root);
  root.addEventListener("pointermove", (event) => hover(state, event));
  root.addEventListener("pointerleave", () => point(state, null));
  root.addEventListener("pointerdown", (event) => press(state, event), true);
  root.addEventListener("keydown", (event) => key(state, event));
  root.addEventListener("blur", () => point(state, null));
  return state;
}

// Where each map stands, from the width at hand: in one row, or two by two
function place(data, width) {
  const columns = width >= WIDE ? 4 : 2;
  const inner = (width - LEFT * columns - BAR * columns - GAP * (columns - 1)) / columns;
  const square = (inner * data.height) / data.width;
  const height = Math.round(Math.max(Math.min(64, inner), Math.min(square, columns === 4 ? 440 : 290)));
  // square cells where there is room for them; a tall or a large map may stretch
  const wide = height < square && data.width > 32 ? inner : Math.min(inner, Math.max(height * (data.width / data.height), 150));
  const boxes = NAMES.map((_, i) => {
    const column = i % columns, row = Math.floor(i / columns);
    return { left: column * (LEFT + inner + BAR + GAP) + LEFT, top: row * (TITLE + height + BOTTOM) + TITLE, width: wide, height };
  });
  return { boxes, height: Math.ceil(4 / columns) * (TITLE + height + BOTTOM) };
}

function style(root) {
  const css = getComputedStyle(root);
  const get = (name, other) => css.getPropertyValue(name).trim() || other;
  return { ink: get("--st-text-color", "#31333f"), font: get("--st-font", "sans-serif"), faint: get("--st-border-color", "#ccc") };
}

// How numbers are written into the cells of one map: with the decimals that its largest one needs
function writer(name, values) {
  if (name === "codes") return String;
  let most = 0;
  for (const v of values) most = Math.max(most, Math.abs(v));
  if (most && (most >= 1e5 || most < 1e-3)) return (v) => (v === 0 ? "0" : v.toExponential(1).replace("e+", "e"));
  const decimals = most >= 1000 ? 0 : most >= 100 ? 1 : most >= 1 ? 2 : most >= 0.1 ? 3 : 4;
  return (v) => (v === 0 ? "0" : v.toFixed(decimals));
}

// The cells' numbers and a size at which the longest fits; null where that can't be read
function numbers(data, values, name, box) {
  if (!data.numbers || data.height * data.width > NUMBERS_UP_TO) return null;
  const write = writer(name, values), texts = Array.from(values, write);
  const longest = Math.max(...texts.map((t) => t.length));
  const size = Math.min(box.width / data.width / (longest * 0.6), (box.height / data.height) * 0.62, 15);
  return size >= READABLE ? { size, texts: grid(texts, data.height, data.width) } : null;
}

function axis(domain, anchor, range, matches) {
  return { domain, anchor, range, matches, showgrid: false, zeroline: false, ticks: "", ...(Math.abs(range[1] - range[0]) <= 10 ? { dtick: 1 } : { nticks: 6 }), tickfont: { size: 10 }, constrain: "domain" };
}

function draw(state) {
  const { data, P, plot, root } = state;
  const width = Math.floor(root.clientWidth);
  if (!width) return;
  const { boxes, height } = place(data, width);
  const look = style(root);
  const [r0, r1] = data.rows, [c0, c1] = data.columns;
  const layout = {
    width, height, margin: { l: 0, r: 0, t: 0, b: 0 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: look.ink, family: look.font, size: 12 }, template: { layout: {} }, showlegend: false, annotations: [],
    dragmode: "zoom", hovermode: false, uirevision: data.uirevision,
  };
  const traces = NAMES.map((name, i) => {
    const box = boxes[i], n = i ? i + 1 : "";
    const x = [box.left / width, (box.left + box.width) / width];
    const y = [1 - (box.top + box.height) / height, 1 - box.top / height];
    layout["xaxis" + n] = axis(x, "y" + n, [c0 - 0.5, c1 - 0.5], i ? "x" : undefined);
    layout["yaxis" + n] = axis(y, "x" + n, [r1 - 0.5, r0 - 0.5], i ? "y" : undefined);
    layout.annotations.push({ text: "<b>" + data.titles[name] + "</b>", x: x[0], y: y[1], xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 13 }, yshift: 2 });
    const written = numbers(data, state.values[name], name, box);
    return {
      type: "heatmap", z: state.z[name], x0: c0 + (data.step[1] - 1) / 2, dx: data.step[1], y0: r0 + (data.step[0] - 1) / 2, dy: data.step[0],
      xaxis: "x" + n, yaxis: "y" + n, ...data.colours[name], hoverinfo: "skip",
      text: written?.texts, texttemplate: written ? "%{text}" : "", textfont: written ? { size: written.size } : undefined,
      colorbar: { x: x[1], xpad: 6, thickness: 8, y: (y[0] + y[1]) / 2, len: box.height, lenmode: "pixels", ypad: 0, nticks: 5, tickfont: { size: 10 }, outlinewidth: 0 },
    };
  });
  root.style.height = height + "px";
  state.width = width;
  const config = {
    displaylogo: false, showSendToCloud: false, responsive: false, doubleClick: "reset",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "hoverClosestCartesian", "hoverCompareCartesian", "toggleSpikelines"],
  };
  P.react(plot, traces, layout, config).then(() => {
    if (!state.listening) {
      state.listening = true;
      plot.on("plotly_afterplot", () => outline(state));
      plot.on("plotly_relayouting", () => outline(state));
      plot.on("plotly_relayout", (change) => zoomed(state, change));
    }
    state.drawn = state.data;
    outline(state);
    root.dataset.painted = data.painted;
  });
}

// On an overview, a dragged box opens that part of the tensor exactly
function zoomed(state, change) {
  const { data } = state;
  outline(state);
  if ((data.step[0] === 1 && data.step[1] === 1) || !("xaxis.range[0]" in change || "yaxis.range[0]" in change)) return;
  const full = state.plot._fullLayout;
  const cut = (range, [low, high]) => {
    const [a, b] = [Math.min(...range), Math.max(...range)].map((v) => Math.round(v + 0.5));
    return [Math.max(low, Math.min(a, high - 1)), Math.min(high, Math.max(b, low + 1))];
  };
  state.emit("region", { rows: cut(full.yaxis.range, data.rows), columns: cut(full.xaxis.range, data.columns) });
}

function frames(state) {
  const full = state.plot._fullLayout;
  if (!full) return [];
  return NAMES.map((_, i) => {
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

// Draw block borders, the chosen element, its block and the cell under the pointer into all four maps
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
      // closer than a few pixels, lines hide the cells that they part
      const apart = (places, at) => places.length < 2 || at(places[1]) - at(places[0]) >= 6;
      const lines = apart(data.borders[0], py) ? data.borders[0].map((r) => `M0 ${py(r)}H${f.width}`) : [];
      if (apart(data.borders[1], px)) lines.push(...data.borders[1].map((c) => `M${px(c)} 0V${f.height}`));
      element("path", { d: lines.join(""), class: "qs-border" }, clip);
    }
    const box = ([r0, r1, c0, c1], name) => {
      const size = { x: px(c0), y: py(r0), width: Math.max(px(c1) - px(c0), 3), height: Math.max(py(r1) - py(r0), 3) };
      element("rect", { ...size, class: name + "-under" }, clip);
      element("rect", { ...size, class: name }, clip);
    };
    if (data.block) box(data.block, "qs-block");
    if (data.selected) box(cell(data, data.selected), "qs-selected");
    if (state.cursor) box(cell(data, state.cursor), "qs-hover");
  }
}

// Bounds of the drawn cell that holds an element
function cell(data, [row, column]) {
  const r = data.rows[0] + Math.floor((row - data.rows[0]) / data.step[0]) * data.step[0];
  const c = data.columns[0] + Math.floor((column - data.columns[0]) / data.step[1]) * data.step[1];
  return [r, Math.min(r + data.step[0], data.rows[1]), c, Math.min(c + data.step[1], data.columns[1])];
}

function under(state, event) {
  const rect = state.root.getBoundingClientRect();
  const x = event.clientX - rect.left, y = event.clientY - rect.top;
  for (const f of frames(state)) {
    if (x < f.left || x >= f.left + f.width || y < f.top || y >= f.top + f.height) continue;
    const column = Math.floor(f.xa.p2d(x - f.left) + 0.5), row = Math.floor(f.ya.p2d(y - f.top) + 0.5);
    const { rows, columns } = state.data;
    if (row >= rows[0] && row < rows[1] && column >= columns[0] && column < columns[1]) return [row, column];
  }
  return null;
}

// What the cell at an element shows: place of the shown element, and its values
function read(state, [row, column]) {
  const { data, values } = state;
  const i = Math.floor((row - data.rows[0]) / data.step[0]) * data.width + Math.floor((column - data.columns[0]) / data.step[1]);
  const at = (name) => values[name][values[name].length === 1 ? 0 : i];
  const shown = data.step[0] * data.step[1] === 1 ? [row, column] : [at("row"), at("column")];
  return { shown, x: at("x"), q: at("codes"), xHat: at("dequantized"), error: at("error"), scale: at("scale"), z: at("zero_point") };
}

function sentence(state, cursor) {
  const v = read(state, cursor);
  return [`row ${v.shown[0]}, column ${v.shown[1]}`, `x ${exact(v.x)}`, `q ${v.q}`, `x̂ ${exact(v.xHat)}`, `error ${exact(v.error)}`, `scale ${exact(v.scale)}`, `zero point ${v.z}`];
}

function point(state, cursor, event) {
  const same = cursor && state.cursor && cursor[0] === state.cursor[0] && cursor[1] === state.cursor[1];
  const { tip, root } = state;
  if (!same && (cursor || state.cursor)) {
    state.cursor = cursor;
    outline(state);
    tip.hidden = !cursor;
    if (cursor) tip.replaceChildren(...sentence(state, cursor).map((line) => Object.assign(document.createElement("div"), { textContent: line })));
  }
  if (!cursor) return;
  let x, y;
  if (event) {
    const rect = root.getBoundingClientRect();
    [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
  } else {
    const f = frames(state)[0];
    [x, y] = [f.left + f.xa.d2p(cursor[1]), f.top + f.ya.d2p(cursor[0])];
  }
  tip.style.left = (x + 18 + tip.offsetWidth > root.clientWidth ? x - 18 - tip.offsetWidth : x + 18) + "px";
  tip.style.top = Math.max(0, Math.min(y + 14, root.clientHeight - tip.offsetHeight)) + "px";
}

function hover(state, event) {
  if (state.drawn && !event.buttons) point(state, under(state, event), event);
}

// A click is a press without a drag; Plotly covers the page while it drags, so the release is heard there
function press(state, event) {
  if (!state.drawn || event.button !== 0 || event.target.closest?.(".modebar")) return;
  const start = [event.clientX, event.clientY];
  document.addEventListener("pointerup", (up) => {
    const moved = Math.hypot(up.clientX - start[0], up.clientY - start[1]);
    const cursor = moved < 4 ? under(state, up) : null;
    if (cursor) state.emit("picked", read(state, cursor).shown);
  }, { once: true, capture: true });
}

function key(state, event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const { data } = state;
  if (!state.drawn) return;
  if (event.key === "Enter" && state.cursor) {
    state.emit("picked", read(state, state.cursor).shown);
  } else if (event.key === "Escape") {
    point(state, null);
  } else if (moves[event.key]) {
    const [down, right] = moves[event.key];
    const from = state.cursor ?? data.selected ?? [data.rows[0], data.columns[0]];
    const to = state.cursor ? [from[0] + down * data.step[0], from[1] + right * data.step[1]] : from;
    const clamp = (v, [low, high]) => Math.max(low, Math.min(high - 1, v));
    point(state, [clamp(to[0], data.rows), clamp(to[1], data.columns)]);
    state.live.textContent = sentence(state, state.cursor).join(", ");
  } else {
    return;
  }
  event.preventDefault();
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
    state.values = Object.fromEntries(Object.entries(data.arrays).map(([name, array]) => [name, decode(array)]));
    state.z = Object.fromEntries(NAMES.map((name) => [name, grid(state.values[name], data.height, data.width)]));
  }
  state.data = data;
  loadPlotly(data.vendor).then(
    (P) => { state.P = P; draw(state); },
    () => setTriggerValue("failed", true),
  );
  return () => {
    state.observer.disconnect();
    if (state.P) state.P.purge(state.plot);
    instances.delete(parentElement);
  };
}
