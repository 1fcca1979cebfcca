// The pointer and the keyboard: the cell that they point at, its numbers, and the choice of an element.

// Row, column and map under the pointer
function cellUnder(state, event) {
  const rect = state.root.getBoundingClientRect();
  const x = event.clientX - rect.left, y = event.clientY - rect.top;
  for (const [frame, f] of frames(state).entries()) {
    if (x < f.left || x >= f.left + f.width || y < f.top || y >= f.top + f.height) continue;
    const column = f.x.at(x - f.left), row = f.y.at(y - f.top);
    if (shows(state.data, [row, column])) return [row, column, frame];
  }
  return null;
}

// Whether an element is in the part that the maps show
function shows({ rows, columns }, [row, column]) {
  return row >= rows[0] && row < rows[1] && column >= columns[0] && column < columns[1];
}

function point(state, cursor, event) {
  const same = cursor && state.cursor && cursor.every((n, i) => n === state.cursor[i]);
  const { tip, root } = state;
  if (!same && (cursor || state.cursor)) {
    state.cursor = cursor;
    outline(state);
    tip.hidden = !cursor;
    if (column(state)) stand(state);
    if (cursor) tell(state);
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
  tip.style.left = (x + 18 + tip.offsetWidth > mapsWidth(state) ? x - 18 - tip.offsetWidth : x + 18) + "px";
  tip.style.top = Math.max(0, Math.min(y + 14, root.clientHeight - tip.offsetHeight)) + "px";
}

// The numbers of the cell that is pointed at, as they are now
function tell(state) {
  const { tip, cursor } = state, texts = [...facts(state, cursor), ...hint(state, cursor)].flat();
  tip.replaceChildren(...texts.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
}

function hover(state, event) {
  if (event.buttons) return;
  const cursor = cellUnder(state, event);
  point(state, cursor, event);
  offer(state, event, cursor);
}

// A click is a press without a drag; Plotly covers the page during a drag, so listen for the release on the document
function press(state, event) {
  if (event.button !== 0 || event.target.closest?.(".modebar, .qs-steps") || grab(state, event)) return;
  const start = [event.clientX, event.clientY];
  document.addEventListener("pointerup", (up) => {
    if (Math.hypot(up.clientX - start[0], up.clientY - start[1]) >= 4) return;
    const cursor = cellUnder(state, up);
    if (cursor) pick(state, cursor);
    else close(state);
  }, { once: true, capture: true });
}

// The arithmetic follows with what Python sends, unless the cell was chosen before
function pick(state, cursor) {
  const { shown } = read(state, cursor), { selected, arithmetic } = state.data;
  if (column(state) && !pin(state, cursor)) return;
  state.pickedIn = cursor[2];
  state.emit("picked", column(state) ? [...shown, 1] : shown); // 1: its arithmetic stands beside the maps
  state.following = Boolean(arithmetic);
  state.awaited = !arithmetic;
  if (selected && shown.every((n, i) => n === selected[i])) follow(state);
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
