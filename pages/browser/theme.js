// A theme switch in the top bar (light, dark, system), remembered for all pages of the app.
//
// By default Streamlit follows the system's preference, and reads it again after printing. So this script answers that
// query. Streamlit's own setting is stored per page, and its menu is hidden.
(() => {
  if (document.qsTheme) return;
  document.qsTheme = true;
  const KEY = "quantscope-theme";
  const CHOICES = {
    light: ["Light", '<circle cx="8" cy="8" r="3"/><path d="M8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.5 1.5M11.5 11.5 13 13M3 13l1.5-1.5M11.5 4.5 13 3"/>'],
    dark: ["Dark", '<path d="M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z"/>'],
    system: ["System", '<circle cx="8" cy="8" r="5.5"/><path d="M8 2.5a5.5 5.5 0 0 1 0 11Z" fill="currentColor"/>'],
  };
  const stored = () => {
    try { return window.localStorage.getItem(KEY); } catch { return null; } // storage may be forbidden
  };
  const known = (choice) => (choice in CHOICES ? choice : "system");
  let chosen = known(stored());
  try {
    for (const key of Object.keys(window.localStorage)) {
      if (key.startsWith(`%stored_theme%-${window.location.pathname}-`)) window.localStorage.removeItem(key);
    }
  } catch { /* nothing stored, nothing to remove */ }

  const system = window.matchMedia.bind(window);
  window.matchMedia = (query) => {
    const list = system(query);
    const wanted = /^\s*\(prefers-color-scheme:\s*(light|dark)\)\s*$/.exec(query)?.[1];
    if (!wanted || chosen === "system") return list;
    const passed = ["addEventListener", "removeEventListener", "addListener", "removeListener"];
    return { media: list.media, matches: wanted === chosen,
      ...Object.fromEntries(passed.map((name) => [name, (...given) => list[name](...given)])) };
  };

  const box = document.createElement("fieldset");
  box.className = "qs-theme";
  box.setAttribute("aria-label", "Theme");
  for (const [choice, [name, icon]] of Object.entries(CHOICES)) {
    const label = document.createElement("label");
    label.title = name;
    label.innerHTML = `<input type="radio" name="qs-theme" value="${choice}" aria-label="${name}">`
      + `<svg viewBox="0 0 16 16" aria-hidden="true">${icon}</svg>`;
    box.append(label);
  }
  const mark = () => { box.querySelector(`[value=${chosen}]`).checked = true; };
  function follow(choice) {
    chosen = known(choice);
    mark();
    window.dispatchEvent(new Event("afterprint"));
  }
  mark();
  box.addEventListener("change", (event) => {
    try { window.localStorage.setItem(KEY, event.target.value); } catch { /* kept until the page is closed */ }
    follow(event.target.value);
  });
  window.addEventListener("storage", (event) => { if (event.key === KEY) follow(event.newValue); });
  function attach() {
    if (!box.isConnected) document.querySelector("%toolbar%")?.append(box);
  }
  attach();
  new MutationObserver(attach).observe(document, { childList: true, subtree: true });
})();
