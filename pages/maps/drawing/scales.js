// Titles and color bars of the maps. Plotly measures the text of its own several times and lays them out again in every
// drawing, which took longer than the heatmaps; these have fixed positions.

const BAR_GAP = 6, BAR_WIDTH = 8, TICK_GAP = 4, TITLE_RISE = 6, LINE = 13; // px

// About five round numbers from low to high: multiples of 1, 2 or 5 times a power of ten
function roundTicks(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= rough * (1 - 1e-9));
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) ticks.push(n * step);
  return { ticks, step };
}

// The numbers of one bar, all with as many decimals as their distance needs, or all with an exponent
function tickTexts(ticks, step) {
  const most = Math.max(...ticks.map(Math.abs)), digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const significant = Math.max(0, Math.floor(Math.log10(most) + 1e-9) - Math.floor(Math.log10(step) + 1e-9));
  const text = most >= 1e5 || digits > 4 ? (v) => v.toExponential(significant).replace("e+", "e") : (v) => v.toFixed(digits);
  return ticks.map((v) => (v === 0 ? "0" : text(v).replaceAll("-", "−")));
}

// Ticks of the color bar of codes: both ends, and quarters that do not overlap them
function codeTicks({ zmin, zmax }) {
  const step = Math.max(1, 2 ** Math.round(Math.log2(zmax - zmin + 1) - 2)), ticks = [zmin];
  for (let v = Math.ceil((zmin + step / 2) / step) * step; v <= zmax - step / 2; v += step) ticks.push(v);
  return [...ticks, zmax];
}

// [value, text] of each tick of a map's color bar
function barTicks(name, colours) {
  if (name === "codes") return codeTicks(colours).map((v) => [v, String(v).replace("-", "−")]);
  const { ticks, step } = roundTicks(colours.zmin, colours.zmax), texts = tickTexts(ticks, step);
  return ticks.map((v, i) => [v, texts[i]]);
}

// The ticks that a bar of this height has room for, those farthest from 0 first: a map of one row is flat
function ticksWithin(ticks, height, { zmin, zmax }, least) {
  const apart = least * (zmax - zmin) / height, kept = [];
  for (const tick of [...ticks].sort(([a], [b]) => Math.abs(b) - Math.abs(a)))
    if (kept.every(([value]) => Math.abs(value - tick[0]) >= apart)) kept.push(tick);
  return ticks.filter((tick) => kept.includes(tick));
}

// Draw the titles and color bars of the maps; those that stay as they are stay in place, since text takes long to lay out
function scales(state) {
  const { data, root, boxes } = state, k = zoom(data);
  state.id ??= `qs-${Math.random().toString(36).slice(2)}`; // gradients are found by ids, which must be unique on the page
  const svg = root.querySelector("svg.qs-scales") ?? element("svg", { class: "qs-scales", "aria-hidden": "true" }, root);
  while (svg.childElementCount > boxes.length) svg.lastChild.remove();
  boxes.forEach((box, i) => {
    const name = data.maps[i], { colorscale, ...ends } = data.colours[name], bar = svg.children[i] ?? element("g", {}, svg);
    const scale = { name, title: data.titles[name], colorscale, box, k, id: `${state.id}-${name}` }, drawn = JSON.stringify(scale), ticks = JSON.stringify(ends);
    if (bar.drawn === drawn && bar.ticks === ticks) return;
    if (bar.drawn !== drawn) drawScale(bar, scale);
    drawTicks(bar.lastChild, scale, ends);
    Object.assign(bar, { drawn, ticks });
  });
}

function drawScale(bar, { title, colorscale, box, k, id }) {
  bar.replaceChildren();
  element("text", { class: "qs-title", x: box.left, y: box.top - TITLE_RISE }, bar).textContent = title;
  const gradient = element("linearGradient", { id, x1: 0, x2: 0, y1: 1, y2: 0 }, bar);
  for (const [offset, colour] of colorscale) element("stop", { offset, "stop-color": colour }, gradient);
  element("rect", { x: box.left + box.width + BAR_GAP, y: box.top, width: BAR_WIDTH * k, height: box.height, fill: `url(#${id})` }, bar);
  element("g", {}, bar);
}

function drawTicks(group, { name, box, k }, ends) {
  const x = box.left + box.width + BAR_GAP + BAR_WIDTH * k + TICK_GAP, foot = box.top + box.height;
  group.replaceChildren();
  for (const [value, text] of ticksWithin(barTicks(name, ends), box.height, ends, LINE * k)) {
    const y = foot - ((value - ends.zmin) / (ends.zmax - ends.zmin)) * box.height;
    element("text", { class: "qs-tick", x, y }, group).textContent = text;
  }
}
