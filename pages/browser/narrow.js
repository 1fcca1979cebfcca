// A link of a projector opens in the usual size on a phone.
(() => {
  const url = new URL(window.location.href);
  if (window.innerWidth >= 768 || !url.searchParams.has("learn_large")) return;
  url.searchParams.delete("learn_large");
  window.history.replaceState(window.history.state, "", url);
})();
