// Asks for a run where Streamlit asks for none, although the page needs one.
//
// reconnected: Streamlit asks for a run only if the loss of the server interrupted one. The session on another replica is
// empty: without a run, the page would look alive until the next action, although its uploads and images are gone.
// recolored: figures get their colors from Python. Streamlit calls a component again once it has changed its theme, and
// sends the new one along with a run.
// brought: something was pasted or dropped (paste.js); the answer says where to put files.
const watchers = new WeakMap();

function watch() {
  const app = document.querySelector("%app%"), state = { app, lost: false };
  state.observer = new MutationObserver(() => {
    const connected = app.getAttribute("%connection_state%") === "CONNECTED";
    if (state.lost && connected && app.getAttribute("%script_state%") === "notRunning") state.ask("reconnected", true);
    state.lost = !connected;
  });
  state.observer.observe(app, { attributes: true, attributeFilter: ["%connection_state%"] });
  return state;
}

export default ({ data, parentElement, setTriggerValue }) => {
  const state = watchers.get(parentElement) ?? watch(), theme = getComputedStyle(state.app).colorScheme;
  watchers.set(parentElement, state);
  state.ask = document.qsAsk = setTriggerValue;
  document.dispatchEvent(new Event("qs-can-ask"));
  document.qsDeliver?.(data.delivery);
  // once per change, lest a page whose theme does not reach Python asks forever
  if (theme === data.theme) state.asked = "";
  else if (theme !== state.asked) setTriggerValue("recolored", state.asked = theme);
  return () => {
    state.observer.disconnect();
    watchers.delete(parentElement);
  };
};
