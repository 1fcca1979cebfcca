"""Contrast of the texts of a page with their background."""

# Texts whose contrast with their background is below 4.5 by WCAG 2's formula, except those that Streamlit
# hides by painting them in the color of the background. The background of a text in a chart is that of the
# page, its tile in a treemap, or its cell in a heatmap.
PALE = """() => {
    const rgba = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [...n.slice(0, 3), n[3] ?? 1]; };
    const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
    const linear = (v) => (v <= 10.31 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    const bright = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]) + 0.05;
    const pictures = new Map();  // of heatmaps, which are images
    const cell = (e) => {
        const image = e.closest(".subplot")?.querySelector(".heatmaplayer image");
        if (!image) return null;
        const box = image.getBoundingClientRect(), text = e.getBoundingClientRect();
        const x = Math.floor(text.x + text.width / 2 - box.x), y = Math.floor(text.y + text.height / 2 - box.y);
        if (x < 0 || y < 0 || x >= box.width || y >= box.height) return null;
        if (!pictures.has(image)) {
            const { width, height } = box, canvas = Object.assign(document.createElement("canvas"), { width, height });
            pictures.set(image, canvas.getContext("2d", { willReadFrequently: true }));
            pictures.get(image).imageSmoothingEnabled = false;  // a pixel of the image may be a whole cell
            pictures.get(image).drawImage(image, 0, 0, width, height);
        }
        const [r, g, b, a] = pictures.get(image).getImageData(x, y, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const pale = new Set(), root = document.querySelector("[data-testid=stApp]");
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement, visible = { opacityProperty: true, visibilityProperty: true };
        if (!walk.currentNode.data.trim() || e.closest("style, script, [data-testid=stIconMaterial]") || !e.checkVisibility(visible)) continue;
        let opacity = 1, behind = [255, 255, 255];
        const grounds = [], tile = e.closest(".slice")?.querySelector("path");
        for (let n = e; n; n = n.parentElement) {
            opacity *= Number(getComputedStyle(n).opacity);
            grounds.unshift(rgba(getComputedStyle(n).backgroundColor));
        }
        if (tile) grounds.push(rgba(getComputedStyle(tile).fill));
        const below = e instanceof SVGElement && cell(e);
        if (below) grounds.push(below);
        for (const ground of grounds) behind = over(ground, behind);
        const ink = rgba(e instanceof SVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color);
        const [low, high] = [bright(over([...ink.slice(0, 3), ink[3] * opacity], behind)), bright(behind)]
            .sort((a, b) => a - b);
        if (high / low < 4.5 && high > low) pale.add(`${walk.currentNode.data.trim().slice(0, 30)}: ${high / low}`);
    }
    return [...pale];
}"""
