// Plays the bits: the maps show one width after the other, each as the server computes it, and then again the one that the slider
// stands at. A press on the button keeps what is seen; any other press or key ends it.

const STEP = 800; // ms from a picture to the next
const PLAYED = "bits", BITS_PLAYED = [8, 7, 6, 5, 4, 3, 2];

function mountPlay(state) {
  const button = (target) => target.closest?.(".st-key-_play button:enabled");
  const clicked = (event) => {
    if (!button(event.target)) return;
    event.stopImmediatePropagation(); // Streamlit would run the page
    if (state.playing) state.playing.stop(true);
    else if (state.data?.live?.at && state.data.live.controls[PLAYED]) play(state, button(event.target));
  };
  const ended = ({ target, key }) => { if (!button(target) || (key && ![" ", "Enter"].includes(key))) state.playing?.stop(false); };
  const heard = [["click", clicked], ["pointerdown", ended], ["keydown", ended]];
  for (const [kind, hear] of heard) document.addEventListener(kind, hear, true);
  return () => {
    state.playing?.stop(false);
    for (const [kind, hear] of heard) document.removeEventListener(kind, hear, true);
  };
}

async function play(state, button) {
  const own = state.data.live.controls[PLAYED];
  let stop, kept = null;
  const stopped = new Promise((go) => { stop = (keep) => { kept = keep; go(); }; });
  state.playing = { stop };
  for (const bits of BITS_PLAYED) {
    state.hand[PLAYED] = [bits];
    await settled(state);
    if (ahead(state).length) continue; // a width that the library does not have
    button.dataset.says = `Keep ${bits} bits`;
    await Promise.race([stopped, new Promise((go) => setTimeout(go, STEP))]);
    if (kept !== null || state.gone) break;
  }
  delete button.dataset.says;
  if (kept && state.hand[PLAYED]) state.emit("moved", { [PLAYED]: state.hand[PLAYED][0] });
  else if (state.hand[PLAYED]) {
    state.hand[PLAYED] = own;
    await settled(state);
  }
  state.playing = null;
  if (!kept) delete state.hand[PLAYED];
  controlsMoved(state);
}

// Show what the controls stand at now
async function settled(state) {
  while (state.pursuing) await new Promise(requestAnimationFrame);
  if (ahead(state).length) await pursue(state);
}
