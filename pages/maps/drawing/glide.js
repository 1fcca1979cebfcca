// Colors glide from one picture to the next, as from a scheme to another on the same cells: both ends are the server's pictures, and
// the numbers are at once those of the new one. Pictures that follow each other quickly, as in a drag, do not glide.

const GLIDE = 150, QUICK = 250; // ms: duration, and the least from the last picture

const still = matchMedia("(prefers-reduced-motion: reduce)");

// Begin at these pictures, if the maps showed the same cells before; `before`: what they showed
function glide(state, before, from) {
  const { data } = state, now = performance.now(), quick = now - (state.changed ?? -Infinity) < QUICK;
  state.glide = null;
  if (state.pictures === from) return;
  state.changed = now;
  if (!from || quick || still.matches || before.uirevision !== data.uirevision || `${before.maps} ${before.width} ${before.height}` !== `${data.maps} ${data.width} ${data.height}`) return;
  const own = state.glide = { from, began: now };
  const go = () => {
    if (state.glide !== own || state.gone) return;
    if (performance.now() - own.began >= GLIDE) state.glide = null;
    paint(state);
    if (state.glide) requestAnimationFrame(go);
  };
  requestAnimationFrame(go);
}

// How far the glide is, from 0 to 1
function glided({ glide }) {
  const part = glide ? Math.min(1, (performance.now() - glide.began) / GLIDE) : 1;
  return 1 - (1 - part) ** 2;
}
