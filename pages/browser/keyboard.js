// A skip link to the maps: the first element that Tab reaches on pages with maps.
(() => {
  if (document.qsSkip) return;
  document.qsSkip = true;
  const maps = document.getElementsByClassName("qs-maps");
  const skip = document.createElement("button");
  skip.type = "button";
  skip.className = "qs-skip";
  skip.textContent = "Skip to the maps";
  skip.addEventListener("click", () => maps[0]?.focus());
  function attach() {
    if (!skip.isConnected) document.body?.prepend(skip);
    if (skip.hidden === maps.length > 0) skip.hidden = !maps.length;
  }
  attach();
  new MutationObserver(attach).observe(document, { childList: true, subtree: true });
})();
