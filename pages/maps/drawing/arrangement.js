// The positions of the maps: as large as the window allows.

const GAP = 12, BAR = 62;
const NARROW = 520;         // px of width: below it the maps are in one column
const STACKED = 215, STACKED_SHARE = 0.28; // px: minimum height of a map with its title in a stack, and its part of the window's height
const ROW = 1600;           // px of the window's width: from here on they are in one row
const WORTH = 1.5;          // the other arrangement is used if its maps are this much larger
const LOWEST = 170;         // px: minimum height of a map, unless its tensor has few rows,
const FLAT = 40;            // px: whose cells are at least this high
const FOOT = 8;             // px left free below the maps
const TALL = 860;           // px of the window's height: from here on the arithmetic begins inside the window,
const BENEATH = 190, OPENED = 145, CLOSED = 45; // px: minimum left for it; height of the tabs with its first lines, and alone
const CELL = 72;            // px: maximum height of a cell
const STRETCH = 2, STRETCH_LARGE = 2.4;        // maximum width of a cell over its height: room for its number
const TEXT = 14;            // px of the page's text in which cells have their normal size, for the large mode
const NUMBER_LARGE = 2.5;   // minimum width of a color bar's numbers there, over the size of type: that of −0.05
const NUMBERS_UP_TO = 400;  // visible cells: with more, numbers are not read one by one

function zoom(data) {
  return data.large ? Math.max(1, parseFloat(getComputedStyle(document.documentElement).fontSize) / TEXT) : 1;
}

// The page's scale of type in px, smallest first: for labels and numbers, for text, and for large numbers
function sizes() {
  const css = getComputedStyle(document.documentElement), rem = parseFloat(css.fontSize);
  return ["small", "text", "large"].map((name) => rem * parseFloat(css.getPropertyValue(`--qs-${name}`)));
}

// Height of a map's title, and of the numbers of its columns, in px: space, and type that the zoom enlarges
function edges(data) {
  const k = zoom(data);
  return [8 + 14 * k, 6 + 12 * k];
}

function stretch(data) {
  return data.large ? STRETCH_LARGE : STRETCH;
}

// Width of a color bar with its numbers: one for all tensors; where type is large, or stacks stand side by side, as wide as they are
function barWidth(data) {
  const k = zoom(data);
  if (k === 1 && !data.stacked) return BAR;
  const texts = data.maps.flatMap((name) => barTicks(name, data.colours[name]).map(([, text]) => text));
  return BAR_GAP + BAR_WIDTH * k + TICK_GAP + Math.ceil(sizes()[0] * Math.max(NUMBER_LARGE, ...texts.map(wide)));
}

// Height left in the window for the maps, below the content above them
function heightLeft(state) {
  const { data, root } = state;
  const scrolled = root.closest("%main%")?.scrollTop ?? 0;
  const { top, bottom } = root.getBoundingClientRect();
  let beneath = Math.max(FOOT, data.beneath ?? 0);
  const tabs = document.querySelector("%tabs%");
  if (tabs && window.innerHeight >= TALL && !root.classList.contains("qs-large")) {
    beneath = tabs.getBoundingClientRect().top - bottom + (column(state) ? CLOSED : OPENED);
    if (!column(state)) beneath = Math.max(BENEATH, beneath);
  }
  return window.innerHeight - top - scrolled - beneath;
}

// Position of each map: two by two; in one row on wide windows without arithmetic beside the maps or for fewer than four
// maps; or the other way if that shows much more
function place(state) {
  const { data } = state, width = mapsWidth(state), left = heightLeft(state), beside = column(state);
  const count = data.maps.length;
  if (data.stacked) return boxes(data, width, 1, count * Math.max(STACKED, STACKED_SHARE * window.innerHeight));
  if (width < NARROW) return boxes(data, width, 1, count * 290);
  const [row, two] = [count, Math.ceil(count / 2)].map((columns) => boxes(data, width, columns, left));
  const [usual, other] = count < 4 || (window.innerWidth >= ROW && !data.large && !beside) ? [row, two] : [two, row];
  const chosen = seen(data, other[0]) > WORTH * seen(data, usual[0]) ? other : usual;
  return beside ? chosen.map((box) => ({ ...box, total: Math.max(box.total, SHORTEST, Math.min(left, state.tall)) })) : chosen;
}

// Width of the maps, without what stands beside them
function mapsWidth(state) {
  return Math.floor(state.root.clientWidth) - column(state);
}

// The window state that a drawing depends on
function placed(state, boxes) {
  return JSON.stringify([Math.floor(state.root.clientWidth), mapsWidth(state), boxes]);
}

// Effective size of a map in px²: width beyond square cells counts only if it gives numbers room
function seen(data, box) {
  const wide = data.numbers && !data.square && data.width * data.height <= NUMBERS_UP_TO ? stretch(data) : 1;
  return box.height * Math.min(box.width, wide * box.height * (data.width / data.height));
}

function boxes(data, width, columns, left) {
  const k = zoom(data), bar = barWidth(data), [title, bottom] = edges(data), rows = Math.ceil(data.maps.length / columns);
  const margin = 14 + 7 * String(Math.max(data.rows[1], 10) - 1).length * k;
  const room = Math.max(40, (width - columns * (margin + bar) - GAP * (columns - 1)) / columns);
  const aspect = data.width / data.height;
  const most = Math.max(LOWEST, Math.floor(left / rows) - title - bottom);
  const least = data.square ? 0 : Math.min(LOWEST, FLAT * k * data.height, room);
  const height = Math.max(1, Math.round(Math.min(Math.max(room / aspect, least), CELL * k * data.height, most)));
  // maps with few columns keep nearly square cells, and those of images square ones; others use the full width
  const wide = Math.round(data.square ? Math.max(1, height * aspect) : data.width > 32 ? room : Math.min(room, Math.max(height * aspect * stretch(data), 150)));
  return data.maps.map((_, i) => ({
    left: (i % columns) * (margin + wide + bar + GAP) + margin,
    top: Math.floor(i / columns) * (title + height + bottom) + title,
    width: wide, height, total: Math.ceil(rows * (title + height + bottom)),
  }));
}
