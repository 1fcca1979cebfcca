// A slider that has moved asks for a run only when it has rested; the line that says that the page works begins with the move.
(() => {
  if (document.qsAsked) return;
  document.qsAsked = true;
  const RESTS = 400; // ms: until the run has begun, which keeps the line
  let over = 0;
  window.addEventListener("input", (event) => {
    if (!event.target.matches?.("input[type=range]")) return;
    const app = document.querySelector("%app%");
    app?.toggleAttribute("data-asked", true);
    clearTimeout(over);
    over = setTimeout(() => app?.removeAttribute("data-asked"), RESTS);
  }, { capture: true, passive: true });
})();
