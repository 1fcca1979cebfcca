"""Type of what a page shows: sizes outside the scale, and other families."""

from quantcore.figures.typography import FAMILY, MONO, SCALE

# Notes the fonts in which canvases are painted: the maps' numbers, and tables. For `add_init_script`.
NOTE = """(() => {
    window.painted = new Map();
    for (const kind of [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D]) {
        const { fillText } = kind.prototype;
        kind.prototype.fillText = function (text, ...place) {
            const [size] = this.font.match(/[\\d.]+(?=px)/), scale = this.getTransform().d / devicePixelRatio;
            if (text) window.painted.set(`${size * scale} ${this.font.replace(/^.*px(\\/\\S+)? /, "")}`, text);
            return fillText.call(this, text, ...place);
        };
    }
})()"""
# Texts in other sizes or families, as "size family: text"; icons are letters of a font of their own. The size
# of a text in an SVG is that on the screen; tables of cells are as large as their place allows.
_ODD = """([sizes, families]) => {
    const found = new Set(), root = document.body, walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const name = (family) => family.split(",")[0].replaceAll('"', "").trim();
    const note = (size, family, text, fills) => {
        const fits = (fills ? size >= Math.min(...sizes) : sizes.some((px) => Math.abs(px - size) < 0.05)) && families.includes(name(family));
        if (!fits && name(family) !== "Material Symbols Rounded") found.add(`${size} ${name(family)}: ${text.slice(0, 30)}`);
    };
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
        if (!text || e.closest("style, script") || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const range = document.createRange();
        range.selectNodeContents(walk.currentNode);
        const { width, height } = range.getBoundingClientRect(), look = getComputedStyle(e), matrix = e instanceof SVGElement && e.getScreenCTM();
        if (width < 2 || !height) continue;
        note(parseFloat(look.fontSize) * (matrix ? Math.hypot(matrix.b, matrix.d) : 1), look.fontFamily, text, e.closest('.qs-cells'));
    }
    for (const [font, text] of window.painted ?? []) note(parseFloat(font), font.slice(font.indexOf(" ")), text);
    return [...found];
}"""


def odd(page) -> list[str]:
    """What a page shows in a size outside the scale, or in another family."""
    families = [family.split(",")[0].strip('"') for family in (FAMILY, MONO)]
    return list(page.evaluate(_ODD, [list(SCALE.values()), families]))


# The cells of tables of HTML: padding, above and at the left, and height of a line, all as parts of their
# type's size
_CELLS = """[...document.querySelectorAll("[data-testid=stTable] :is(td, th), .qs-cell-rivals :is(td, th)")].map((e) => {
    const look = getComputedStyle(e), size = parseFloat(look.fontSize);
    return ["paddingTop", "paddingLeft", "lineHeight"].map((name) => Math.round(100 * parseFloat(look[name]) / size) / 100);
})"""
CELL = (0.52, 0.65, 1.4)
ROW = (2 * CELL[0] + CELL[2]) * SCALE["small"] + 1  # px, with its line: the height of a row in small type


def cells(page) -> set[tuple[float, ...]]:
    """How cells of tables are spaced: {CELL}, if there are any."""
    return {tuple(cell) for cell in page.evaluate(_CELLS)}
