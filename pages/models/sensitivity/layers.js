// The table of weights and schemes: a click on a cell or Enter sends it to Python, arrow keys go from cell to cell.

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const rows = (root) => [...root.querySelectorAll("tr[data-row]")];
const focused = (root) => (root.contains(document.activeElement) ? document.activeElement.closest("td") : null);
const place = (root, cell) => [rows(root).indexOf(cell.parentElement), cell.cellIndex];

function focus(root, row, column) {
  const cell = rows(root)[row]?.cells[column];
  if (cell?.tagName !== "TD") return;
  root.querySelector("td[tabindex]")?.removeAttribute("tabindex");
  cell.tabIndex = 0;
  cell.focus();
}

function show(root, { table, chosen }) {
  const cell = focused(root), at = cell && place(root, cell), marked = () => root.querySelector(".qs-chosen");
  root.innerHTML = table;
  (marked() ?? root.querySelector("td"))?.setAttribute("tabindex", "0");
  if (at) focus(root, ...at);
  if (chosen && chosen !== root.chosen) {
    const top = marked()?.parentElement.offsetTop ?? 0, height = root.clientHeight;
    if (top < root.scrollTop + 80 || top > root.scrollTop + height - 40) root.scrollTop = top - height / 2;
  }
  root.chosen = chosen;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".qs-layers");
  const pick = (row, column) => setTriggerValue("picked", [row, column - 1]);
  if (root.table !== data.table) show(root, data);
  root.table = data.table;
  root.onclick = (event) => {
    const cell = event.target.closest("td"), at = cell && place(root, cell);
    if (!cell) return;
    focus(root, ...at);
    pick(...at);
  };
  root.onkeydown = (event) => {
    const cell = focused(root), step = STEPS[event.key];
    if (!cell || !(step || event.key === "Enter")) return;
    event.preventDefault();
    const [row, column] = place(root, cell);
    if (step) focus(root, row + step[0], column + step[1]);
    else pick(row, column);
  };
}
