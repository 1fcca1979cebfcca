// Esc closes the panel of a cell of a checkpoint and, where it is a sheet over the page, so does a click elsewhere.
(() => {
  if (document.qsSheet) return;
  document.qsSheet = true;
  const panel = () => document.querySelector(".st-key-ck_origin");
  const close = () => document.querySelector(".st-key-_ck_origin_close button")?.click();
  const OWN = "input, textarea, [role=dialog], [role=listbox], %popover_body%"; // which Esc belongs to
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && panel() && !event.target.closest?.(OWN) && !document.querySelector("%popover_body%")) close();
  }, true);
  window.addEventListener("click", (event) => {
    const shown = panel();
    if (!shown || getComputedStyle(shown).position !== "fixed" || event.target.closest?.(`.st-key-ck_origin, .qs-maps, ${OWN}`)) return;
    close();
  }, true);
})();
