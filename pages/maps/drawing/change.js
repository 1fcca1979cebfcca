// A value of the original is changed by a drag up or down, with Alt or where the page's control says so: the maps follow as they follow
// controls, and with the release the changed tensor is the page's.

const CHANGED = "value", RISE = 120; // px of a drag that add the largest |x|

// Whether a press on this cell changes its value
function changeable({ data }, cursor, { altKey }) {
  const offered = data.live?.at && data.live.controls[CHANGED] && data.maps[cursor[2]] === "x" && data.step[0] * data.step[1] === 1;
  return Boolean(offered) && (altKey || switched());
}

const switched = () => Boolean(document.querySelector(".st-key-drags input:checked"));

// Begin to change a value; whether that is what this press does
function grab(state, event) {
  const cursor = cellUnder(state, event), { root } = state;
  if (!cursor || !changeable(state, cursor, event)) return false;
  event.preventDefault(); // nor does Plotly zoom
  event.stopPropagation();
  const { shown, x } = read(state, cursor), index = indexOf(state, shown), from = Number.isFinite(x) ? x : 0;
  const unit = (state.values.x.reduce((most, v) => (Number.isFinite(v) ? Math.max(most, Math.abs(v)) : most), 0) || 1) / RISE;
  const digit = 10 ** Math.floor(Math.log10(unit)), { pointerId, clientY } = event;
  point(state, cursor, event);
  state.grabbed = true;
  root.setPointerCapture(pointerId);
  const move = (moved) => {
    const value = Number((Math.round((from + (clientY - moved.clientY) * unit) / digit) * digit).toPrecision(6));
    state.hand[CHANGED] = [...index, value];
    controlsMoved(state);
  };
  const end = (ended) => {
    state.grabbed = false;
    for (const [kind, hear] of heard) root.removeEventListener(kind, hear);
    document.removeEventListener("keydown", escape, true);
    if (!state.hand[CHANGED]) return;
    if (ended.type === "pointerup") return state.emit("moved", { [CHANGED]: state.hand[CHANGED].join() });
    delete state.hand[CHANGED];
    giveUp(state);
    controlsMoved(state);
  };
  const escape = (pressed) => { if (pressed.key === "Escape") end(pressed); };
  const heard = [["pointermove", move], ["pointerup", end], ["pointercancel", end]];
  for (const [kind, hear] of heard) root.addEventListener(kind, hear);
  document.addEventListener("keydown", escape, true);
  return true;
}

// The pointer says which cells can be dragged
function offer(state, event, cursor) {
  state.root.classList.toggle("qs-grab", Boolean(cursor) && changeable(state, cursor, event));
}

// What the tip says of it
function hint({ data }, cursor) {
  if (!cursor || !changeable({ data }, cursor, { altKey: true })) return [];
  return [[switched() ? "drag ↕" : "Alt + drag ↕", "changes x"]];
}
