// The treemap of a checkpoint: a click on a tile is sent to Python; a click on a module zooms in, as in Plotly.

const treemaps = new WeakMap();

function fit(state) {
  const { width, height } = state.root.getBoundingClientRect();
  if (!state.P || state.gone || !width || !height) return;
  const size = `${Math.floor(width)} ${Math.floor(height)} ${state.figure}`;
  if (state.size === size) return;
  state.size = size;
  const { data, layout } = state.data.figure;
  const config = { displayModeBar: false, showSendToCloud: false, responsive: false };
  state.drawing = state.P.react(state.root, data, { ...layout, width: Math.floor(width), height: Math.floor(height) }, config).then(() => {
    if (state.gone || state.listening) return;
    state.listening = true;
    state.root.on("plotly_treemapclick", (event) => {
      const tile = Number(event.points[0].id);
      if (!state.data.picks[tile]) return true;
      state.emit("picked", tile);
      return false;
    });
  });
  state.drawing.then(() => { state.root.dataset.painted = state.figure; });
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  let state = treemaps.get(parentElement);
  if (!state) {
    state = { root: parentElement.querySelector(".qs-treemap") };
    state.observer = new ResizeObserver(() => fit(state));
    state.observer.observe(state.root);
    treemaps.set(parentElement, state);
    document.qsPictures?.();
  }
  state.emit = setTriggerValue;
  state.data = data;
  state.figure = data.key;
  state.root.setAttribute("aria-label", data.alt);
  document.qsPlotly(data.base).then(
    (P) => { state.P = P; fit(state); },
    () => state.gone || setTriggerValue("failed", true),
  );
  return () => {
    state.gone = true;
    state.observer.disconnect();
    const purge = () => state.P?.purge(state.root);
    Promise.resolve(state.drawing).then(purge, purge);
    treemaps.delete(parentElement);
  };
}
