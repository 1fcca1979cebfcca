// Fetches what draws the maps, once: a route of ours serves it, and the browser keeps it. As part of the component, Streamlit
// would send it in every run.
let drawing = null, draw = null;

function load(base) {
  const from = (place) => import(new URL(place + "%maps_script%", location.href).href);
  return from(document.qsRoutes(base)).catch(() => from(base)).then((script) => { draw = script.default; }, () => {});
}

export default (component) => {
  if (draw) return draw(component);
  let left = false, leave = null;
  drawing ??= load(component.data[0].base);
  drawing.then(() => {
    if (left) return;
    if (draw) leave = draw(component);
    else component.setTriggerValue("failed", true);
  });
  return () => {
    left = true;
    leave?.();
  };
};
