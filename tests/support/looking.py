"""What is wrong with a page, as a script that the page's browser runs: text below the contrast of WCAG AA, pictures without a
text alternative, and a page that is wider than its window."""

LOOK = r"""() => {
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  // Any color of CSS as red, green, blue and opacity; a canvas understands all notations.
  function rgba(color) {
    if (!known.has(color)) {
      brush.clearRect(0, 0, 1, 1);
      brush.fillStyle = color;
      brush.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  }
  const over = ([r, g, b, a], under) => [r, g, b].map((part, at) => part * a + under[at] * (1 - a));
  const faded = (color, by) => [...color.slice(0, 3), color[3] * by];
  const light = (color) => {
    const [r, g, b] = color.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const up = (element) => { const found = []; for (let at = element; at; at = at.parentElement) found.push(at); return found; };
  const paper = rgba(getComputedStyle(document.documentElement).getPropertyValue("color-scheme") === "dark" ? "#000" : "#fff");
  // What is painted behind an element: backgrounds of its ancestors, and shapes of its drawing that are below a point.
  function behind(element, x, y) {
    let ground = paper.slice(0, 3);
    for (const one of up(element).reverse()) {
      ground = over(rgba(getComputedStyle(one).backgroundColor), ground);
      if (one.localName !== "svg") continue;
      for (const shape of one.querySelectorAll("rect, path, circle")) {
        if (!(shape.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING) || shape.closest("defs, clipPath")) continue;
        const style = getComputedStyle(shape);
        const matrix = style.fill !== "none" && shape.getScreenCTM();
        if (!matrix || !shape.isPointInFill(new DOMPoint(x, y).matrixTransform(matrix.inverse()))) continue;
        const opacity = up(shape).reduce((all, at) => all * getComputedStyle(at).opacity, 1);
        ground = over(faded(rgba(style.fill), style.fillOpacity * opacity), ground);
      }
    }
    return ground;
  }
  const wrong = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, noscript, :disabled, [aria-disabled=true]")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (up(element).some((one) => { const { width, height } = one.getBoundingClientRect(); return one.localName !== "html" && getComputedStyle(one).clipPath !== "none" && width < 2 && height < 2; })) continue;
    if (box.width < 1 || box.height < 1) continue;
    const style = getComputedStyle(element);
    const ground = behind(element, box.x + box.width / 2, box.y + box.height / 2);
    const opacity = up(element).reduce((all, one) => all * getComputedStyle(one).opacity, 1);
    const color = element.closest("svg") && !element.closest("foreignObject") ? style.fill : style.color;
    const found = contrast(over(faded(rgba(color), opacity), ground), ground);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (found < (large ? 3 : 4.5) - 0.02) wrong.push(`${found.toFixed(2)}:1 ${color} on ${ground.map(Math.round)}: ${node.data.trim().slice(0, 60)}`);
  }
  const named = (one) => one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || one.querySelector(":scope > title");
  for (const one of document.querySelectorAll("img:not([alt]), svg, canvas")) {
    const parts = up(one);
    if (one.localName !== "img" && parts.some((at) => at.ariaHidden === "true" || named(at))) continue;
    if (one.localName !== "img" && !one.checkVisibility()) continue;
    wrong.push(`no text alternative: ${one.outerHTML.slice(0, 100)}`);
  }
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) wrong.push(`${width} pixels wide in a window of ${innerWidth}`);
  return [...new Set(wrong)];
}"""
