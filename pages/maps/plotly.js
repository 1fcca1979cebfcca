// Loads plotly.js, once for all components of a page.

let loading = null;

function loadScript(url) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("no Plotly in " + url)));
    script.onerror = () => reject(new Error("cannot load " + url));
    document.head.appendChild(script);
  });
}

// Where our routes are: next to Streamlit's own files, wherever the host serves them; else where the server's settings say
function routes(base) {
  const own = document.querySelector('script[src*="static/js/"]')?.src;
  return own?.startsWith(location.origin + "/") ? own.replace(/static\/js\/.*$/, "") : base;
}

function loadPlotly(base) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  const file = "vendor/plotly.min.js";
  loading ??= loadScript(routes(base) + file).catch(() => loadScript(base + file)).finally(() => { loading = null; });
  return loading;
}
