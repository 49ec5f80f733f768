// Shapes, scales and axes: what all charts are drawn with. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

/** A shape with its attributes and children; a child that is no shape becomes text. */
function shape(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** The same for elements of HTML. */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A number with a few digits and without a needless exponent. */
function short(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(size >= 1000 ? Math.max(digits, 4) : digits)));
}

/** Seconds with a fitting unit: 153.2 us. */
function timeText(seconds) {
  const units = ["s", "ms", "us", "ns"];
  const step = Math.min(3, Math.max(0, -Math.floor(Math.log10(seconds) / 3)));
  return `${short(seconds * 1000 ** step)} ${units[step]}`;
}

/** A duration for an axis or a tip: 42s, 3m05s, 2h07m. */
function durationText(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${seconds < 10 ? short(seconds, 2) : whole}s`;
  const two = (n) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
}

/** Operations a second as GFLOP/s. */
const speedText = (flops) => `${short(flops / 1e9)} GFLOP/s`;

/** A scale: a function from values to places, with its ticks. */
function linear([low, high], [from, to]) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.ticks = (count) => linearTicks(low, high, count);
  return scale;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  // The second limit is for numbers so large that one more is the same.
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9 && ticks.length < 100; n++) ticks.push(n * step);
  return ticks;
}

/** A scale of whole numbers: it has no ticks between them. */
function counts(domain, range) {
  const scale = linear(domain, range);
  const all = scale.ticks;
  scale.ticks = (count) => all(count).filter(Number.isInteger);
  return scale;
}

/** A scale of durations: its ticks are whole seconds, minutes and hours. */
function durations([low, high], range) {
  const scale = linear([low, high], range);
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  scale.ticks = (count) => {
    const step = steps.find((one) => (high - low) / one <= count);
    if (!step || high - low < 3) return linearTicks(low, high, count);
    return Array.from({ length: Math.floor(high / step) + 1 }, (_, n) => n * step);
  };
  return scale;
}

/** A scale of equal ratios; both ends of the domain are above 0. */
function logarithmic([low, high], range) {
  const inner = linear([Math.log(low), Math.log(high)], range);
  const scale = (value) => inner(Math.log(value));
  scale.ticks = (count) => logTicks(low, high, count);
  return scale;
}

function logTicks(low, high, count) {
  const all = (digits) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      found.push(...digits.map((digit) => digit * 10 ** power));
    }
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  };
  for (const digits of [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const found = all(digits);
    if (found.length <= count + 1 && found.length > 1) return found;
  }
  return linearTicks(low, high, count).filter((value) => value >= low && value > 0);
}

/** Low and high of some numbers, and a little more on both sides in the measure of the scale. */
function extent(values, { log = false, zero = false, pad = 0.05 } = {}) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return log ? [1, 10] : [0, 1];
  if (log) {
    const more = Math.max(Math.exp((Math.log(high) - Math.log(low)) * pad), 1.02);
    return [Math.max(low / more, Number.MIN_VALUE), Math.min(high * more, Number.MAX_VALUE / 10)];
  }
  const more = (high - low || Math.abs(high) || 1) * pad;
  return [zero ? Math.min(0, low) : low - more, high + more];
}

/**
 * The drawing of a figure: cleared, as wide as there is room, with a name for those who hear it.
 * Returns the drawing, the places of its inner edges, and a tip.
 */
function canvas(figure, { height, left = 62, right = 14, top = 14, bottom = 34, name, description = "" }) {
  figure.replaceChildren();
  const width = Math.max(260, Math.floor(figure.clientWidth || 600));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}. ${description}` });
  figure.append(svg);
  return { svg, figure, width, height, x0: left, x1: width - right, y0: height - bottom, y1: top };
}

/** Draw the axes of a drawing with its grid; `x` and `y` are scales, null for none. */
function axes(area, { x, y, xText = short, yText = short, xLabel = "", yLabel = "" }) {
  const { svg, x0, x1, y0, y1, height } = area;
  const group = shape("g", { "aria-hidden": "true" });
  for (const value of y ? y.ticks(Math.max(2, (y0 - y1) / 46)) : []) {
    const at = y(value);
    group.append(
      shape("line", { class: "grid", x1: x0, x2: x1, y1: at, y2: at }),
      shape("text", { x: x0 - 8, y: at + 4, "text-anchor": "end" }, yText(value)),
    );
  }
  let free = -Infinity;
  for (const value of x ? x.ticks(Math.max(2, (x1 - x0) / 90)) : []) {
    group.append(shape("line", { class: "axis", x1: x(value), x2: x(value), y1: y0, y2: y0 + 4 }));
    const half = 3.6 * xText(value).length;
    if (x(value) - half < free) continue; // it would touch the one before
    free = x(value) + half + 6;
    group.append(shape("text", { class: "tick", x: x(value), y: y0 + 17, "text-anchor": "middle" }, xText(value)));
  }
  group.append(shape("line", { class: "axis", x1: x0, x2: x1, y1: y0, y2: y0 }));
  if (xLabel) group.append(shape("text", { x: x1, y: height - 2, "text-anchor": "end" }, xLabel));
  if (yLabel) group.append(shape("text", { x: 0, y: y1 - 3 }, yLabel));
  svg.append(group);
}

/** Colours of the series; they come again after six. */
const colour = (number) => `var(--s${number % 6})`;

/** A small box of text that follows the pointer over a figure. */
function tip(figure) {
  const box = element("div", { class: "tip", hidden: "" });
  figure.append(box);
  return {
    show(x, y, text) {
      box.textContent = text;
      box.hidden = false;
      const room = figure.clientWidth - box.offsetWidth - 4;
      box.style.left = `${Math.max(0, Math.min(x + 12, room))}px`;
      box.style.top = `${Math.max(0, y - box.offsetHeight - 10)}px`;
    },
    hide() {
      box.hidden = true;
    },
  };
}

/** Call `find(x, y)` with places of the drawing under the pointer; it returns a text and its place. */
function follow(area, find) {
  const box = tip(area.figure);
  area.svg.addEventListener("pointermove", (event) => {
    const frame = area.svg.getBoundingClientRect();
    const ratio = area.width / frame.width;
    const found = find((event.clientX - frame.left) * ratio, (event.clientY - frame.top) * ratio);
    if (found) box.show(found.x / ratio, found.y / ratio, found.text);
    else box.hide();
  });
  area.svg.addEventListener("pointerleave", () => box.hide());
}

/** Names of colours below a figure, each with its opacity where that is not 1. */
function legend(figure, entries) {
  const list = element("ul", { class: "legend" });
  for (const [paint, text, opacity = 1] of entries) {
    const mark = element("i");
    mark.style.background = paint;
    mark.style.opacity = opacity;
    list.append(element("li", {}, mark, text));
  }
  figure.append(list);
}

/** A row of buttons of which one is pressed; `choose` is called with the value of another one. */
function choice(label, values, chosen, choose) {
  const group = element("span", { role: "group", "aria-label": label });
  for (const [value, text] of values) {
    const button = element("button", { type: "button", "aria-pressed": String(value === chosen) }, text);
    button.addEventListener("click", () => choose(value));
    group.append(button);
  }
  return group;
}
