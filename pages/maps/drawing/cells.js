// The cells: their colors and numbers, on a canvas.

const WIDTHS = { 0: 0.5, ".": 0.25 }, MARGIN = 0.2; // of a digit or sign and of a point in the font of the page, and of the cell's edges, over the size of type
const HIGH = 0.85;          // the size of type over the cell's height, at most
const BASELINE = 0.35;      // of a number below the middle of its cell, over the size of type
const SHADES = 1024;        // steps of a color scale; even, so that its middle is one of its colors

const known = new Map(); // color scales by their text

// The colors of a scale from its low end to its high one, as an image has them in memory: red in the lowest byte
function shades(colorscale) {
  const key = colorscale.join(";");
  if (!known.has(key)) {
    const stops = colorscale.map(([at, colour]) => ({ at, parts: colour.match(/[\d.]+/g).map(Number) }));
    known.set(key, Uint32Array.from({ length: SHADES + 1 }, (_, n) => {
      const i = Math.max(1, stops.findIndex(({ at }) => at >= n / SHADES)), from = stops[i - 1], to = stops[i];
      const way = (n / SHADES - from.at) / (to.at - from.at);
      const [red, green, blue] = from.parts.map((low, k) => Math.round(low + (to.parts[k] - low) * way));
      return (0xff << 24 | blue << 16 | green << 8 | red) >>> 0;
    }));
  }
  return known.get(key);
}

// A scale as a function: value -> its color; values beyond the scale get the color of its end
function shade({ zmin, zmax, colorscale }) {
  const colours = shades(colorscale), k = SHADES / (zmax - zmin);
  return (value) => {
    const place = (value - zmin) * k;
    return colours[place <= 0 ? 0 : place >= SHADES ? SHADES : Math.round(place)];
  };
}

// A map with one pixel per cell; non-finite values have no color. The last picture if that shows the same, as the original does
// under each scheme; else drawn on the spare canvas if it has their number
function picture(values, scale, { width, height }, last, spare) {
  const key = JSON.stringify(scale);
  if (last?.values === values && last.key === key) return last;
  const image = imageOf(width, height), pixels = new Uint32Array(image.data.buffer), colours = shades(scale.colorscale), low = scale.zmin, k = SHADES / (scale.zmax - low);
  for (let n = 0; n < values.length; n++) {
    const value = values[n], place = (value - low) * k;
    pixels[n] = !Number.isFinite(value) ? 0 : colours[place <= 0 ? 0 : place >= SHADES ? SHADES : Math.round(place)];
  }
  const drawn = spare !== last && spare?.width === width && spare.height === height ? spare : new OffscreenCanvas(width, height);
  drawn.getContext("2d").putImageData(image, 0, 0);
  return Object.assign(drawn, { values, key });
}

let lastImage = null; // maps of one size follow each other

function imageOf(width, height) {
  if (lastImage?.width !== width || lastImage.height !== height) lastImage = new ImageData(width, height);
  return lastImage;
}

function isDark(colour) {
  return 0.299 * (colour & 255) + 0.587 * (colour >> 8 & 255) + 0.114 * (colour >> 16 & 255) < 140;
}

// Where all cells are in a map, and the middle of one, in px
function extent({ rows: [r0], columns: [c0], step: [down, across], width, height }, f) {
  return { x: f.x.px(c0), y: f.y.px(r0), width: width * across * f.x.element, height: height * down * f.y.element };
}

function middle({ rows: [r0], columns: [c0], step: [down, across], width }, f, n) {
  return [f.x.px(c0 + (n % width + 0.5) * across), f.y.px(r0 + (Math.floor(n / width) + 0.5) * down)];
}

// The color of a number in its cell
function inkOn(value, colour, look) {
  return !Number.isFinite(value) ? look.ink : isDark(colour(value)) ? "#fff" : "#1a1a1a";
}

// Paint the visible part of the maps, and write the numbers if they are few and legible
function paint(state) {
  const { data, canvas, root, boxes, look } = state, ratio = devicePixelRatio || 1;
  const size = [look.width, boxes[0].total].map((px) => Math.round(px * ratio));
  if (canvas.width !== size[0]) canvas.width = size[0];
  if (canvas.height !== size[1]) canvas.height = size[1];
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.imageSmoothingEnabled = false;
  pen.textAlign = "center";
  const numbers = numbersOf(state), written = frames(state).map((f, i) => {
    const name = data.maps[i];
    pen.save();
    pen.translate(f.left, f.top);
    pen.beginPath();
    pen.rect(0, 0, f.width, f.height);
    pen.clip();
    const { x, y, width, height } = extent(data, f);
    if (state.glide) pen.drawImage(state.glide.from[name], x, y, width, height);
    pen.globalAlpha = glided(state);
    pen.drawImage(state.pictures[name], x, y, width, height);
    pen.globalAlpha = 1;
    const found = numbers[i];
    if (found) {
      const colour = shade(data.colours[name]);
      pen.font = `${found.size}px ${look.font}`;
      found.cells.forEach((n, k) => {
        const [x, y] = middle(data, f, n);
        pen.fillStyle = inkOn(state.values[name][n], colour, look);
        pen.fillText(found.texts[k], x, y + found.size * BASELINE);
      });
    }
    pen.restore();
    return found ? found.cells.length : 0;
  });
  root.dataset.numbers = written.join(" ");
  root.shown = { values: state.values, width: data.width }; // for readers outside, such as the tests
}

// For each map the cells that it shows, their numbers and the size of type, which is the same in all maps; null if they are many,
// or do not fit
function numbersOf(state) {
  const { data, values } = state, scale = sizes();
  const all = frames(state).map((f, i) => {
    const name = data.maps[i], cells = data.numbers ? inSight(data, f, NUMBERS_UP_TO) : [];
    const found = fitted(name, values[name], cells, scale, f.x.element * data.step[1], f.y.element * data.step[0]);
    return found && { ...found, cells };
  });
  const size = Math.min(...all.map((found) => found?.size ?? Infinity));
  return all.map((found) => found && { ...found, size });
}

// The cells that a map shows, if they are at most so many
function inSight({ rows, columns, step, width, height }, f, most) {
  const span = (axis, [first], s, n) => [Math.max(0, Math.floor((axis.low - first) / s)), Math.min(n, Math.ceil((axis.high - first) / s))];
  const [r0, r1] = span(f.y, rows, step[0], height), [c0, c1] = span(f.x, columns, step[1], width), cells = [];
  if ((r1 - r0) * (c1 - c0) > most) return cells;
  for (let r = r0; r < r1; r++) for (let c = c0; c < c1; c++) cells.push(r * width + c);
  return cells;
}

const minus = (text) => text.replaceAll("-", "−");
const fixed = (n) => (v) => (v === 0 ? "0" : minus(v.toFixed(n)));

// Number formats for one map, most precise first; all cells get the same number of decimals
function writers(name, values) {
  if (name === "codes") return [(v) => minus(String(v))];
  let most = 0;
  for (const v of values) if (Number.isFinite(v)) most = Math.max(most, Math.abs(v));
  if (most && (most >= 1e5 || most < 1e-3)) return [1, 0].map((n) => (v) => (v === 0 ? "0" : minus(v.toExponential(n).replace("e+", "e"))));
  const decimals = most >= 1000 ? 0 : most >= 100 ? 1 : most >= 1 ? 2 : most >= 0.1 ? 3 : most >= 0.01 ? 4 : 5;
  // if that does not fit, a digit less; 0.75 is no wider than 11.6
  const fewer = fixed(Math.max(0, decimals - 1));
  return [fixed(decimals), (v) => (Math.abs(v) < 0.995 && decimals === 2 ? fixed(2)(v) : fewer(v))];
}

// Width of a number over the size of its type
function wide(text) {
  let sum = 0;
  for (let i = 0; i < text.length; i++) sum += WIDTHS[text[i]] ?? WIDTHS[0];
  return sum;
}

// Four decimals, as printed tensors have them, where fewer would round values that the cells of a map show; null elsewhere
function asPrinted(name, values, cells) {
  if (name === "codes" || cells.some((n) => !(Math.abs(values[n]) < 1000))) return null;
  const rounded = (n) => Math.fround(Number(values[n].toFixed(2))) !== values[n];
  return cells.some((n) => Math.abs(values[n]) >= 0.1) && cells.some(rounded) ? fixed(4) : null;
}

const textsOf = new WeakMap(); // the last texts of some values: those of x stay with each picture of it, all while colors glide

function fitted(name, values, cells, ...room) {
  const asked = [name, cells[0], cells.length, cells.at(-1), ...room].join();
  if (textsOf.get(values)?.asked !== asked) textsOf.set(values, { asked, found: fitting(name, values, cells, ...room) });
  return textsOf.get(values).found;
}

// The most precise texts that fit into the cells, and the largest of these sizes in which they do; null if none does
function fitting(name, values, cells, scale, width, height) {
  if (!cells.length) return null;
  const printed = asPrinted(name, values, cells), [, readable] = scale;
  for (const write of printed ? [printed, ...writers(name, values)] : writers(name, values)) {
    const texts = cells.map((n) => write(values[n]));
    const most = Math.min(width / (Math.max(...texts.map(wide)) + MARGIN), height * HIGH);
    const size = scale.findLast((px) => px <= most);
    if (size && (write !== printed || size >= readable)) return { size, texts };
  }
  return null;
}
