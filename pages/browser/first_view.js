// The first view of a page appears at once, in its place.
//
// Streamlit draws a page first without its sidebar, then with one, and loads the code of most elements when they first appear,
// with a placeholder of another height. So until the first run is drawn, a style that the server adds keeps the place of the
// sidebar or hides it, and hides the elements; they are shown when nothing moves any more, and in any case soon. The sidebar
// keeps its place until all code is there: what hides it on a page that does not use it is an element too.
(() => {
  const style = document.getElementById("qs-first-view");
  if (!style) return;
  const side = document.getElementById("qs-first-sidebar");
  const STILL = 100, COMPUTING = 800, LOADING = 2000, NOTHING = 15000; // ms: without a change; at most: while the run computes, while code is loaded, without a run or a heading
  const USUAL = 2000; // ms until the sidebar is drawn: where that takes so many times as long, the rest may too, and comes at once instead of in pieces
  const FRAMES = 2, SLOWEST = 2; // a look takes a layout: one in so many frames; a browser that is too busy to draw gets at most so many times as long
  let width = null;
  try { width = parseInt(window.localStorage.getItem("sidebarWidth"), 10); } catch { /* storage may be forbidden */ }
  if (width) document.documentElement.style.setProperty("--qs-sidebar", `${width}px`);

  // before the sidebar is painted
  new MutationObserver((_, observer) => {
    if (!document.querySelector("%sidebar%")) return;
    document.documentElement.classList.add("qs-sidebar");
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true });

  const inSight = (e) => { const box = e.getBoundingClientRect(); return box.height && box.top < window.innerHeight && box.bottom > 0; };
  const loading = () => document.fonts.status === "loading" || [...document.querySelectorAll("%skeleton%, .qs-empty")].some(inSight);
  const running = () => document.querySelector("%app%")?.getAttribute("%script_state%") !== "notRunning";
  const heights = () => [...document.querySelectorAll("%view% %element%")].map((e) => e.offsetTop + e.offsetHeight).join();
  let drawn = 0, moved = 0, last = "", now = 0, frame = 0, frames = 0;
  const look = (time) => {
    now += Math.max(Math.min(time - frame, 17), (time - frame) / SLOWEST);
    frame = time;
    if (frames++ % FRAMES) return void requestAnimationFrame(look);
    if (!drawn && document.querySelector(".st-key-scheme_controls")) drawn = now; // of the sidebar, which every page has, if hidden
    const shown = drawn && heights();
    if (shown !== last) [last, moved] = [shown, now];
    const wait = loading() ? (document.querySelector("%view% h1") ? LOADING : NOTHING) : running() || now - moved < STILL ? COMPUTING : 0;
    if (drawn ? now - drawn < Math.min(NOTHING, wait * Math.max(1, drawn / USUAL)) : now < NOTHING) return void requestAnimationFrame(look);
    style.remove();
    settle(performance.now() + NOTHING);
  };
  const settle = (end) => {
    if (document.querySelector("%skeleton%") && performance.now() < end) setTimeout(settle, STILL, end);
    else side.remove();
  };
  requestAnimationFrame(look);
})();
