// A lesson or a class is presented with the keys that a clicker sends: PageDown and → go forward, PageUp and ← back.
// In a class, the projector's window and the view within it pass these keys to the presenter's window.
//
// They press the page's own Next and Previous. Where the focus is in something that has a use for these keys, they are left
// to it, and Enter always is; Space too, except that it goes forward in a class when nothing has the focus. The focus stays on Next or Previous when the last step turns the button into a link.
(() => {
  if (document.qsPresenter) return;
  document.qsPresenter = true;
  const KEYS = { PageDown: "next", ArrowRight: "next", " ": "next", PageUp: "previous", ArrowLeft: "previous" };
  const FIELD = "input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable=true], [role=combobox]";
  const OWN = `${FIELD}, [role=slider], [role=tab], [role=listbox], [role=menu], [role=grid], %data_frame%, .qs-maps, .js-plotly-plot`;
  const OPEN = "[role=dialog], %popover_body%, [role=listbox]"; // while one is open, the page behind it stays
  const control = (name) => document.querySelector(`.st-key-lesson_${name} :is(button, a)`);

  // A class takes a press for the turn that its page shows, and none so soon after another. Whoever looks at the projector
  // presses again before the presenter's page is drawn: such a press waits for the page.
  const BOUNCE = 600, PATIENCE = 20_000; // ms; the first as in pages/serving/classroom/store.py
  const turn = () => document.querySelector(".st-key-lesson_next [class*=st-key-class_next_]")?.className.match(/class_next_(\d+)/)[1];
  const busy = () => !document.querySelector("%app%[%script_state%=notRunning]");
  let pressed = -BOUNCE, seen, drawn = -BOUNCE, waiting = 0; // when a key was pressed; the turn shown, and since when
  const look = () => { if (turn() !== seen) { seen = turn(); drawn = Date.now(); } };
  window.setInterval(look, 200);
  function press(name) {
    const now = Date.now(), before = turn();
    if (before === undefined) { control(name)?.click(); return; }
    if (waiting || now - pressed < BOUNCE) return; // twice, where once was meant
    const came = pressed;
    pressed = now;
    look();
    const ready = () => {
      look();
      const isOwed = drawn < came && busy() && Date.now() - now < PATIENCE; // what the press before asked for
      if (isOwed || Date.now() - drawn < BOUNCE) return false;
      window.clearInterval(waiting);
      waiting = 0;
      pressed = Date.now();
      control(name)?.click();
      return true;
    };
    if (!ready()) waiting = window.setInterval(ready, 50);
  }

  // Only within this browser, and only that a key was pressed in the projector's window of which class: it steers nothing
  const keys = new BroadcastChannel("quantscope-class-keys");
  const codeOf = (at, name) => new URLSearchParams(at.location.search).get(name)?.split(".")[0];
  const projected = () => {
    for (const at of [window, window.parent]) {
      try { // the page around this one may be another site's
        const code = codeOf(at, "projector");
        if (code) return code;
      } catch { return null; }
    }
    return null;
  };
  keys.addEventListener("message", ({ data: { name, code } }) => {
    if (Object.values(KEYS).includes(name) && code === codeOf(window, "presenter")) press(name);
  });

  window.addEventListener("keydown", (event) => {
    const name = KEYS[event.key], at = document.activeElement ?? document.body;
    if (!name || event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (at.closest(OWN) || document.querySelector(OPEN)) return;
    const code = projected();
    if (code && event.key !== " ") {
      event.preventDefault();
      event.stopPropagation();
      if (!event.repeat) keys.postMessage({ name, code });
      return;
    }
    if (!control(name)) return;
    if (event.key === " " && !(document.querySelector(".st-key-class_steer") && at.matches("body, %main%"))) return;
    if (event.key.startsWith("Arrow") && at.closest("[role=radiogroup], [type=radio]")) return; // they choose
    event.preventDefault(); // or the page would scroll
    event.stopPropagation();
    if (!event.repeat) press(name);
  }, true);

  let held = null; // which of the two has the focus
  const holder = (target) => target.closest?.(".st-key-lesson_next") ? "next" : target.closest?.(".st-key-lesson_previous") ? "previous" : null;
  window.addEventListener("focusin", (event) => { held = holder(event.target); }, true);
  window.addEventListener("pointerdown", (event) => { held = holder(event.target); }, true);
  new MutationObserver(() => {
    if (held && document.activeElement === document.body) control(held)?.focus({ preventScroll: true });
  }).observe(document, { childList: true, subtree: true });

  // The clock of a class: it starts at the minute of the step that is shown first, and a click sets it to the minute of
  // the step that is shown
  const START = "quantscope-class", MINUTE = 60_000, OVER = 120 * MINUTE;
  const set = (clock) => {
    const start = Date.now() - clock.dataset.begin * MINUTE;
    try { window.sessionStorage.setItem(START, start); } catch { /* storage may be forbidden */ }
    return start;
  };
  function tick() {
    const clock = document.querySelector(".qs-clock");
    if (!clock) return;
    let start = NaN;
    try { start = parseFloat(window.sessionStorage.getItem(START)); } catch { /* as above */ }
    if (!(Date.now() - start < OVER)) start = set(clock);
    const minutes = (Date.now() - start) / MINUTE, text = `minute ${Math.floor(minutes)}`;
    if (clock.textContent !== text) clock.textContent = text;
    clock.classList.toggle("qs-late", minutes > clock.dataset.end);
  }
  window.setInterval(tick, 1000);
  window.addEventListener("click", (event) => {
    const clock = event.target.closest?.(".qs-clock");
    if (clock) { set(clock); tick(); }
  }, true);
})();
