// The ends of the range are dragged in a histogram: each has a grip there, and the maps follow as they follow controls. Of a symmetric
// range, both ends move.

const RANGE = "ends", CHARTS = ["distribution_chart", "rng_histogram"]; // keys

function mountEnds(state) {
  const place = () => everyGrip(state);
  const heard = ["pointermove", "pointerdown", "scroll"];
  for (const kind of heard) document.addEventListener(kind, place, true);
  return () => { for (const kind of heard) document.removeEventListener(kind, place, true); };
}

const everyGrip = (state) => CHARTS.forEach((key) => grips(state, key));
const bothEnds = (ends) => (ends.length === 1 ? [-ends[0], ends[0]] : ends);

// Put the grips where the ends are
function grips(state, key) {
  const plot = ofKey(`${key} .js-plotly-plot`), layout = plot?._fullLayout, ends = state.hand[RANGE] ?? state.data?.live?.controls[RANGE];
  if (!layout?.xaxis?._length) return;
  const made = [...plot.querySelectorAll(":scope > .qs-grip")];
  if (!ends || !state.data.live.at) return made.forEach((grip) => grip.remove());
  if (!made.length) made.push(...[0, 1].map((side) => grip(state, plot, side)));
  const { xaxis, yaxis } = layout, range = bothEnds(ends).map((end) => minus(String(Number(end.toPrecision(4))))).join(" … ");
  bothEnds(ends).forEach((end, side) => {
    const px = xaxis.l2p(end), inside = px >= -1 && px <= xaxis._length + 1;
    made[side].title = `Range ${range}, which sets the scale: drag to change it`; // codes may represent a step more, or less
    Object.assign(made[side].style, { left: `${xaxis._offset + px}px`, top: `${yaxis._offset}px`, height: `${yaxis._length}px`, display: inside ? "" : "none" });
  });
}

function grip(state, plot, side) {
  const made = plot.appendChild(Object.assign(document.createElement("div"), { className: "qs-grip" }));
  made.addEventListener("pointerdown", (event) => pull(state, plot, side, event));
  for (const kind of ["mousedown", "touchstart"]) made.addEventListener(kind, (event) => event.stopPropagation()); // nor does Plotly select
  return made;
}

function pull(state, plot, side, event) {
  event.preventDefault();
  event.stopPropagation();
  const { target, pointerId } = event, { xaxis } = plot._fullLayout, from = state.data.live.controls[RANGE], both = bothEnds(from);
  const digit = 10 ** Math.floor(Math.log10(Math.abs(xaxis.p2l(1) - xaxis.p2l(0)))), started = event.clientX;
  target.setPointerCapture(pointerId);
  const move = (moved) => {
    const at = Math.round(xaxis.p2l(xaxis.l2p(both[side]) + moved.clientX - started) / digit) * digit;
    const free = side ? Math.max(at, (from.length === 1 ? 0 : both[0]) + digit) : Math.min(at, (from.length === 1 ? 0 : both[1]) - digit);
    const end = Number(free.toPrecision(6));
    state.hand[RANGE] = from.length === 1 ? [Math.abs(end)] : side ? [both[0], end] : [end, both[1]];
    everyGrip(state);
    controlsMoved(state);
  };
  const end = () => {
    for (const [kind, hear] of heard) target.removeEventListener(kind, hear);
    if (state.hand[RANGE]) state.emit("moved", { [RANGE]: state.hand[RANGE].join() });
  };
  const heard = [["pointermove", move], ["pointerup", end], ["pointercancel", end]];
  for (const [kind, hear] of heard) target.addEventListener(kind, hear);
}
