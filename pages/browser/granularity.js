// Small pictures beside the names of granularities: which cells of a 4 × 4 tensor share a scale. Streamlit's menus hold text alone,
// so each option is marked with what it is, and the style of the pages draws the picture.
(() => {
  if (document.qsGranularities) return;
  const NAMES = document.qsGranularities = ["tensor", "channel", "group", "flat group", "block"]; // as PER of pages/sidebar/granularities.py
  const FIELD = ".st-key-per";
  const mark = (option, name) => { if (NAMES.includes(name) && option.dataset.per !== name) option.dataset.per = name; };
  let open = null; // watches the menu while the field has the focus

  function look() {
    for (const option of document.querySelectorAll("[role=listbox] [role=option]")) mark(option, option.textContent.trim());
  }
  window.addEventListener("focusin", ({ target }) => {
    open?.disconnect();
    open = null;
    if (!target.closest?.(FIELD)) return;
    open = new MutationObserver(look);
    open.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
})();
