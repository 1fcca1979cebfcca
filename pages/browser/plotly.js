// Where our routes are: next to Streamlit's own files, wherever the host serves them; else where the server's settings say.
document.qsRoutes ??= (base) => {
  const own = document.querySelector('script[src*="static/js/"]')?.src;
  return own?.startsWith(location.origin + "/") ? own.replace(/static\/js\/.*$/, "") : base;
};

// Loads plotly.js, once for the whole page.
document.qsPlotly ??= (() => {
  const FILE = "vendor/plotly.min.js";
  let loading = null;
  const load = (url) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("no Plotly in " + url)));
    script.onerror = () => reject(new Error("cannot load " + url));
    document.head.appendChild(script);
  });
  return (base) => {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    loading ??= load(document.qsRoutes(base) + FILE).catch(() => load(base + FILE)).finally(() => { loading = null; });
    return loading;
  };
})();
