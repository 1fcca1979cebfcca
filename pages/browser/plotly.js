// Loads plotly.js, once for the whole page: next to Streamlit's own files, wherever the host serves them; otherwise at the
// address that the server configures.
document.qsPlotly ??= (() => {
  let loading = null;
  const load = (url) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("no Plotly in " + url)));
    script.onerror = () => reject(new Error("cannot load " + url));
    document.head.appendChild(script);
  });
  return (url) => {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    const own = document.querySelector('script[src*="static/js/"]')?.src;
    const beside = own ? own.replace(/static\/js\/.*$/, "vendor/plotly.min.js") : url;
    loading ??= load(beside).catch(() => load(url)).finally(() => { loading = null; });
    return loading;
  };
})();
