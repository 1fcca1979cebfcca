// Pictures for slides: a button at every chart saves it as PNG or SVG, as it is shown, with what the page shows and its link
// in small print. The background is that of the page, so that a picture of the dark theme can be read on a white slide.
(() => {
  if (document.qsPicture) return;
  document.qsPicture = true;
  const SVG = "http://www.w3.org/2000/svg", EDGE = 12, PRINT = 12, LINE = 1.35; // px: around it, size of type; height of a line over it
  const SHARPER = 2;             // pixels of a PNG per px of the page
  const LINES = 4;               // of small print that the link may take, and the words before it
  const ICON = '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M8 2v8M4.5 6.5 8 10l3.5-3.5M2.5 13.5h11"/></svg>';
  const WAITS = [500, 1500, 4000]; // ms before each look at what a run has drawn
  const CHARTS = "%chart%, .qs-maps, .qs-treemap", placeOf = (chart) => (chart.matches("%chart%") ? chart : chart.parentElement);

  function node(tag, attributes, parent, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  // What the server says of a chart is its name; its parts, such as the numbers of its axes, are not read one by one
  function name(place) {
    const plot = place.querySelector(".js-plotly-plot"), words = plot?.layout?.meta?.words;
    const [chart, ...others] = words ? plot.querySelectorAll(".main-svg") : [];
    if (!chart || chart.getAttribute("aria-label") === words) return;
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", words);
    for (const other of others) other.setAttribute("aria-hidden", "true");
  }

  function attach() {
    for (const place of [...document.querySelectorAll(CHARTS)].map(placeOf)) {
      if (!place) continue;
      name(place);
      if (place.querySelector(":scope > .qs-picture")) continue;
      const box = document.createElement("div");
      box.className = "qs-picture";
      box.innerHTML = `<button type="button" aria-expanded="false" aria-label="Picture" title="Picture for slides">${ICON}</button>`
        + '<span hidden><button type="button" data-format="png">PNG</button><button type="button" data-format="svg">SVG</button></span>';
      place.style.position = "relative";
      place.append(box);
    }
  }

  // The chart at a place, as an SVG element
  async function drawn(place) {
    const own = place.querySelector(".qs-maps");
    if (own) return own.qsDrawn();
    const plot = place.querySelector(".js-plotly-plot"), P = await document.qsPlotly("/");
    const { width, height } = plot._fullLayout;
    return parsed(await P.toImage({ data: plot.data, layout: plot.layout }, { format: "svg", width, height }));
  }

  function parsed(url) {
    return document.importNode(new DOMParser().parseFromString(decodeURIComponent(url.slice(url.indexOf(",") + 1)), "image/svg+xml").documentElement, true);
  }

  // Text in lines that fit into a width, broken at spaces where that is possible; the last one ends with … if there is more
  function lines(text, fits, most) {
    const found = [""];
    for (const word of text.match(/\S+\s*|\s+/g) ?? []) {
      for (const piece of fits(word) ? [word] : word) {
        if (fits(found.at(-1) + piece)) found[found.length - 1] += piece;
        else if (found.length < most) found.push(piece);
        else return { found: [...found.slice(0, -1), found.at(-1).slice(0, -1) + "…"], whole: false };
      }
    }
    return { found, whole: true };
  }

  // Characters that XML can't hold are left out
  const clean = (text) => text.toWellFormed().replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "");

  // A chart with its small print, as an SVG element
  async function picture(place) {
    const inner = await drawn(place), [width, height] = ["width", "height"].map((name) => parseFloat(inner.getAttribute(name)));
    const page = getComputedStyle(document.querySelector("%app%")), size = Math.max(PRINT, 0.875 * parseFloat(getComputedStyle(document.documentElement).fontSize));
    const address = document.qsAddress(), pen = new OffscreenCanvas(1, 1).getContext("2d");
    pen.font = `${size}px sans-serif`; // where the page's font is missing, in whose place others are wider
    const fits = (text) => pen.measureText(text.trimEnd()).width <= width;
    const words = document.querySelector("[data-shown]")?.dataset.shown || document.querySelector("%main% h1")?.innerText || "";
    const state = lines(clean([document.title, words].filter(Boolean).join(" · ")), fits, LINES).found;
    let { found, whole } = lines(address, fits, LINES);
    if (!whole) found = lines(`${window.location.origin}${window.location.pathname} (the link has ${address.length.toLocaleString("en")} characters, too many to print)`, fits, LINES).found;
    const [w, h] = [width + 2 * EDGE, height + 2 * EDGE + (state.length + found.length) * LINE * size + EDGE / 2].map(Math.ceil);
    const svg = node("svg", { xmlns: SVG, width: w, height: h, viewBox: `0 0 ${w} ${h}` });
    node("rect", { width: w, height: h, fill: page.backgroundColor }, svg);
    inner.setAttribute("x", EDGE);
    inner.setAttribute("y", EDGE);
    svg.append(inner);
    const print = { "font-family": page.fontFamily, "font-size": size, fill: page.color, "fill-opacity": 0.85 };
    const linked = node("a", { href: address }, svg);
    [...state, ...found].forEach((text, n) => node("text", { ...print, x: EDGE, y: height + EDGE * 1.5 + (n + 0.9) * LINE * size }, n < state.length ? svg : linked, text));
    return svg;
  }

  // The fonts of the page, which an image can only take from within
  async function fonts() {
    const faces = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule instanceof CSSFontFaceRule && /upright/i.test(rule.cssText));
    const texts = await Promise.all(faces.map(async ({ cssText, parentStyleSheet }) => {
      const [source, address] = /url\("?(.*?)"?\)/.exec(cssText), data = await (await fetch(new URL(address, parentStyleSheet.href ?? document.baseURI))).blob();
      return cssText.replace(source, `url(${await dataUrl(data)})`);
    }));
    return texts.join("\n");
  }

  function dataUrl(blob) {
    const reader = new FileReader();
    return new Promise((resolve) => { reader.onload = () => resolve(reader.result); reader.readAsDataURL(blob); });
  }

  async function bitmap(svg) {
    node("style", {}, svg, await fonts().catch(() => ""));
    const text = new XMLSerializer().serializeToString(svg);
    const image = new Image(), url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    image.src = url;
    await image.decode();
    const canvas = new OffscreenCanvas(SHARPER * svg.getAttribute("width"), SHARPER * svg.getAttribute("height"));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    return canvas.convertToBlob({ type: "image/png" });
  }

  async function save(place, format) {
    const svg = await picture(place);
    const blob = format === "png" ? await bitmap(svg) : new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
    const name = window.location.pathname.split("/").pop() || "explore", url = URL.createObjectURL(blob);
    Object.assign(document.createElement("a"), { href: url, download: `quantscope-${name}.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  function open(box, wanted) {
    const [button, menu] = box.children;
    button.setAttribute("aria-expanded", wanted);
    menu.hidden = !wanted;
  }
  const close = (except) => {
    for (const shown of document.querySelectorAll(".qs-picture:has(> [aria-expanded=true])")) if (shown !== except) open(shown, false);
  };

  window.addEventListener("click", (event) => {
    const button = event.target.closest?.("button"), box = button?.closest(".qs-picture");
    close(box);
    if (box && !button.dataset.format) return open(box, button.getAttribute("aria-expanded") !== "true");
    // the buttons under Export save the maps
    const [, kind] = button?.closest(".st-key-_picture_png, .st-key-_picture_svg")?.className.match(/_picture_(png|svg)/) ?? [];
    if (!box && !kind) return;
    const place = box?.parentElement ?? document.querySelector(".qs-maps")?.parentElement;
    if (!place) return;
    event.stopPropagation(); // Streamlit need not run for it
    button.disabled = true;
    save(place, kind ?? button.dataset.format).then(() => close(), (error) => {
      button.title = `The picture can't be drawn: ${error.message}`;
      console.warn(error);
    }).finally(() => { button.disabled = false; });
  }, true);
  window.addEventListener("keydown", (event) => {
    const box = event.key === "Escape" && event.target.closest?.(".qs-picture");
    if (!box) return;
    close();
    box.firstElementChild.focus();
  }, true);
  document.qsPictures = attach; // for our components, when they are drawn
  attach();
  // After runs, again for as long as a chart is not drawn, whose code may have to be loaded, and where the pointer finds
  // a chart: a look at every change of the page would slow key presses
  let soon;
  function look(number) {
    clearTimeout(soon);
    soon = setTimeout(() => {
      attach();
      const late = document.querySelector("%skeleton%, %chart%:not(:has(.main-svg))");
      if (number + 1 < WAITS.length || late) look(Math.min(number + 1, WAITS.length - 1));
    }, WAITS[number]);
  }
  new MutationObserver(() => look(0)).observe(document, { subtree: true, attributes: true, attributeFilter: ["%script_state%"] });
  window.addEventListener("pointerover", (event) => { if (event.target.closest?.(CHARTS)) attach(); }, { passive: true });
})();
