// The four maps, or fewer: a canvas with the cells and their numbers, over it Plotly's axes with its zoom, and an SVG for
// outlines. Plotly's own heatmaps take several times as long, and every axis is redrawn with them.
// Hover, outlines and keyboard work without a rerun; a picked cell or an opened region goes to Python.

const instances = new WeakMap();

function mount(parent) {
  const root = parent.querySelector(".qs-maps");
  const state = { root, plot: root.querySelector(".qs-plot"), canvas: root.querySelector("canvas"), tip: root.querySelector(".qs-tip"), live: root.querySelector(".qs-live"), steps: root.querySelector(".qs-steps"), cursor: null, pinned: null, answers: new Map(), tall: 0, drawing: Promise.resolve() };
  // the size of the window and the sidebar and the content above the maps determine their size
  state.refit = () => {
    if (state.data && root.clientWidth && placed(state, place(state)) !== state.placed) draw(state);
  };
  state.observer = new ResizeObserver(state.refit);
  state.observer.observe(root);
  const page = root.closest("%block%");
  if (page) state.observer.observe(page);
  window.addEventListener("resize", state.refit);
  root.addEventListener("pointermove", (event) => hover(state, event));
  root.addEventListener("pointerleave", () => point(state, null));
  root.addEventListener("pointerdown", (event) => press(state, event), true);
  root.addEventListener("touchstart", (event) => { if (state.grabbed) event.stopPropagation(); }, { capture: true, passive: true });
  root.addEventListener("keydown", (event) => key(state, event));
  root.addEventListener("blur", () => point(state, null));
  state.unmountSteps = mountSteps(state);
  state.unwatch = watchControls(state);
  state.unmountForeseen = mountForeseen(state);
  state.unmountPlay = mountPlay(state);
  state.unmountEnds = mountEnds(state);
  root.qsDrawn = () => drawn(state); // for pages/browser/picture.js
  return state;
}

// Take over what Python has sent, computing again only what changed
function take(state, data) {
  const values = data.arrays_key, colours = JSON.stringify([values, data.colours]);
  retain(state, data);
  state.data = data;
  if (state.cursor && !shows(data, state.cursor)) point(state, null);
  if (state.valuesOf !== values) {
    state.valuesOf = values;
    const arrays = Object.fromEntries(Object.entries(data.arrays).map(([name, array]) => [name, decode(array)]));
    state.original = { x: arrays.x, inside: arrays.inside };
    state.largest = elements(data, arrays, "");
    state.worst = arrays.worst_x ? elements(data, arrays, "worst_") : state.largest;
    state.values = Object.fromEntries(data.maps.map((name) => [name, (name === "error" && arrays.rms) || elementsOf(state, name)[name]]));
    // when two results are compared: |this error| - |the other's|
    state.other = arrays.other?.map((xHat, n) => state.worst.x[n] - xHat);
    state.rms = arrays.rms;
    if (state.other) state.values.error = state.other.map((error, n) => Math.abs(state.worst.error[n]) - Math.abs(error));
  }
  if (state.coloursOf !== colours) {
    state.coloursOf = colours;
    // on the canvases of the last but one, since new ones take long: the maps glide from the last
    const { pictures, spare } = state;
    state.pictures = Object.fromEntries(data.maps.map((name) => [name, picture(state.values[name], data.colours[name], data, pictures?.[name], spare?.[name])]));
    state.spare = pictures;
  }
}

function draw(state) {
  const { data, root } = state;
  if (!root.clientWidth) return;
  // all that is measured comes before all that is written: what is measured after a write is laid out once more
  state.boxes = place(state);
  state.placed = placed(state, state.boxes);
  state.look = { ...style(root), width: root.clientWidth };
  paint(state);
  root.style.height = state.boxes[0].total + "px"; // content below must not move when plotly.js arrives
  root.classList.remove("qs-empty");
  scales(state);
  outline(state);
  follow(state);
  if (!state.P) return;
  axes(state);
  state.drawing = state.drawing.then(() => { if (!state.gone) Object.assign(root.dataset, { painted: data.painted, number: data.number }); });
}

// Show a picture, of a run or of a control that is being dragged
function show(state, data) {
  state.root.setAttribute("aria-label", data.alt);
  state.root.classList.toggle("qs-large", Boolean(data.large));
  state.root.classList.toggle("qs-drags", switched());
  const { data: before, pictures } = state;
  take(state, data);
  glide(state, before, pictures);
  draw(state);
  for (const overview of document.getElementsByClassName("qs-overview")) overview.hidden = true; // of pages/maps/overview.py
  if (state.cursor) tell(state);
}

// Draw everything that moves when the visitor zooms, except Plotly's axes
function overlay(state) {
  paint(state);
  outline(state);
  follow(state);
}

export default function (component) {
  const { data: [data], parentElement, setTriggerValue } = component;
  let state = instances.get(parentElement);
  if (!state) {
    state = mount(parentElement);
    instances.set(parentElement, state);
    document.qsPictures?.();
  }
  state.emit = setTriggerValue;
  arrive(state, data);
  answered(state);
  if (!state.P) document.qsPlotly(data.base).then(
    (P) => { state.P = P; if (!state.gone) draw(state); },
    () => state.gone || setTriggerValue("failed", true),
  );
  return () => {
    state.gone = true;
    state.observer.disconnect();
    window.removeEventListener("resize", state.refit);
    state.unmountSteps();
    state.unwatch();
    state.unmountForeseen();
    state.unmountPlay();
    state.unmountEnds();
    // plotly.js continues pending work even after a purge, and would fail on removed nodes
    const purge = () => state.P?.purge(state.plot);
    state.drawing.then(purge, purge);
    instances.delete(parentElement);
  };
}
