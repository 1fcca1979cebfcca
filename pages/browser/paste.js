// An image that is pasted anywhere on a page with a tensor goes into the file field, as if it were uploaded: Streamlit's
// own field takes no paste. Where another source is chosen, the page is asked for the field first.
(() => {
  if (document.qsPaste) return;
  document.qsPaste = true;
  const KINDS = ["image/png", "image/jpeg", "image/webp"], FIELD = ":is(.st-key-_upload, .st-key-_upload_again) input[type=file]";
  const PATIENCE = 10000; // ms for the field to be drawn
  function deliver(field, file) {
    const files = new DataTransfer();
    files.items.add(file);
    field.files = files.files;
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  window.addEventListener("paste", (event) => {
    const file = [...event.clipboardData?.files ?? []].find(({ type }) => KINDS.includes(type));
    const controls = document.querySelector(".st-key-tensor_controls");
    if (!file || !controls || getComputedStyle(controls).display === "none") return;
    // text that was copied along with an image belongs to the field that has the focus
    if (event.target.closest?.("input, textarea, [contenteditable]") && event.clipboardData.getData("text/plain")) return;
    event.preventDefault();
    const field = document.querySelector(FIELD);
    if (field) return deliver(field, file);
    if (!document.qsAsk) return;
    const watcher = new MutationObserver(() => {
      const drawn = document.querySelector(FIELD);
      if (!drawn) return;
      watcher.disconnect();
      deliver(drawn, file);
    });
    watcher.observe(document.body, { childList: true, subtree: true });
    setTimeout(() => watcher.disconnect(), PATIENCE);
    document.qsAsk("pasted", true);
  });
})();
