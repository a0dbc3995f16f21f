// Every visible text of the page against what is painted behind it: WCAG 2's contrast ratio, 4.5, or 3 for large text.
const parse = (text) => {
  const n = (text.match(/-?[\d.]+(e-?\d+)?/g) || []).map(Number);
  if (text.startsWith("color(srgb")) return [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1];
  return [n[0] ?? 0, n[1] ?? 0, n[2] ?? 0, n[3] ?? 1];
};
const over = (top, below) => below.map((c, i) => (i < 3 ? top[i] * top[3] + c * (1 - top[3]) : 1));
const background = (element) => {
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
};
const luminance = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
  const v = c[i] / 255;
  return sum + weight * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
}, 0);
const bad = [];
for (const element of document.body.querySelectorAll("*")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.checkVisibility() || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
  const style = getComputedStyle(element), behind = background(element);
  const ink = over(parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color), behind);
  const [light, dark] = [luminance(ink), luminance(behind)].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700);
  const ratio = (light + 0.05) / (dark + 0.05);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)} ${element.className} ${element.textContent.trim().slice(0, 40)}`);
}
return [...new Set(bad)];
