// The treemap of a checkpoint: a click on a tile is sent to Python; a click on a module zooms in, as in Plotly.

const treemaps = new WeakMap();

// The error of a tensor as the texture of its tile: a pattern of the tile's own size, which moves with it as Plotly zooms
const SVG = "http://www.w3.org/2000/svg";
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function made(tag, attributes, ...inside) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

function picture([rows, columns, text], palette) {
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows }), context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  bytesOf(text).forEach((place, n) => image.data.set([...palette.subarray(3 * place, 3 * place + 3), 255], 4 * n));
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function textures({ data, patterns }) {
  const palette = bytesOf(data.palette), whole = { width: 1, height: 1 };
  patterns.replaceChildren(...Object.entries(data.textures).map(([tile, texture]) => made("pattern", { id: `qs-tile-${tile}`, patternContentUnits: "objectBoundingBox", ...whole },
    made("image", { href: picture(texture, palette), preserveAspectRatio: "none", style: "image-rendering: pixelated", ...whole }))));
}

// Plotly colors a tile anew whenever it draws or zooms
function lay({ root, data }) {
  for (const slice of root.querySelectorAll(".slice")) {
    const tile = slice.__data__?.data?.data?.id, surface = slice.querySelector("path.surface");
    if (!surface) continue;
    slice.classList.toggle("qs-textured", tile in data.textures);
    if (tile in data.textures && !surface.style.fill.includes("qs-tile")) surface.style.fill = `url(#qs-tile-${tile})`;
  }
}

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
  state.drawing.then(() => {
    lay(state);
    state.root.dataset.painted = state.figure;
  });
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  let state = treemaps.get(parentElement);
  if (!state) {
    state = { root: parentElement.querySelector(".qs-treemap") };
    state.observer = new ResizeObserver(() => fit(state));
    state.observer.observe(state.root);
    state.patterns = made("svg", { width: 0, height: 0, style: "position: absolute" });
    parentElement.append(state.patterns);
    state.colors = new MutationObserver(() => lay(state));
    state.colors.observe(state.root, { subtree: true, childList: true, attributes: true, attributeFilter: ["style"] });
    treemaps.set(parentElement, state);
    document.qsPictures?.();
  }
  state.emit = setTriggerValue;
  state.data = data;
  textures(state);
  state.figure = data.key;
  state.root.setAttribute("aria-label", data.alt);
  document.qsPlotly(data.base).then(
    (P) => { state.P = P; fit(state); },
    () => state.gone || setTriggerValue("failed", true),
  );
  return () => {
    state.gone = true;
    state.observer.disconnect();
    state.colors.disconnect();
    state.patterns.remove();
    const purge = () => state.P?.purge(state.root);
    Promise.resolve(state.drawing).then(purge, purge);
    treemaps.delete(parentElement);
  };
}
