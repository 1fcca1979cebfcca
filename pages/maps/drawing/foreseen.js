// Pictures before they are asked for. While the hand is on a control, the server is asked for those of the values beside the one that it
// stands at, first for the nearest, then for more at once; a key or a move that takes the control there is painted in its own task, before Streamlit hears of it.
// Each is the server's answer, as any other, and holds for the run that it was asked after.

const LISTS = ["per", "axis", "group", "group_axis"]; // controls, by key: of these the options, while their list is open
const FORESEEN = ["bits", "codes", "mode", ...LISTS];
const WHOLE = 128 * 128, NEAREST = 2; // cells of maps that are asked for at all values of a slider under the pointer, of others once it is gripped; else so many to each side
const STOCK = 12e6; // bytes of pictures in the browser
const UNHEARD = 100, OTHERS = 300; // ms: for Streamlit to take over a value; from a change of another control to the next question
const REFUSED = 60, DOUBLED = 5, SOON = 10; // ms: from a refusal, as when the server has other work, to the next question, doubled so many times; from a look at a busy page
const STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -Infinity, End: Infinity };

const every = new Set(); // the maps of the page, which share one request at a time
let looking = false, refusals = 0, paused = 0; // how many in a row; until when, in ms
let underway = null; // the question that is being asked ahead, and a promise that it is answered

function mountForeseen(state) {
  state.foreseen = state.root.foreseen = new Map(); // also for readers outside, such as the tests
  every.add(state);
  const heard = [["pointerover", look], ["focusin", look], ["keydown", (event) => stepped(state, event)], ["pointerdown", (event) => gripped(state, event)], ["pointermove", (event) => pulled(state, event)], ["pointerup", () => { state.grip = null; }], ["pointercancel", () => { state.grip = null; }], ["click", (event) => others(state, event)], ["input", (event) => others(state, event)]];
  for (const [kind, hear] of heard) document.addEventListener(kind, hear, true);
  return () => {
    every.delete(state);
    for (const [kind, hear] of heard) document.removeEventListener(kind, hear, true);
  };
}

// What a picture depends on, as the browser knows it; `url` asks for it
function question(state, moved) {
  const { data, run } = state, there = new Map([...ahead(state, run), ...moved].map(([key, ends]) => [key, ends.join()])); // the server starts from what the run had
  const asked = new URLSearchParams([...there, ["held", data.x_key]]);
  return { asked: `${asked}`, url: `${document.qsRoutes(data.base)}${data.live.at}?${asked}` };
}

// Show a picture that has been foreseen, if the controls stand there; whether there was one
function showForeseen(state) {
  const moved = state.data?.live?.at ? ahead(state) : [], { asked, url } = moved.length ? question(state, moved) : {}, found = state.foreseen.get(asked);
  if (found) showLive(state, found, url, true);
  return Boolean(found);
}

const forget = (state) => state.foreseen.clear();

// Keep a picture that was asked for after this run, if there is room; null: there is none
function keepPicture(state, run, asked, picture) {
  if (state.run === run && performance.now() > paused && hasRoom(state)) state.foreseen.set(asked, picture);
}

function hasRoom({ foreseen }) {
  let bytes = 0;
  for (const picture of foreseen.values()) bytes += picture?.bytes ?? 0;
  return bytes < STOCK;
}

// Another control: what it changes may be in none of the questions
function others(state, { target }) {
  if (FORESEEN.some((key) => target.closest?.(`.st-key-${key}`)) || (target.closest?.("[role=listbox]") && LISTS.some(isOpen))) return void setTimeout(look, SOON); // a list may open
  forget(state);
  pause(OTHERS);
}

function pause(duration) {
  paused = Math.max(paused, performance.now() + duration);
  setTimeout(look, duration + 1);
}

// The slider under the hand, if it is one that is foreseen
function sliderAt({ target }) {
  const key = FORESEEN.find((name) => target.closest?.(`.st-key-${name}`)), input = key && ofKey(`${key} input[type=range]`);
  return input && !input.disabled ? { key, input } : null;
}

// A key takes the slider to the next value, or to an end
function stepped(state, event) {
  const step = STEPS[event.key], at = step && !event.shiftKey && event.target.type === "range" && sliderAt(event);
  if (at) foresee(state, at, at.input.valueAsNumber + step * (at.input.step || 1));
  else others(state, event);
}

function gripped(state, event) {
  const at = sliderAt(event), track = at?.input.closest("[data-orientation]");
  state.grip = track && event.button === 0 ? { ...at, track, from: event.clientX } : null;
}

// A drag moves the thumb from where it stood once it was gripped
function pulled(state, { clientX, buttons }) {
  const { grip } = state;
  if (!grip || !(buttons & 1)) return;
  const { input, track } = grip, low = Number(input.min), span = Number(input.max) - low, step = Number(input.step) || 1, { width } = track.getBoundingClientRect();
  grip.began ??= (input.valueAsNumber - low) / span * width;
  const part = Math.min(1, Math.max(0, (grip.began + clientX - grip.from) / width));
  foresee(state, grip, low + Math.round(part * span / step) * step);
}

// Paint what a slider will show, which it says itself a moment later
function foresee(state, { key, input }, value) {
  const end = Math.min(Number(input.max), Math.max(Number(input.min), value));
  if (end === input.valueAsNumber && !state.expected) return;
  const own = state.expected = { key, input, ends: [end] };
  if (!showForeseen(state)) state.expected = null;
  else setTimeout(() => { if (state.expected === own) heardOf(state); }, UNHEARD);
}

function heardOf(state) {
  state.expected = null;
  controlsMoved(state);
}

// The ends that a slider will have, until it says so
function expectedOf({ expected }, key) {
  return expected?.key === key && expected.ends[0] !== expected.input.valueAsNumber ? expected.ends : undefined;
}

// Look ahead, until all is foreseen
async function look() {
  if (looking) return;
  looking = true;
  while (true) {
    const open = [...every].filter(underHand), next = open.map(nextOf).find(Boolean);
    if (!next) {
      if (!open.some((state) => state.pursuing || isRunning())) break;
      await new Promise((go) => setTimeout(go, SOON));
    } else await foreseeSome(next);
  }
  looking = false;
}

async function foreseeSome({ state, asked, url }) {
  const { run, original } = state, began = performance.now(), answer = livePicture(url, picturesOf);
  const done = answer.then((found) => {
    refusals = found === undefined ? refusals + 1 : 0;
    if (refusals) pause(REFUSED * 2 ** Math.min(refusals - 1, DOUBLED));
    else for (const [n, picture] of (found ?? asked.map(() => null)).entries()) keepPicture(state, run, asked[n], picture && withOriginal(picture, original));
  });
  underway = { state, asked, done };
  await done;
  underway = null;
  if (!state.grip) await new Promise((go) => setTimeout(go, performance.now() - began)); // a busy server is asked less
}

// The pictures of one answer, as pages/maps/foreseen.py joins them; null for a value that has none
function picturesOf(bytes) {
  const found = [], view = new DataView(bytes);
  for (let at = 0, length; at < bytes.byteLength; at += 4 + length) {
    length = view.getUint32(at, true);
    found.push(length ? pictureOf(bytes, at + 4) : null);
  }
  return found;
}

// Wait for a picture that is being asked for ahead, and show it; whether there was one
async function showUnderway(state, asked) {
  if (underway?.state !== state || !underway.asked.includes(asked)) return false;
  await underway.done;
  return !state.gone && showForeseen(state);
}

const isRunning = () => document.querySelector('%app%[%script_state%="running"]') !== null;
const underHand = ({ gone, data }) => !gone && data?.live?.at && performance.now() > paused && FORESEEN.some(isUnderHand);
const isOpen = (key) => ofKey(`${key} [role=combobox][aria-expanded=true]`) !== null;
const isUnderHand = (key) => LISTS.includes(key) ? isOpen(key) : ofKey(key)?.matches(":hover, :focus-within");

// The next question, or nothing while others are more urgent
function nextOf(state) {
  if (state.pursuing || state.waits || state.playing || isRunning() || !hasRoom(state)) return null;
  for (const key of FORESEEN.filter((name) => state.data.live.controls[name] && isUnderHand(name))) {
    const others = ahead(state).filter(([other]) => other !== key), every = neighbours(state, key).map((end) => ({ end, ...question(state, [...others, [key, [end]]]) }));
    const wanted = every.filter(({ asked }) => !state.foreseen.has(asked)), some = wanted.slice(0, Math.max(NEAREST, 2 * (every.length - wanted.length)));
    if (some.length) return { state, asked: some.map(({ asked }) => asked), url: `${some[0].url}&ahead=${key}:${some.map(({ end }) => end)}` };
  }
  return null;
}

// The other values of a control, the nearest first
function neighbours({ data, grip }, key) {
  const [now] = data.live.controls[key], input = ofKey(`${key} input[type=range]`), { width, height } = data;
  if (LISTS.includes(key)) return [...document.querySelectorAll("[role=listbox] [role=option]")].map(({ textContent }) => numberOf(key, textContent)).filter((end) => end !== now && !Number.isNaN(end));
  if (!input) return [...(ofKey(`${key} [role=radiogroup]`)?.querySelectorAll("[role=radio]") ?? []).keys()].filter((at) => at !== now);
  const step = Number(input.step) || 1, [low, high] = [Number(input.min), Number(input.max)];
  const most = grip || (width * height <= WHOLE && ofKey(key).matches(":hover")) ? (high - low) / step : NEAREST;
  return Array.from({ length: 2 * most }, (_, n) => now + (n % 2 ? -1 : 1) * (Math.floor(n / 2) + 1) * step).filter((end) => end >= low && end <= high);
}
