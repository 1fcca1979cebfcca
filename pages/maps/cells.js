// Small tables of numbers side by side, with cells to pick; built from text only, never from HTML.

const WORDS = { wrong: "wrong", missed: "wrong, not marked", right: "correct", false: "marked, but correct", chosen: "selected" };

function node(tag, name, text) {
  const made = document.createElement(tag);
  made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(table, number, pick) {
  const figure = document.createElement("figure"), caption = node("figcaption", "", table.title);
  if (table.note) caption.append(node("small", "", table.note));
  const columns = table.cells[0]?.length ?? 0;
  const grid = node("div", "qs-grid");
  grid.style.gridTemplateColumns = `${table.index ? "auto " : ""}repeat(${columns}, auto)`;
  if (table.index) {
    grid.append(node("span", "qs-index", ""));
    for (let c = 0; c < columns; c++) grid.append(node("span", "qs-index", String(c)));
  }
  table.cells.forEach((row, r) => {
    if (table.index) grid.append(node("span", "qs-index", String(r)));
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

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".qs-cells");
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.place : null;
  data.tints.forEach((colour, i) => root.style.setProperty("--qs-tint" + i, colour));
  root.replaceChildren(...data.tables.map((table, i) => draw(table, i, (place) => setTriggerValue("picked", place))));
  if (focused) root.querySelector(`[data-place="${focused}"]`)?.focus();
}
