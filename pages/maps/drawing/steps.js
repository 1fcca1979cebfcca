// The arithmetic of the chosen element on windows where none stands beside the maps: shown after a pick until it is closed, if
// the page's copy is outside the window. The maps keep their places, and the picked cell stays in view: it is to the right of
// them if there is room, else at the bottom of the window or, if it would cover the cell there, above it. On narrow windows,
// where the maps are longer than the window, the picked map is scrolled above it.

const SHEET = 768;             // px of the window's width: up to here it is as wide as the window
const BESIDE = 280, APART = 16; // px: minimum width to the right of the maps, and the distance from them
const CLEAR = 6;               // px from the picked cell
const HEADER = 60;             // px of the window that the header covers

function mountSteps(state) {
  const { steps, root } = state;
  steps.querySelector("button").addEventListener("click", () => close(state));
  // a click, not a press: on a phone, a press also begins a scroll; the maps have their own clicks
  const beside = (event) => { if (!root.contains(event.target) && !column(state)) close(state); };
  const escape = (event) => { if (event.key === "Escape") close(state); };
  document.addEventListener("click", beside, true);
  document.addEventListener("keydown", escape, true);
  return () => {
    document.removeEventListener("click", beside, true);
    document.removeEventListener("keydown", escape, true);
  };
}

function close(state) {
  if (column(state)) unpin(state);
  else if (state.following) follow(state, false);
}

// Show or hide the arithmetic
function follow(state, wanted = state.following) {
  if (column(state)) return stand(state);
  const { data, steps } = state, { title } = data.arithmetic ?? {};
  steps.classList.remove("qs-standing", "qs-late");
  document.documentElement.classList.remove("qs-stands");
  state.following = wanted && Boolean(title);
  if (!state.following || (steps.hidden && copyInSight(data))) {
    steps.hidden = true;
  } else {
    const opened = steps.hidden, narrow = window.innerWidth <= SHEET;
    steps.hidden = false;
    write(state, data.arithmetic);
    if (narrow || !beside(state)) dock(state, narrow);
    if (narrow && opened) uncover(state, steps.getBoundingClientRect().top);
  }
}

function write(state, arithmetic) {
  const { steps } = state;
  if (state.written === arithmetic) return;
  state.written = arithmetic;
  steps.querySelector("b").textContent = arithmetic.title;
  steps.querySelector("pre").replaceChildren(...arithmetic.lines.map(written));
}

// A line of aligned columns: name, formula, value
function written(line) {
  const made = document.createElement("span"), [name, ...parts] = line.split(/ {2,}/), value = parts.pop();
  const part = (tag, textContent) => Object.assign(document.createElement(tag), { textContent });
  if (value === undefined) made.append(name);
  else made.append(part("i", name), ...(parts.length ? [`${parts.join("  ")}  `] : []), part("b", value));
  return made;
}

function copyInSight({ arithmetic }) {
  const copy = document.querySelector("pre." + arithmetic.elsewhere)?.getBoundingClientRect();
  return Boolean(copy?.height) && copy.bottom <= window.innerHeight;
}

// To the right of the maps; whether it fits there
function beside({ root, steps, boxes, data }) {
  const { top } = root.getBoundingClientRect();
  const left = Math.max(...boxes.map((box) => box.left + box.width)) + BAR * zoom(data) + APART, room = root.clientWidth - left;
  if (room < BESIDE) return false;
  const hidden = Math.max(0, HEADER - top); // px of the maps that are scrolled out of sight
  set(steps, { position: "absolute", left, top: hidden, width: room });
  return steps.offsetHeight <= window.innerHeight - top - hidden - FOOT;
}

// At the bottom of the window, or above the picked cell
function dock(state, narrow) {
  const { root, steps } = state, { left, width, top } = root.getBoundingClientRect(), hidden = Math.max(0, HEADER - top);
  set(steps, { position: "fixed", left: narrow ? 0 : left, bottom: 0, width: narrow ? window.innerWidth : width, maxHeight: window.innerHeight * (narrow ? 0.45 : 0.5) });
  const [high, low] = narrow ? [0, 0] : pickedRows(state);
  if (top + low + CLEAR > steps.getBoundingClientRect().top && high - CLEAR > hidden)
    set(steps, { position: "absolute", left: 0, top: hidden, width, maxHeight: high - CLEAR - hidden });
}

// Where the picked cell begins and ends, in px from the top of the maps; 0 if it is not shown
function pickedRows(state) {
  const { data, pickedIn } = state;
  if (!data.selected) return [0, 0];
  const [r0, r1] = cell(data, data.selected), f = frames(state)[pickedIn ?? 0];
  return [f.top + f.y.px(r0), f.top + f.y.px(r1)];
}

function set(steps, sizes) {
  const px = Object.entries(sizes).map(([name, size]) => [name, typeof size === "number" ? `${size}px` : size]);
  Object.assign(steps.style, { top: "auto", bottom: "auto", maxHeight: "none", ...Object.fromEntries(px) });
}

// On narrow windows, scroll the picked map above the page's own sheet
function answered(state) {
  if (state.awaited && window.innerWidth <= SHEET) uncover(state, window.innerHeight / 2);
  state.awaited = false;
}

// Scroll the picked map above a sheet
function uncover({ root, boxes, data, pickedIn }, sheet) {
  const box = boxes[pickedIn ?? 0], covered = root.getBoundingClientRect().top + box.top + box.height + edges(data)[1] - sheet;
  if (covered > 0) root.closest("%main%")?.scrollBy({ top: covered, behavior: "smooth" });
}
