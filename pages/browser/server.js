// Where Streamlit finds its server: next to the page, as its own files are. Otherwise it looks below the page's address first, and
// gets two answers 404 at each visit.
window.__streamlit = { ...window.__streamlit, BACKEND_BASE_URL: new URL(".", window.location.href).href };
