// The line that says that the page works begins with the act that asks for a run: a slider that has moved asks only when it
// has rested, and other controls when Streamlit has noted the change.
(() => {
  if (document.qsAsked) return;
  document.qsAsked = true;
  const RESTS = 400; // ms: until the run has begun, which keeps the line
  const OPTIONS = "%button% button:not(.st-key-_play *), %button_group% button, [role=option]";
  let over = 0;
  function asked() {
    const app = document.querySelector("%app%");
    app?.toggleAttribute("data-asked", true);
    clearTimeout(over);
    over = setTimeout(() => app?.removeAttribute("data-asked"), RESTS);
  }
  const on = (name, asks) => window.addEventListener(name, (event) => { if (asks(event)) asked(); }, { capture: true, passive: true });
  on("input", ({ target }) => target.matches?.("input[type=range]"));
  on("change", ({ target }) => target.matches?.("input[type=checkbox]"));
  on("keydown", ({ key, target }) => key === "Enter" && target.matches?.("input[type=text], input[type=number]"));
  on("click", ({ target }) => target.closest?.(OPTIONS));
})();
