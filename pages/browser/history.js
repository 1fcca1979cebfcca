// One press of Back undoes exactly one action of the visitor.
//
// Streamlit replaces the current history entry when a bound control changes, so that Back leaves the app, and pushes an
// entry for every parameter that a callback or the run itself changes, so that Back undoes only part of an action.
// Here the first change of the query that follows an action pushes an entry, and all later ones replace it.
(() => {
  if (window.history.oneStepPerAct) return;
  window.history.oneStepPerAct = true;
  const { pushState, replaceState } = window.history;
  const OVERDUE = 2000; // ms without a run after a change: no response will come
  const app = () => document.querySelector("%app%");
  // A slow browser draws a whole run at once, and never shows that it was running
  const run = () => document.querySelector("[data-run]")?.dataset.run;
  const running = () => (app()?.getAttribute("%script_state%") ?? "initial") !== "notRunning";

  // Whether the next change pushes an entry: fresh for a control's, open for the app's own. Both are false before the
  // first action, since an opened link and its cleaned-up form are one view, and after Back, which has its own entry
  let fresh = false, open = false;
  let control = null; // of the last action
  let asked = 0; // when a control changed, if the app has not responded yet
  let askedIn; // the number of the run that was drawn then
  let acted = false; // since the last change of the query; a later change by the app itself is not waited for

  const unanswered = () => running() || (asked > 0 && run() === askedIn && performance.now() - asked < OVERDUE);
  new MutationObserver(() => { if (!running()) asked = 0; })
    .observe(document, { subtree: true, attributes: true, attributeFilter: ["%script_state%"] });

  function act(event) {
    if (event.qsOwn) return; // a script of ours pressed a button, as part of the visitor's action
    acted = true;
    const target = event.composedPath()[0];
    const at = target instanceof Element ? target.closest("%element%") ?? target : null;
    if (!unanswered() || !control || target.closest?.("a[href]")) fresh = open = true;
    else if (at !== control) fresh = true; // what the app still writes belongs to the previous action
    control = at;
  }
  window.addEventListener("pointerdown", act, true);
  window.addEventListener("keydown", act, true);
  for (const kind of ["paste", "drop"]) window.addEventListener(kind, act, true);
  // presses, keys and drags also end in a click; a click without them comes from assistive technology
  let pressed = 0;
  for (const kind of ["pointerdown", "pointerup", "keydown", "keyup"]) {
    window.addEventListener(kind, () => { pressed = performance.now(); }, true);
  }
  window.addEventListener("click", (event) => { if (performance.now() - pressed > 500) act(event); }, true);
  window.addEventListener("popstate", () => { fresh = open = acted = false; control = null; asked = 0; }, true);

  const place = (entry) => {
    const url = new URL(entry[2] ?? window.location.href, window.location.href);
    return [url.pathname, url.search];
  };
  window.history.pushState = function (...entry) {
    (open ? pushState : replaceState).apply(window.history, entry);
    open = false;
  };
  window.history.replaceState = function (...entry) {
    const [path, search] = place(entry);
    if (path !== window.location.pathname || search === window.location.search) {
      return replaceState.apply(window.history, entry);
    }
    (fresh ? pushState : replaceState).apply(window.history, entry);
    if (acted) { asked = performance.now(); askedIn = run(); }
    fresh = open = acted = false;
  };
})();
