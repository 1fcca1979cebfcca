// What Plotly draws: axes, with zoom and its buttons; each has an empty trace, since axes need one. Plotly is slow, so it
// draws again only if they change.

const MODEBAR = {
  displaylogo: false, showSendToCloud: false, responsive: false, doubleClick: "reset",
  modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "autoScale2d", "hoverClosestCartesian", "hoverCompareCartesian", "toggleSpikelines"],
};

function style(root) {
  const css = getComputedStyle(root);
  const get = (name, other) => css.getPropertyValue(name).trim() || other;
  return { ink: get("--st-text-color", "#31333f"), font: get("--qs-family", "sans-serif"), size: sizes()[0], faint: get("--st-border-color", "#ccc") };
}

// Tick distance of an axis: 1, 2, 5, 10, … elements, never a fraction
function tick(span) {
  const rough = Math.abs(span) / 7, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return rough <= 1.2 ? 1 : power * [1, 2, 5, 10].find((n) => n * power >= rough);
}

function ticks(xRange, yRange) {
  return [tick(xRange[1] - xRange[0]), tick(yRange[1] - yRange[0])];
}

function axis(domain, anchor, range, matches, dtick) {
  return { domain, anchor, range, matches, tick0: 0, dtick, showgrid: false, zeroline: false, ticks: "", tickangle: 0, constrain: "domain" };
}

function axes(state) {
  const { P, data, plot, boxes, look } = state;
  const drawn = JSON.stringify([data.uirevision, data.rows, data.columns, data.large, state.placed, look]);
  if (state.axes === drawn) return;
  state.axes = drawn;
  const width = mapsWidth(state), height = boxes[0].total, [r0, r1] = data.rows, [c0, c1] = data.columns;
  plot.style.width = `${width}px`;
  plot.style.setProperty("--qs-bar", `${width - Math.max(...boxes.map((box) => box.left + box.width))}px`);
  const layout = {
    width, height, margin: { l: 0, r: 0, t: 0, b: 0 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: look.ink, family: look.font, size: look.size }, template: { layout: {} }, showlegend: false,
    dragmode: "zoom", hovermode: false, uirevision: data.uirevision,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: look.ink, activecolor: look.ink },
  };
  const seen = ranges(state), [xTick, yTick] = ticks(seen.x, seen.y); // a zoom kept by uirevision keeps its ticks too
  const traces = boxes.map((box, i) => {
    const n = i ? i + 1 : "";
    const x = [box.left / width, (box.left + box.width) / width];
    const y = [1 - (box.top + box.height) / height, 1 - box.top / height];
    layout["xaxis" + n] = axis(x, "y" + n, [c0 - 0.5, c1 - 0.5], i ? "x" : undefined, xTick);
    layout["yaxis" + n] = axis(y, "x" + n, [r1 - 0.5, r0 - 0.5], i ? "y" : undefined, yTick);
    return { type: "heatmap", z: [[null]], xaxis: "x" + n, yaxis: "y" + n, hoverinfo: "skip", showscale: false };
  });
  state.drawing = P.react(plot, traces, layout, MODEBAR).then(() => {
    if (state.gone || state.listening) return;
    state.listening = true;
    plot.on("plotly_relayouting", () => overlay(state));
    plot.on("plotly_relayout", (change) => zoomed(state, change));
  });
}

// The visible ranges in Plotly's coordinates, where elements are centered at integers: the visitor's zoom, which is kept
// while tensor and view stay the same
function ranges({ plot, data }) {
  const kept = plot._fullLayout?.uirevision === data.uirevision ? plot._fullLayout : null, [r0, r1] = data.rows, [c0, c1] = data.columns;
  return { x: kept?.xaxis.range ?? [c0 - 0.5, c1 - 0.5], y: kept?.yaxis.range ?? [r1 - 0.5, r0 - 0.5] };
}

// The maps with their visible part: `px` gives the distance in px from the map's edge to an element's near edge, `at` the
// element at such a distance; `element` is the size of one; `low` and `high` are the edges of the visible part
function frames(state) {
  const { x, y } = ranges(state);
  return state.boxes.map((box) => ({ ...box, x: along(x, box.width), y: along(y, box.height) }));
}

function along(range, length) {
  const low = Math.min(...range) + 0.5, high = Math.max(...range) + 0.5, element = length / (high - low);
  return { low, high, element, px: (n) => (n - low) * element, at: (px) => Math.floor(low + px / element) };
}

// The ranges of an image that is zoomed so that its pixels stay square: around the box that was dragged, within the image;
// null if they are square
function squared({ data: { square, columns, rows }, plot }) {
  const { xaxis: { range: [left, right] }, yaxis: { range: [bottom, top] } } = plot._fullLayout;
  // its map has the shape of the image: equal parts of both sides are seen
  const parts = [(right - left) / (columns[1] - columns[0]), (bottom - top) / (rows[1] - rows[0])], part = Math.max(...parts);
  if (!square || Math.min(...parts) > 0.98 * part) return null;
  const around = (middle, [first, stop]) => {
    const span = Math.min(part, 1) * (stop - first), start = Math.max(first - 0.5, Math.min(middle - span / 2, stop - 0.5 - span));
    return [start, start + span];
  };
  return { "xaxis.range": around((left + right) / 2, columns), "yaxis.range": around((top + bottom) / 2, rows).reverse() };
}

function zoomed(state, change) {
  const { data, plot, P } = state, full = plot._fullLayout, square = squared(state);
  if (square) {
    state.drawing = P.relayout(plot, square);
    return;
  }
  overlay(state);
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
