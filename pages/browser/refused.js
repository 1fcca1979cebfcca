// Says why a page stays empty when the server opens no session for it (pages/serving/middleware/origins.py). A refused
// websocket tells a page nothing; the same address answers a POST, which also carries the page's origin, in words.
setTimeout(async () => {
  if (document.querySelector("%app%[%connection_state%=CONNECTED]")) return;
  const answer = await fetch("_stcore/stream", { method: "POST" }).catch(() => null);
  if (answer?.status !== 403) return;
  const sentence = document.createElement("p");
  sentence.role = "alert";
  sentence.style.cssText =
    "position: fixed; inset: 0 0 auto 0; z-index: 1; margin: 0; padding: 1rem 2rem; background: #9b1c1c; color: white;" +
    "font: var(--qs-text)/1.5 var(--qs-family); overflow-wrap: anywhere";
  sentence.textContent = await answer.text();
  document.body.prepend(sentence);
}, 3000);
