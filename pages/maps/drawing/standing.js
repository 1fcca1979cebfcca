// The arithmetic that stands to the right of the maps on wide windows: that of the element under the pointer, or of the chosen
// one while the pointer is elsewhere, or of the one that a click has pinned. Its lines are those of the server's trace, which
// is asked for one element at a time: while an answer is under way, only the newest element waits.

const WIDE = 1800;              // px of the window's width: from here on
const COLUMN = [330, 480], SHARE = 0.27; // px: its minimum and maximum width, and its part of the width
const SHORTEST = 380;           // px: minimum height of the maps beside it
const PAUSE = 50, TIMES = 2;    // ms from an answer to the next request, or as many times what the answer took: a busy server is asked less
const KEPT = 1000;              // answers

// Width that it takes with its distance from the maps; 0 if there is none: in large type, the maps need the room
function column({ data, root }) {
  if (!data.pointed || data.large || window.innerWidth < WIDE) return 0;
  return Math.round(Math.min(COLUMN[1], Math.max(COLUMN[0], root.clientWidth * SHARE))) + APART;
}

// Before Python's data is taken over: what is pinned moves with the choice, such as one made in a field
function retain(state, data) {
  const before = state.data?.arithmetic?.at, now = data.arithmetic?.at;
  if (state.pinned !== null && before !== now) state.pinned = now;
  if (state.data?.pointed !== data.pointed) state.answers = new Map();
}

// Pin an element, or unpin it if it is the pinned one; whether it is pinned now
function pin(state, cursor) {
  const at = nameOf(state, cursor), before = state.pinned;
  state.pinned = at;
  if (before === at) unpin(state);
  else stand(state);
  return before !== at;
}

function unpin(state) {
  state.pinned = null;
  state.following = false;
  stand(state);
}

function nameOf(state, cursor) {
  return indexOf(state, read(state, cursor).shown).join();
}

// The element whose arithmetic is to be shown
function wantedBy(state) {
  return state.pinned ?? (state.cursor ? nameOf(state, state.cursor) : state.data.arithmetic.at);
}

// The arithmetic of an element; undefined if the server has not been asked, null if it had no answer
function answerFor({ data, answers }, at) {
  return at === data.arithmetic.at ? data.arithmetic : answers.get(at);
}

function stand(state) {
  const { steps, boxes, pinned } = state, found = answerFor(state, wantedBy(state));
  steps.hidden = false;
  steps.classList.add("qs-standing");
  document.documentElement.classList.add("qs-stands"); // for what the page shows beneath the maps
  steps.classList.toggle("qs-late", !found);
  steps.classList.toggle("qs-pinned", pinned !== null);
  set(steps, { position: "absolute", left: mapsWidth(state) + APART, top: 0, width: column(state) - APART, maxHeight: boxes[0].total });
  steps.querySelector("small").textContent = pinned === null ? "Follows the pointer; a click on a cell pins it." : "Pinned; Esc, or a click on the same cell, unpins it.";
  if (found) write(state, found);
  makeRoom(state, found);
  if (found === undefined) ask(state);
}

// Long arithmetic takes the height that the window has left, then smaller type; last, it is scrolled
function makeRoom(state, found) {
  const { steps, data, boxes } = state;
  const tight = (is) => { steps.classList.toggle("qs-tight", is); return steps.scrollHeight + steps.offsetHeight - steps.clientHeight; };
  const wanted = tight(false), tall = wanted > Math.max(boxes[0].total, heightLeft(state)) ? tight(true) : wanted;
  tight(wanted > boxes[0].total);
  // only for what is chosen: the page must not move under the pointer
  if (found !== data.arithmetic || tall === state.tall) return;
  state.tall = tall;
  state.refit();
}

async function ask(state) {
  if (state.asking) return;
  state.asking = true;
  while (!state.gone && column(state) && answerFor(state, wantedBy(state)) === undefined) {
    const { data, answers } = state, at = wantedBy(state), began = performance.now();
    if (answers.size >= KEPT) answers.clear();
    answers.set(at, await got(`${document.qsRoutes(data.base)}${data.pointed}?at=${at}`, (answer) => answer.json())); // null as when the maps show something else by now
    if (state.gone) return;
    stand(state);
    await new Promise((go) => setTimeout(go, Math.max(PAUSE, TIMES * (performance.now() - began))));
  }
  state.asking = false;
}
