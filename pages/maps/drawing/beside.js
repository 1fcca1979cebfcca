// What follows on the page beside the maps, as `BesideMaps` of pages/maps/beside.py tells.

const SELDOM = 250; // ms between what takes the browser long to lay out

// Streamlit writes its own again with the next run: what it believes to show differs from that
function besideMaps(state, { html, resting, fields, bands, late }) {
  state.ofRun ??= standing(html, resting, fields, late);
  fill(html);
  for (const [key, text] of Object.entries(fields)) Object.assign(ofKey(`${key} input`) ?? {}, { value: text });
  for (const [key, ends] of Object.entries(bands)) band(key, ends);
  state.late = late;
}

// What stands there, as `besideMaps` takes it
function standing(html, resting, fields, late) {
  const each = (keys, read) => Object.fromEntries(keys.map((key) => [key, read(key) ?? ""]));
  return { html: each([...Object.keys(html), ...resting], (key) => ofKey(`${key} %html%`)?.innerHTML), resting: [], fields: each(Object.keys(fields), (key) => ofKey(`${key} input`)?.value), bands: {}, late };
}

// Show again what the run showed, since a drag was given up
function giveUp(state) {
  show(state, state.run);
  if (state.ofRun) besideMaps(state, state.ofRun);
  dim(state);
}

function fill(html) {
  for (const [key, text] of Object.entries(html)) {
    const place = ofKey(`${key} %html%`), now = document.createRange().createContextualFragment(text);
    if (!place) continue;
    const pairs = [];
    if (alike(place.childNodes, now.childNodes, pairs)) pairs.forEach(([before, after]) => renew(before, after));
    else place.replaceChildren(now);
  }
}

// Whether both are the same elements, whatever their texts and the values of their attributes; adds their pairs
function alike(before, now, pairs) {
  return before.length === now.length && [...before].every((node, i) => {
    const other = now[i], names = ({ attributes }) => [...(attributes ?? [])].map(({ name }) => name).join();
    pairs.push([node, other]);
    return node.nodeName === other.nodeName && names(node) === names(other) && alike(node.childNodes, other.childNodes, pairs);
  });
}

// Only what differs is written, since only that is laid out and painted again
function renew(before, now) {
  if (before.nodeType === Node.TEXT_NODE && before.data !== now.data) before.data = now.data;
  for (const { name, value } of now.attributes ?? []) if (before.getAttribute(name) !== value) before.setAttribute(name, value);
}

// After a picture: what follows less often, where it is seen, until it is that of the picture
function rest(state) {
  if (!state.resting && state.data.beside?.resting.length) state.resting = setTimeout(resting, SELDOM, state);
}

async function resting(state) {
  const { data } = state, isShown = () => !state.gone && state.data !== state.run; // a run draws all
  const seen = isShown() && data.beside.resting.some(inWindow), found = seen && await got(`${data.url}&part=resting`, (answer) => answer.json());
  state.resting = null;
  if (!isShown()) return;
  if (found) fill(found);
  if (!seen || state.data !== data) rest(state);
}

function inWindow(key) {
  const { top, bottom } = ofKey(key)?.getBoundingClientRect() ?? { top: Infinity };
  return top < window.innerHeight && bottom > 0;
}

// Mark a range in a chart, which only a run draws
function band(key, ends) {
  const plot = ofKey(`${key} .js-plotly-plot`), layout = plot?._fullLayout;
  if (!layout) return;
  const mark = plot.querySelector(".qs-band") ?? plot.appendChild(Object.assign(document.createElement("div"), { className: "qs-band" }));
  const [left, right] = ends.map((end) => Math.max(0, Math.min(layout.xaxis._length, layout.xaxis.l2p(end))) + layout.xaxis._offset);
  Object.assign(mark.style, Object.fromEntries(Object.entries({ left, width: right - left, top: layout.yaxis._offset, height: layout.yaxis._length }).map(([name, px]) => [name, `${px}px`])));
}

// Dim what does not follow while the maps show something else than the run
function dim({ late, data, run }) {
  if (data.number === run.number) for (const mark of document.querySelectorAll(".qs-band")) mark.remove();
  for (const key of late ?? []) ofKey(key)?.classList.toggle("qs-late", data.number !== run.number);
}

// What is read of an answer; null if there is none
async function got(url, read) {
  try {
    const answer = await fetch(url);
    return answer.status === 200 ? await read(answer) : null;
  } catch {
    return null;
  }
}
