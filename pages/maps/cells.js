// Small tables of numbers side by side, with cells to pick; built from text only, never from HTML.

const WORDS = { wrong: "wrong", missed: "wrong, not marked", right: "correct", false: "marked, but correct", chosen: "selected" };

function node(tag, name, text) {
  const made = document.createElement(tag);
  made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(table, number, pick, even) {
  const figure = document.createElement("figure"), caption = node("figcaption", "", table.title);
  if (table.note) caption.append(node("small", "", table.note));
  const columns = table.cells[0]?.length ?? 0;
  const grid = node("div", "qs-grid");
  if (table.cells.length === 1 && !even) grid.dataset.columns = columns;
  grid.style.gridTemplateColumns = `${table.indices > 1 ? (even ? "2rem " : "auto ") : ""}repeat(${columns}, ${even ? "minmax(0, 1fr)" : "auto"})`;
  if (table.indices) {
    if (table.indices > 1) grid.append(node("span", "qs-index", ""));
    for (let c = 0; c < columns; c++) grid.append(node("span", "qs-index", String(c)));
  }
  table.cells.forEach((row, r) => {
    if (table.indices > 1) grid.append(node("span", "qs-index", String(table.first + r)));
    row.forEach(([text, mark], c) => {
      const [kind, block] = mark.split(":");  // a mark may carry the number of a block
      const cell = node(table.pick ? "button" : "span", "qs-cell" + (kind ? " qs-" + kind : ""), text);
      if (block) cell.dataset.block = block;
      cell.dataset.place = `${number} ${r} ${c}`;
      if (WORDS[mark]) cell.title = WORDS[mark];
      if (table.pick) {
        cell.type = "button";
        cell.setAttribute("aria-label", `${table.title}, row ${r}, column ${c}: ${text}`);
        cell.setAttribute("aria-pressed", String(mark === "chosen"));
        cell.onclick = () => pick([r, c]);
      }
      grid.append(cell);
    });
  });
  figure.append(caption, grid);
  return figure;
}

// Tables that fill their place: the largest type with which they fit into the window, next to each other where that is larger
const LARGEST = 3.2, SMALLEST = 0.875, FINER = 0.96; // rem, and the next size to be tried over the one before
const STACKED = 641;  // px of the window's width: below it the tables stand below the text, and the page scrolls
const FOOT = 2;       // rem left free below them, for the edge of the page

// A single row that is wider than its place continues in a second line (a third, …) of equally many cells, each below its number
function wrap(grid) {
  const columns = Number(grid.dataset.columns), cells = [...grid.children], numbers = cells.filter((cell) => cell.classList.contains("qs-index"));
  const before = numbers.length > columns ? "auto " : "", ofRow = before ? [numbers[0], numbers.at(-1)] : []; // the number of the row, and what stands above it
  const across = cells.filter((cell) => !ofRow.includes(cell));
  const arrange = (width) => {
    const lines = width < columns;
    for (const cell of ofRow) cell.hidden = lines;
    across.forEach((cell, i) => { cell.style.order = lines ? 2 * Math.floor((i % columns) / width) + !numbers.includes(cell) : ""; });
    grid.style.gridTemplateColumns = `${lines ? "" : before}repeat(${width}, auto)`;
  };
  arrange(columns);
  for (let lines = 2; lines <= columns && grid.offsetWidth > grid.parentElement.clientWidth; lines++) arrange(Math.ceil(columns / lines));
}

function fit(state) {
  for (const grid of state.root.querySelectorAll("[data-columns]")) wrap(grid);
  enlarge(state);
}

function enlarge(state) {
  const { root, fill } = state, main = root.closest("%main%"), column = root.closest("%column%");
  if (!fill || !main || !column || window.innerWidth < STACKED) {
    root.style.fontSize = state.fitted = ""; // in a wider window they are fitted again
    return;
  }
  const { top, bottom } = root.getBoundingClientRect(), last = column.firstElementChild?.lastElementChild ?? root;
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const below = fill < 1 ? 0 : Math.max(0, last.getBoundingClientRect().bottom - bottom);
  const most = (window.innerHeight - top - main.scrollTop - FOOT * rem - below) * fill;
  const around = [Math.round(most), root.clientWidth, rem].join();
  if (state.fitted === around) return;
  state.fitted = around;
  const grids = [...root.querySelectorAll(".qs-grid")];
  const fits = (size) => {
    root.style.fontSize = `${size}rem`;
    const wide = (e) => e.scrollWidth > e.clientWidth;
    return root.scrollHeight <= most && grids.every((grid) => grid.offsetWidth <= root.clientWidth) && !(state.even && [...root.querySelectorAll(".qs-cell")].some(wide));
  };
  let size = LARGEST;
  while (!fits(size) && size > SMALLEST) size = Math.max(SMALLEST, FINER * size);
}

const states = new WeakMap();

function mount(root) {
  const state = { root, refit: () => fit(state) };
  state.observer = new ResizeObserver(state.refit);
  const page = root.closest("%block%");
  for (const seen of [root.parentElement, page]) if (seen) state.observer.observe(seen);
  window.addEventListener("resize", state.refit);
  return state;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".qs-cells");
  const state = states.get(parentElement) ?? mount(root);
  states.set(parentElement, state);
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.place : null;
  data.tints.forEach((colour, i) => root.style.setProperty("--qs-tint" + i, colour));
  root.replaceChildren(...data.tables.map((table, i) => draw(table, i, (place) => setTriggerValue("picked", place), data.even)));
  root.classList.toggle("qs-even", data.even);
  state.even = data.even;
  state.fill = data.fill;
  state.fitted = "";
  fit(state);
  if (focused) root.querySelector(`[data-place="${focused}"]`)?.focus();
  return () => {
    state.observer.disconnect();
    window.removeEventListener("resize", state.refit);
    states.delete(parentElement);
  };
}
