// The maps follow controls of the sidebar while they are dragged, and with each key: the server is asked for the picture with a
// control where it stands now, for one at a time, and while an answer is under way, only the newest value waits. The page's run
// follows when the hand rests, and draws the same picture.

const MOVED = "aria-valuetext"; // the attribute of a slider that changes while it is dragged

function watchControls(state) {
  const observer = new MutationObserver(() => controlsMoved(state));
  observer.observe(document, { subtree: true, attributes: true, attributeFilter: [MOVED] });
  return () => observer.disconnect();
}

// [key, value] of each control that stands elsewhere than in a picture
function ahead(data) {
  const now = Object.entries(data.live?.controls ?? {}).map(([key, then]) => [key, standsAt(key) ?? then, then]);
  return now.filter(([, at, then]) => at !== then).map(([key, at]) => [key, at]);
}

const ofKey = (key) => document.querySelector(`.st-key-${key}`);

// The value of a control; undefined if the page does not have it
function standsAt(key) {
  return ofKey(`${key} input[type=range]`)?.valueAsNumber;
}

// Take over what a run has sent; a run that the controls have left behind waits: its picture would be one of the past
function arrive(state, data) {
  const late = state.data?.live?.at && ahead(data).length > 0;
  state.run = data;
  state.waits = late;
  if (!late) show(state, data);
  dim(state);
  controlsMoved(state);
}

function controlsMoved(state) {
  if (!state.data) return;
  if (state.waits && !ahead(state.run).length) arrive(state, state.run);
  const moved = ahead(state.data).length > 0;
  state.root.classList.toggle("qs-behind", moved && state.data.live.at === "");
  if (moved && state.data.live.at) pursue(state);
}

async function pursue(state) {
  if (state.pursuing) return;
  state.pursuing = true;
  for (let moved = ahead(state.data); moved.length && !state.gone; moved = ahead(state.data)) {
    const { data, original } = state, asked = new URLSearchParams([...moved, ["held", data.x_key]]);
    const found = await livePicture(`${document.qsRoutes(data.base)}${data.live.at}?${asked}`);
    // without an answer, the run draws it; and what a run has drawn meanwhile is newer
    if (!found || state.gone || !ahead(state.data).length) break;
    if (!found.arrays.x && found.x_key !== state.data.x_key) continue;
    for (const [name, values] of Object.entries(original)) if (values && !found.arrays[name]) found.arrays[name] = { values };
    show(state, found);
    besideMaps(state, found.beside);
  }
  state.pursuing = false;
}

// What else of the page follows. Streamlit writes its own again with the next run: what it believes to show differs from that
function besideMaps(state, { html, fields, late }) {
  for (const [key, text] of Object.entries(html)) ofKey(`${key} %html%`)?.replaceChildren(document.createRange().createContextualFragment(text));
  for (const [key, text] of Object.entries(fields)) Object.assign(ofKey(`${key} input`) ?? {}, { value: text });
  state.late = late;
  dim(state);
}

// Dim what does not follow while the maps show something else than the run
function dim({ late, data, run }) {
  for (const key of late ?? []) ofKey(key)?.classList.toggle("qs-late", data.number !== run.number);
}

// A picture as `as_bytes` of pages/maps/picture.py writes it; null if there is none
async function livePicture(url) {
  try {
    const got = await fetch(url);
    if (got.status !== 200) return null;
    const bytes = await got.arrayBuffer(), length = new DataView(bytes).getUint32(0, true), data = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    for (const array of Object.values(data.arrays)) array.values = new TYPES[array.dtype](bytes, 4 + length + array.at, array.count);
    return data;
  } catch {
    return null;
  }
}
