// A tab leaves the page where it is.
//
// While a tab is drawn, and if it is shorter than the one before, the page is too short for its scroll position, and the
// browser would move it. So the tabs keep the height that the position needs, until the next act. A click on a map counts,
// since it opens a tab.
(() => {
  if (document.qsTabs) return;
  document.qsTabs = true;
  function hold(event) {
    const at = event.target.closest?.("[role=tab], .qs-maps");
    const tabs = at && (at.closest("%tabs%") ?? document.querySelector("%tabs%"));
    const main = tabs?.closest("%main%");
    if (!main) return;
    const { top, bottom } = tabs.getBoundingClientRect(), foot = main.getBoundingClientRect().top - main.scrollTop + main.scrollHeight;
    tabs.style.minHeight = `${Math.max(0, main.getBoundingClientRect().bottom - top - (foot - bottom))}px`;
  }
  for (const kind of ["pointerdown", "keydown", "click"]) window.addEventListener(kind, hold, true);
})();
