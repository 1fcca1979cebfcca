// What is pasted outside a field, and files that are dropped anywhere, are taken. The server is asked what to do with them
// (pages/sidebar/brought.py): it gets the text, or the files' names and sizes, and says which field gets which files, since
// Streamlit's own fields take no paste, and files only if they are dropped right there. The browser itself never opens them.
(() => {
  if (document.qsDeliver) return;
  const FIELD = "input, textarea, [contenteditable], %data_frame%", MENU = "%sidebar% [role=combobox][aria-expanded=false]";
  const READ_AT_ONCE = ".st-key-_pasted textarea";
  const SEVERAL = /\d[\s,;]+[-+.\d]|^\s*[\[({]/; // numbers, which nobody types into a menu
  const PATIENCE = 20000, RUNS = 600000; // ms for a field to be drawn, and for a page's first run, which may wait its turn
  const ARRIVED = "%popover_body%:has(%file%):not(:has(%file_arriving%, %file_refused%))";
  const run = () => document.querySelector("[data-run]")?.dataset.run;
  const atRest = () => document.querySelector("%app%[%script_state%=notRunning]");
  let held = [], delivered = 0, waiting = null; // what was brought last and not asked yet

  function soon(find, found, patience = PATIENCE) {
    const look = () => { const it = find(); if (it) { watcher.disconnect(); found(it); } };
    const watcher = new MutationObserver(look);
    watcher.observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["%script_state%"] });
    setTimeout(() => watcher.disconnect(), patience);
    look();
    return watcher;
  }

  function press(button) {
    const click = new MouseEvent("click", { bubbles: true, cancelable: true });
    click.qsOwn = true;
    button.dispatchEvent(click);
  }

  function give(field, files) {
    const transfer = new DataTransfer();
    for (const file of files) transfer.items.add(file);
    field.files = transfer.files;
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }

  document.qsDeliver = (delivery) => {
    if (!delivery || delivery.number === delivered || !held.length) return;
    delivered = delivery.number;
    const files = delivery.files.map((number) => held[number]);
    let opened = false;
    soon(() => {
      const field = document.querySelector(delivery.field);
      const opener = !field && !opened && delivery.opener && document.querySelector(delivery.opener);
      if (opener) { opened = true; press(opener); }
      return field;
    }, (field) => {
      const before = run();
      give(field, files);
      // what was opened for the files is closed once they have arrived and are shown
      if (opened) soon(() => run() !== before && document.querySelector(ARRIVED) && atRest() && document.querySelector(delivery.opener), press);
    });
  };

  function bring(files, text) {
    held = files;
    waiting = files.length ? { files: files.map(({ name, size }) => ({ name, size })) } : { text };
    if (document.qsAsk) ask();
  }

  function ask() {
    const brought = waiting;
    waiting = null;
    if (brought) document.qsAsk("brought", brought);
  }

  // What asks may come when the page is drawn already, and then nothing else of the page changes
  document.addEventListener("qs-can-ask", () => waiting && soon(atRest, ask, RUNS));

  window.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text/plain") ?? "", files = [...event.clipboardData?.files ?? []];
    const field = event.target.closest?.(FIELD);
    if (field?.matches(READ_AT_ONCE)) return void setTimeout(() => apply(field));
    // text that was copied along with an image belongs to the field that has the focus
    if (field ? text && !(field.matches(MENU) && SEVERAL.test(text)) : !text.trim() && !files.length) return;
    if (!text && !files.length) return;
    event.preventDefault();
    bring(SEVERAL.test(text) ? [] : files, text); // a spreadsheet copies its cells as an image too
  });

  function apply(field) {
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", code: "Enter", ctrlKey: true, bubbles: true }));
  }

  function enter(field) {
    field.focus();
    field.select(); // what is pasted replaces an earlier text
  }

  // Who chooses the source "paste" wants to paste: the field has the focus as soon as it is drawn
  let coming = null;
  window.addEventListener("focusin", ({ target }) => {
    coming?.disconnect();
    coming = null;
    if (!target.closest?.(".st-key-src") || document.querySelector(READ_AT_ONCE)) return;
    coming = soon(() => document.querySelector(READ_AT_ONCE), enter);
  });

  // The button that leads there shows the sidebar, too, where it is folded
  window.addEventListener("click", ({ target }) => {
    if (!target.closest?.(".st-key-_bring button")) return;
    const unfold = document.querySelector("%expand_sidebar%");
    if (unfold) press(unfold.querySelector("button") ?? unfold);
    soon(() => document.querySelector(READ_AT_ONCE), enter);
  });

  // Files that are dragged over the page: a sign says what becomes of them
  const sign = Object.assign(document.createElement("div"), { className: "qs-drop", hidden: true });
  const brings = (event) => event.dataTransfer?.types.includes("Files");
  const own = (event) => event.target.closest?.("%drop_zone%");
  function show(event) {
    const kinds = [...event.dataTransfer.items].map(({ type }) => type);
    sign.textContent = document.querySelector(".st-key-opening_ck") ? "A checkpoint opens here.\nA notebook opens in Match."
      : kinds.length && kinds.every((kind) => kind.startsWith("image/")) ? "The image becomes the tensor."
      : "A tensor or an image becomes the tensor.\nA checkpoint opens in Checkpoint, a notebook in Match.";
    sign.style.colorScheme = getComputedStyle(document.querySelector("%app%") ?? document.body).colorScheme;
    if (!sign.isConnected) document.body.append(sign);
    sign.hidden = !!own(event);
  }
  for (const kind of ["dragenter", "dragover"]) {
    window.addEventListener(kind, (event) => {
      if (!brings(event)) return;
      event.preventDefault();
      show(event);
    }, true);
  }
  window.addEventListener("dragleave", (event) => { if (!event.relatedTarget) sign.hidden = true; }, true);
  window.addEventListener("drop", (event) => {
    sign.hidden = true;
    if (!brings(event) || own(event)) return;
    event.preventDefault();
    event.stopPropagation();
    bring([...event.dataTransfer.files], "");
  }, true);
})();
