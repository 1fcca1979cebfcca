// The maps follow controls of the sidebar while they are dragged, and with each press and key: the server is asked for the picture with a
// control where it stands now, for one at a time, and while an answer is under way, only the newest value waits. The page's run
// follows when the hand rests, and draws the same picture.

const MOVED = ["aria-valuetext", "aria-checked", "aria-activedescendant", "aria-expanded"]; // attributes that change at once: of a slider, an option, a list
const CONTROL = "input[type=range], input[type=number], input[role=combobox], input[type=checkbox], .st-key-block input, [role=radiogroup]", NEAR = 1e-6; // relative: what Python has of a slider's end has six digits

// The controls that the visitor has touched: others may stand beside the value that Python has, for want of a step there
const touched = new WeakSet();

function watchControls(state) {
  state.hand = {}; // what stands elsewhere than its control: a width that is played, a value that is dragged, by key
  const observer = new MutationObserver(() => controlsMoved(state));
  observer.observe(document, { subtree: true, attributes: true, attributeFilter: MOVED });
  const touch = ({ target }) => {
    for (const control of target.closest?.("%element%")?.querySelectorAll(CONTROL) ?? []) {
      touched.add(control);
      for (const key of Object.keys(state.hand)) if (control.closest(`.st-key-${key}`)) delete state.hand[key];
    }
  };
  const typed = () => requestAnimationFrame(() => controlsMoved(state)); // no attribute of a number changes while it is typed
  const heard = [["pointerdown", touch], ["keydown", touch], ["input", touch], ["keydown", typed], ["input", typed], ["click", typed]];
  for (const [kind, hear] of heard) document.addEventListener(kind, hear, true);
  return () => {
    observer.disconnect();
    for (const [kind, hear] of heard) document.removeEventListener(kind, hear, true);
  };
}

// [key, ends] of each control that stands elsewhere than in a picture
function ahead(state, data = state.data) {
  const apart = (ends, then) => ends.some((end, i) => Math.abs(end - then[i]) > NEAR * Math.max(Math.abs(end), Math.abs(then[i])));
  return Object.entries(data.live?.controls ?? {}).map(([key, then]) => [key, expectedOf(state, key) ?? state.hand[key] ?? standsAt(key), then]).filter(([, ends, then]) => ends.length === then.length && apart(ends, then));
}

const ofKey = (key) => document.querySelector(`.st-key-${key}`);

// The ends of a slider, a number, or the place of the chosen option, in an open list of the one that the arrows are at; none if the visitor has not touched the control, or if
// Python will not get its number
function standsAt(key) {
  const chosen = (group) => [...group.querySelectorAll("[role=radio]")].findIndex((option) => option.ariaChecked === "true");
  return [...document.querySelectorAll(`.st-key-${key} :is(${CONTROL})`)].filter((control) => touched.has(control) && !outside(control)).flatMap((control) => {
    if (key === "block") return lengths(control.value || control.placeholder);
    if (control.type === "checkbox") return Number(control.checked);
    return control.getAttribute("role") === "combobox" ? listed(key, control) : control.valueAsNumber ?? chosen(control);
  });
}

// Of a block's shape, such as 2x3, its lengths; NaN for what is not typed yet
const lengths = (text) => text.toLowerCase().split(/[x×,]/).map((length) => (length.trim() ? Number(length) : NaN));

// Of a list, the number that is written there, or the place of its words; NaN, which no control stands at, for others
function listed(key, field) {
  const option = document.getElementById(field.getAttribute("aria-activedescendant"));
  return numberOf(key, option?.textContent ?? (field.value || field.placeholder));
}

// What Python has of an option's words
function numberOf(key, words) {
  const place = document.qsGranularities.indexOf(words.trim());
  return key !== "per" ? parseFloat(words) : place < 0 ? NaN : place;
}

const outside = ({ validity }) => validity?.rangeUnderflow || validity?.rangeOverflow;

// Take over what a run has sent; a run that the controls have left behind waits: its picture would be one of the past
function arrive(state, data) {
  const late = state.data?.live?.at && ahead(state, data).length > 0;
  if (state.run !== data) forget(state);
  state.run = data;
  state.waits = late;
  if (!late) {
    state.ofRun = null;
    show(state, data);
  }
  if (!late && !state.playing) state.hand = {};
  dim(state);
  controlsMoved(state);
  look();
}

function controlsMoved(state) {
  if (!state.data) return;
  if (state.waits && !ahead(state, state.run).length) arrive(state, state.run);
  const moved = ahead(state).length > 0;
  state.root.classList.toggle("qs-behind", moved && state.data.live.at === "");
  if (moved && state.data.live.at && !showForeseen(state)) pursue(state);
}

async function pursue(state) {
  if (state.pursuing) return;
  state.pursuing = true;
  let last = "";
  for (let moved = ahead(state); moved.length && !state.gone; moved = ahead(state)) {
    const { original, run } = state, { asked, url } = question(state, moved);
    if (asked === last) break; // a number with more digits than Python takes
    last = asked;
    if (await showUnderway(state, asked)) continue;
    const found = await livePicture(url);
    // without an answer, the run draws it; and what a run has drawn meanwhile is newer
    if (!found || state.gone || !ahead(state).length) break;
    if (!found.arrays.x && found.x_key !== state.data.x_key) continue;
    withOriginal(found, original);
    if (moved.every(([key]) => FORESEEN.includes(key))) keepPicture(state, run, asked, found); // a hand goes to and fro
    showLive(state, found, url);
  }
  state.pursuing = false;
  look();
}

// A picture with what the browser had of it
function withOriginal(found, original) {
  for (const [name, values] of Object.entries(original)) if (values && !found.arrays[name]) found.arrays[name] = { values };
  return found;
}

// Show a picture of the route, and what follows with it; `url`: what was asked; `later`: the maps are to be seen before what follows
function showLive(state, found, url, later = false) {
  found.url = url;
  show(state, found);
  if (!later) followMaps(state, found);
  else requestAnimationFrame(() => setTimeout(() => { if (state.data === found && !state.gone) followMaps(state, found); }));
}

function followMaps(state, found) {
  besideMaps(state, found.beside);
  dim(state);
  rest(state);
}

// A picture as `as_bytes` of pages/maps/picture.py writes it; null if there is none, undefined if nobody answers now. `fetch` tells of an answer and of its bytes one after
// the other, and each waits behind what the page does meanwhile
const livePicture = (url, read = pictureOf) => new Promise((resolve) => {
  const asked = new XMLHttpRequest();
  asked.open("GET", url);
  asked.responseType = "arraybuffer";
  asked.onload = () => resolve(asked.status === 200 ? read(asked.response) : asked.status === 400 ? null : undefined);
  asked.onerror = () => resolve(undefined);
  asked.send();
});

function pictureOf(bytes, at = 0) {
  const length = new DataView(bytes).getUint32(at, true), start = at + 4, data = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, start, length)));
  data.bytes = 4 + length;
  for (const array of Object.values(data.arrays)) {
    array.values = new TYPES[array.dtype](bytes, start + length + array.at, array.count);
    data.bytes += array.values.byteLength;
  }
  return data;
}
