// A click on Link copies the address at once and says so. Where the browser forbids that, the address stands there, selected.
//
// The address is that of the window, less what only concerns this reader: the size of text, the keys to a class, and how
// the app is embedded.
(() => {
  if (document.qsLink) return;
  document.qsLink = true;
  const OWN = ["learn_large", "presenter", "projector", "embed", "embed_options"];
  const SHOWN = 4000; // ms
  const address = document.qsAddress = () => {
    const url = new URL(window.location.href);
    for (const name of OWN) if (url.searchParams.has(name)) url.searchParams.delete(name);
    return url.href;
  };
  const box = Object.assign(document.createElement("div"), { className: "qs-toast", role: "status" });
  const words = document.createElement("p"), code = document.createElement("code");
  code.tabIndex = 0;
  box.append(words, code);
  let timer = 0;
  const hide = () => { window.clearTimeout(timer); box.classList.remove("qs-shown"); };

  function say(text, link) {
    window.clearTimeout(timer);
    box.style.colorScheme = getComputedStyle(document.querySelector("%app%")).colorScheme;
    words.textContent = text;
    code.textContent = link ?? "";
    code.hidden = !link;
    box.classList.add("qs-shown");
    if (link) window.getSelection().selectAllChildren(code);
    else timer = window.setTimeout(hide, SHOWN);
  }

  // Pages served without TLS, and frames, have no clipboard of the newer kind
  function copiedByCommand(text) {
    const write = (event) => { event.clipboardData.setData("text/plain", text); event.preventDefault(); };
    document.addEventListener("copy", write, { once: true });
    const done = document.execCommand("copy");
    document.removeEventListener("copy", write);
    return done;
  }

  async function copy() {
    const link = address();
    let copied = false;
    try { await navigator.clipboard.writeText(link); copied = true; } catch { copied = copiedByCommand(link); }
    if (!copied) return say("This browser does not let a page copy. Copy the address yourself:", link);
    const whole = !document.querySelector(".st-key-qs_link .qs-without");
    return say(whole ? "Link copied" : "Link copied. It does not carry everything: the text below Link says what is missing.");
  }

  // The run of a fragment, such as that of a slider with its picture, draws no Link: its popover shows the address as it is now
  function follow(tries = 40) {
    const shown = document.querySelector("%popover_body% code");
    if (!shown) { if (tries) window.setTimeout(follow, 50, tries - 1); return; }
    if (!shown.textContent.startsWith(window.location.origin) || shown.textContent === address()) return;
    shown.textContent = address();
    shown.closest("%code%")?.querySelector("button")?.style.setProperty("display", "none"); // it would copy what stood there
  }

  window.addEventListener("click", (event) => {
    if (event.target.closest?.(".st-key-qs_link button")) { copy(); follow(); }
    else if (!code.hidden && !box.contains(event.target)) hide();
  }, true);
  window.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); }, true);
  const attach = () => { if (!box.isConnected) document.body?.append(box); };
  attach();
  new MutationObserver(attach).observe(document, { childList: true, subtree: true });
})();
