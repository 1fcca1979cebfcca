// The pointer and the keyboard: the cell that they point at, its numbers, and the arithmetic of the chosen element.

// Row, column and map under the pointer
function cellUnder(state, event) {
  const rect = state.root.getBoundingClientRect();
  const x = event.clientX - rect.left, y = event.clientY - rect.top;
  for (const [frame, f] of frames(state).entries()) {
    if (x < f.left || x >= f.left + f.width || y < f.top || y >= f.top + f.height) continue;
    const column = f.x.at(x - f.left), row = f.y.at(y - f.top);
    const { rows, columns } = state.data;
    if (row >= rows[0] && row < rows[1] && column >= columns[0] && column < columns[1]) return [row, column, frame];
  }
  return null;
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
    [x, y] = [f.left + f.x.px(cursor[1] + 0.5), f.top + f.y.px(cursor[0] + 0.5)];
  }
  tip.style.left = (x + 18 + tip.offsetWidth > root.clientWidth ? x - 18 - tip.offsetWidth : x + 18) + "px";
  tip.style.top = Math.max(0, Math.min(y + 14, root.clientHeight - tip.offsetHeight)) + "px";
}

function hover(state, event) {
  if (!event.buttons) point(state, cellUnder(state, event), event);
}

// A click is a press without a drag; Plotly covers the page during a drag, so listen for the release on the document
function press(state, event) {
  if (event.button !== 0 || event.target.closest?.(".modebar, .qs-steps")) return;
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

// After a pick, show the arithmetic of the chosen element over the maps until it is closed, if the page's copy is outside
// the window: over the row of maps that was not clicked, so that the picked cell stays visible
function follow(state, wanted = state.following) {
  const { data, steps } = state, { title, lines, elsewhere } = data.arithmetic ?? {};
  state.following = wanted;
  steps.hidden = true;
  if (!wanted || !title) return;
  const below = elsewhere && document.querySelector("pre." + elsewhere)?.getBoundingClientRect();
  if (below && below.height && below.bottom <= window.innerHeight) return;
  steps.hidden = false;
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
  if (!full) return;
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
