// Which steps of the lessons were seen, kept in this browser: a lesson notes its step, the overview shows how far one is.
(() => {
  if (document.qsProgress) return;
  document.qsProgress = true;
  const KEY = "quantscope-steps";
  const known = () => {
    try { return new Set(JSON.parse(window.localStorage.getItem(KEY) ?? "[]")); } catch { return new Set(); } // storage may be forbidden
  };
  function note(step) {
    const steps = known();
    if (steps.has(step)) return;
    try { window.localStorage.setItem(KEY, JSON.stringify([...steps.add(step)])); } catch { /* as above */ }
  }
  function show(place) {
    const steps = place.dataset.steps.split(" "), seen = known(), count = steps.filter((step) => seen.has(step)).length;
    const text = count === 0 ? `${steps.length} steps` : count < steps.length ? `${count} of ${steps.length} steps seen` : `all ${steps.length} steps seen`;
    if (place.textContent !== text) place.textContent = text;
    place.parentElement.style.setProperty("--qs-seen", `${(100 * count) / steps.length}%`);
  }
  const shown = document.getElementsByClassName("qs-seen"), places = document.getElementsByClassName("qs-progress"); // live
  let noted = "";
  function look() {
    const step = shown[0]?.dataset.seen;
    if (step && step !== noted) note(noted = step);
    for (const place of places) show(place);
  }
  look();
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
})();
