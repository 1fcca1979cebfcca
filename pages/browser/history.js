// What Back undoes: one act of the visitor, the whole of it.
//
// Streamlit writes a bound control's change over the present entry of the history, so that Back leaves the app, and
// makes an entry of every parameter that a callback or the run itself changes, so that Back undoes a part of an act.
// Here the first change of the search that follows an act makes an entry, and all others are written over it.
(() => {
  if (window.history.oneStepPerAct) return;
  window.history.oneStepPerAct = true;
  const { pushState, replaceState } = window.history;
  const OVERDUE = 2000; // ms without a run after a change: no answer is to come
  const app = () => document.querySelector("[data-testid=stApp]");
  const running = () => (app()?.dataset.testScriptState ?? "initial") !== "notRunning";

  // Whether the next change makes an entry: of a control, and of what the app writes itself. Neither does before the
  // first act, for a link that is opened and put in order is one view; nor after Back, which has its entry
  let fresh = false, open = false;
  let control = null; // that of the last act
  let asked = 0; // when a control changed that the app has not answered yet

  const unanswered = () => running() || (asked > 0 && performance.now() - asked < OVERDUE);
  new MutationObserver(() => { if (!running()) asked = 0; })
    .observe(document, { subtree: true, attributes: true, attributeFilter: ["data-test-script-state"] });

  function act(event) {
    const target = event.composedPath()[0];
    const at = target instanceof Element ? target.closest("[data-testid=stElementContainer]") ?? target : null;
    if (!unanswered() || !control || target.closest?.("a[href]")) fresh = open = true;
    else if (at !== control) fresh = true; // what the app still writes belongs to the act before
    control = at;
  }
  window.addEventListener("pointerdown", act, true);
  window.addEventListener("keydown", act, true);
  // a press or a key makes a click too, at the end of a drag; one of its own comes from assistive technology
  let pressed = 0;
  for (const kind of ["pointerdown", "pointerup", "keydown", "keyup"]) {
    window.addEventListener(kind, () => { pressed = performance.now(); }, true);
  }
  window.addEventListener("click", (event) => { if (performance.now() - pressed > 500) act(event); }, true);
  window.addEventListener("popstate", () => { fresh = open = false; control = null; asked = 0; }, true);

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
    fresh = open = false;
    asked = performance.now();
  };
})();
