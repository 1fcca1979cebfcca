// A lesson's figure that a hand moves: its handles, the numbers of its sentences, and the controls beside it. The server is asked for the
// step with the numbers where they stand now, one request at a time and always for the newest; the page's run follows when the hand
// rests, and draws the same.

const DRAWN_FOR = 14;            // px of the text for which figures are drawn: lesson.css enlarges them as the page's text
const RESTS = 400;               // ms without a key
const WAY = 300, LONGEST = 24;   // px along which a number in a sentence runs through its range, and the most for one step
const KEYS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
const NEAR = 1e-6;

const states = new WeakMap();

function mount(parent) {
  const root = parent.querySelector(".qs-hand"), plot = document.createElement("div");
  plot.className = "qs-plot";
  plot.ariaHidden = "true";
  root.append(plot);
  const state = { root, plot, hand: {}, handles: [], touched: new Set() };
  const refit = () => draw(state), observer = new ResizeObserver(refit);
  const place = root.closest(".st-key-lesson_chart");
  if (place) observer.observe(place);
  const controls = new MutationObserver(() => {
    controlsMoved(state);
    if (document.activeElement === document.body) scrub(state.focused)?.focus({ preventScroll: true }); // its sentence was written again
  });
  controls.observe(root.closest("%block%") ?? document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-valuetext"] });
  const heard = [["pointerdown", (event) => pressed(state, event)], ["keydown", (event) => keyed(state, event)], ["input", () => controlsMoved(state)], ["focusin", ({ target }) => (state.focused = target.closest?.(".qs-scrub")?.dataset.key)]];
  for (const [kind, hear] of heard) document.addEventListener(kind, hear, true);
  state.unmount = () => {
    state.gone = true;
    observer.disconnect();
    controls.disconnect();
    for (const [kind, hear] of heard) document.removeEventListener(kind, hear, true);
  };
  return state;
}

// --- What is shown

async function draw(state) {
  const { root, plot, shown } = state, place = root.closest(".st-key-lesson_chart");
  if (!shown || !place?.clientWidth) return;
  if (state.drawing) return void (state.again = true);
  state.drawing = true;
  do {
    state.again = false;
    const { data, layout } = state.shown.figure, times = parseFloat(getComputedStyle(document.documentElement).fontSize) / DRAWN_FOR;
    const [width, height] = [place.clientWidth, place.clientHeight].map((px) => Math.floor(px / times));
    Object.assign(root.style, { width: `${width}px`, height: `${height}px` });
    const P = await document.qsPlotly(state.base);
    if (state.gone) return;
    await P.react(plot, data, { ...layout, width, height, autosize: false }, { displayModeBar: false });
    placeHandles(state);
    root.dataset.drawn = JSON.stringify(state.shown.values);
  } while (state.again && !state.gone);
  state.drawing = false;
}

function show(state, shown) {
  state.shown = shown;
  state.root.ariaLabel = shown.words;
  for (const [key, text] of Object.entries(shown.html)) {
    const place = document.querySelector(`.st-key-${key} %html%`);
    if (place && place.innerHTML !== text) place.replaceChildren(document.createRange().createContextualFragment(text));
  }
  draw(state);
}

const scrub = (key) => document.querySelector(`.qs-scrub[data-key="${key}"]`);

function placeHandles(state) {
  const { root, plot, shown, handles } = state, { xaxis, yaxis } = plot._fullLayout;
  while (handles.length > shown.handles.length) handles.pop().remove();
  shown.handles.forEach(({ key, y, times, name, unit }, i) => {
    handles[i] ??= root.appendChild(Object.assign(document.createElement("div"), { className: "qs-handle qs-new", tabIndex: 0, role: "slider" }));
    const made = handles[i], value = state.hand[key] ?? shown.values[key], [low, high] = shown.numbers[key];
    Object.assign(made.dataset, { key, times });
    made.classList.toggle("qs-tall", y === null);
    made.title = made.ariaLabel = `${name}: drag, or press the arrow keys`;
    Object.assign(made, { ariaValueMin: low, ariaValueMax: high, ariaValueNow: value, ariaValueText: `${value} ${unit}`.trim() });
    const top = y === null ? yaxis._offset : yaxis._offset + yaxis.l2p(y);
    Object.assign(made.style, { left: `${xaxis._offset + xaxis.l2p(times * value)}px`, top: `${top}px`, height: y === null ? `${yaxis._length}px` : "" });
  });
}

// --- What the hand does

function move(state, key, value) {
  const [low, high, step] = state.shown.numbers[key], digits = (String(step).split(".")[1] ?? "").length;
  const at = Number(Math.max(low, Math.min(high, low + Math.round((Math.max(low, Math.min(high, value)) - low) / step) * step)).toFixed(digits));
  if (at === (state.hand[key] ?? state.shown.values[key])) return;
  state.touched.delete(key);
  state.hand[key] = at;
  if (state.plot._fullLayout) placeHandles(state);
  pursue(state);
}

function rest(state) {
  state.held = false;
  if (Object.keys(state.hand).length) state.emit("moved", { ...state.hand });
}

function pressed(state, event) {
  const made = event.target.closest?.(".qs-handle, .qs-scrub"), control = event.target.closest?.("%element%");
  for (const key of Object.keys(state.shown?.numbers ?? {})) if (control?.closest(`.st-key-${key}`)) state.touched.add(key);
  if (!made && !event.target.closest?.(".qs-scrub")) state.focused = null;
  if (!made || event.button || !state.shown?.numbers[made.dataset.key]) return;
  event.preventDefault();
  made.focus({ preventScroll: true });
  const { key } = made.dataset, times = Number(made.dataset.times), started = event.clientX, from = state.hand[key] ?? state.shown.values[key];
  const [low, high, step] = state.shown.numbers[key], seen = state.plot.getBoundingClientRect(), { xaxis } = state.plot._fullLayout ?? {};
  const along = made.classList.contains("qs-handle")
    ? (px) => xaxis.p2l(xaxis.l2p(times * from) + (px * state.plot.offsetWidth) / seen.width) / times
    : (px) => from + Math.round(px / Math.max(1, Math.min(LONGEST, (WAY * step) / (high - low)))) * step;
  state.held = true;
  state.handles.forEach((other) => other.classList.remove("qs-new"));
  made.classList.add("qs-held");
  const moved = ({ clientX }) => move(state, key, along(clientX - started));
  const end = () => {
    for (const [kind, hear] of heard) document.removeEventListener(kind, hear, true);
    made.classList.remove("qs-held");
    rest(state);
  };
  const heard = [["pointermove", moved], ["pointerup", end], ["pointercancel", end]];
  for (const [kind, hear] of heard) document.addEventListener(kind, hear, true);
}

function keyed(state, event) {
  const made = event.target.closest?.(".qs-handle, .qs-scrub"), key = made?.dataset.key, steps = KEYS[event.key];
  for (const own of Object.keys(state.shown?.numbers ?? {})) if (event.target.closest?.(`.st-key-${own}`)) state.touched.add(own);
  if (!made || steps === undefined || !state.shown?.numbers[key]) return;
  event.preventDefault();
  event.stopPropagation();
  const [low, high, step] = state.shown.numbers[key], from = state.hand[key] ?? state.shown.values[key];
  state.held = true;
  move(state, key, Number.isFinite(steps) ? from + steps * step : steps < 0 ? low : high);
  clearTimeout(state.resting);
  state.resting = setTimeout(() => rest(state), RESTS);
}

// Where the controls stand that the visitor has touched: Streamlit sends them to the run itself
function controlsMoved(state) {
  if (!state.shown) return;
  const before = JSON.stringify(state.hand);
  for (const key of state.touched) {
    const control = document.querySelector(`.st-key-${key} :is(input[type=range], input[type=number])`), value = control?.valueAsNumber;
    const [low, high] = state.shown.numbers[key];
    if (value >= low && value <= high) state.hand[key] = value;
  }
  if (JSON.stringify(state.hand) !== before) pursue(state);
}

async function pursue(state) {
  if (state.pursuing || !state.at) return;
  state.pursuing = true;
  for (let last = ""; !state.gone;) {
    const { run } = state, asked = `${new URLSearchParams({ ...run.values, ...state.hand })}`;
    if (asked === last) break;
    last = asked;
    const got = await fetch(`${document.qsRoutes(state.base)}${state.at}?${asked}`).then((answer) => (answer.status === 200 ? answer.json() : null), () => null);
    if (!got || state.gone) break; // then the run draws it
    if (state.run !== run) last = ""; // of another step, perhaps
    else if (Object.keys(state.hand).length) show(state, got);
  }
  state.pursuing = false;
}

// What a run sends; one that the hand has left behind waits for the next
function arrive(state, data) {
  const ahead = Object.entries(state.hand).some(([key, value]) => Math.abs(value - data.values[key]) > NEAR);
  Object.assign(state, { at: data.at, base: data.base, run: data });
  if (state.held || (ahead && state.shown)) return;
  state.hand = {};
  state.touched.clear();
  show(state, data);
}

export default function ({ data, parentElement, setTriggerValue }) {
  const state = states.get(parentElement) ?? mount(parentElement);
  states.set(parentElement, state);
  state.emit = setTriggerValue;
  arrive(state, JSON.parse(data[0]));
  return () => {
    state.unmount();
    states.delete(parentElement);
  };
}
