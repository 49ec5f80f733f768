// Bars: trials a minute, where the time went, shares of the knobs and of the errors.

function drawThroughput(figure, throughput) {
  const { successful, failed, interval } = throughput;
  const pace = successful.map((count, place) => ((count + failed[place]) / interval) * 60);
  const end = interval * successful.length;
  const area = canvas(figure, {
    height: 190, name: "Trials a minute", description: `from ${short(Math.min(...pace), 3)} to ${short(Math.max(...pace), 3)} over ${durationText(end)}`,
  });
  const x = durations([0, end], [area.x0, area.x1]);
  const y = linear([0, Math.max(...pace, 1) * 1.08], [area.y0, area.y1 + 8]);
  axes(area, { x, y, xText: durationText, xLabel: "time of searching", yLabel: "trials a minute" });
  const width = Math.max(1, x(interval) - x(0) - 1.5);
  successful.forEach((count, place) => {
    const good = (count / interval) * 60, bad = (failed[place] / interval) * 60;
    const at = x(place * interval) + 0.75;
    area.svg.append(
      shape("rect", { class: "bar", x: at, width, y: y(good), height: area.y0 - y(good), fill: "var(--s0)", rx: 1.5 }),
      shape("rect", { x: at, width, y: y(good + bad), height: y(good) - y(good + bad), fill: "var(--bad)", rx: 1.5 }),
    );
  });
  follow(area, (px) => {
    const place = Math.floor((px - area.x0) / (x(interval) - x(0)));
    if (place < 0 || place >= successful.length) return null;
    const text = `${durationText(place * interval)} to ${durationText((place + 1) * interval)}\n${successful[place]} trials, ${failed[place]} failed`;
    return { x: x((place + 0.5) * interval), y: y(pace[place]), text };
  });
  if (failed.some((count) => count > 0)) legend(figure, [["var(--s0)", "successful"], ["var(--bad)", "failed"]]);
}

const TIME_PARTS = [
  ["run", "running and checking kernels", "var(--s0)"],
  ["build", "building (estimated)", "var(--s1)"],
  ["again", "measuring again: playoffs, drift", "var(--s2)"],
  ["rest", "the rest: search, waiting", "var(--s3)"],
];

function drawTime(figure, time) {
  const parts = TIME_PARTS.map(([name, text, paint]) => ({ seconds: time[name], text, paint }));
  const words = parts.map((part) => `${part.text} ${durationText(part.seconds)}`).join(", ");
  const area = canvas(figure, { height: 40, left: 0, right: 0, top: 4, bottom: 4, name: "Where the time went", description: words });
  let at = area.x0;
  for (const { seconds, text, paint } of parts) {
    const width = (seconds / (time.wall || 1)) * (area.x1 - area.x0);
    if (width <= 0) continue;
    const label = `${Math.round((seconds / time.wall) * 100)} %`;
    area.svg.append(shape("rect", { x: at, y: 4, width: Math.max(0.5, width - 1.5), height: 30, fill: paint, rx: 3 }, shape("title", {}, `${text}: ${durationText(seconds)}`)));
    if (width > 44) area.svg.append(shape("text", { x: at + width / 2, y: 24, "text-anchor": "middle", style: "fill: var(--paper); font-weight: 600" }, label));
    at += width;
  }
  legend(figure, parts.map((part) => [part.paint, `${part.text}: ${durationText(part.seconds)} (${short((part.seconds / (time.wall || 1)) * 100, 2)} %)`]));
}

/** One bar for each knob: the share of the variance that it explains. */
function drawShares(figure, knobs) {
  const known = knobs.filter((knob) => knob.share !== null);
  const row = 26;
  const left = Math.min(220, Math.max(80, ...known.map((knob) => 10 + 7.2 * knob.name.length)));
  const area = canvas(figure, {
    height: row * known.length + 8, left, right: 52, top: 4, bottom: 4, name: "Share of the variance that each knob explains",
    description: known.map((knob) => `${knob.name} ${Math.round(knob.share * 100)} %`).join(", "),
  });
  const x = linear([0, Math.max(...known.map((knob) => knob.share), 0.01)], [area.x0, area.x1]);
  known.forEach((knob, place) => {
    const y = 4 + place * row;
    const room = Math.floor((left - 10) / 7);
    const name = knob.name.length > room ? `${knob.name.slice(0, room - 1)}…` : knob.name;
    area.svg.append(
      shape("text", { class: "strong", x: left - 8, y: y + 16, "text-anchor": "end" }, name, shape("title", {}, knob.name)),
      shape("rect", { class: "share", x: area.x0, y: y + 4, width: Math.max(1, x(knob.share) - area.x0), height: row - 9, fill: "var(--s0)", rx: 2.5 }),
      shape("text", { x: Math.max(1, x(knob.share) - area.x0) + area.x0 + 6, y: y + 16 }, `${short(knob.share * 100, 2)} %`),
    );
  });
}

/** The times that go with each value of a knob: quartiles as a bar, the median and the best as marks. */
function drawKnob(figure, knob) {
  const row = 22;
  const label = (value) => (value.text.length > 18 ? `${value.text.slice(0, 17)}…` : value.text);
  const left = Math.min(150, Math.max(56, ...knob.values.map((value) => 12 + 7 * label(value).length)));
  const area = canvas(figure, {
    height: row * knob.values.length + 44, left, right: 16, top: 4, bottom: 36, name: `Times by the value of ${knob.name}`,
    description: knob.values.map((value) => `${value.text}: median ${timeText(value.middle)} of ${value.count}`).join(", "),
  });
  const x = logarithmic(extent(knob.values.flatMap((v) => [v.low, v.high, v.best]), { log: true }), [area.x0, area.x1]);
  axes(area, { x, xText: timeText, xLabel: "time of a call" });
  knob.values.forEach((value, place) => {
    const y = 4 + place * row;
    area.svg.append(
      shape("text", { class: "strong", x: left - 8, y: y + 15, "text-anchor": "end" }, label(value)),
      shape("line", { class: "grid", x1: area.x0, x2: area.x1, y1: y + 11, y2: y + 11 }),
      shape("rect", { class: "quartiles", x: x(value.low), y: y + 5, width: Math.max(2, x(value.high) - x(value.low)), height: 12, fill: "var(--s0)", opacity: 0.35, rx: 2 }),
      shape("line", { x1: x(value.middle), x2: x(value.middle), y1: y + 3, y2: y + 19, stroke: "var(--s0)", "stroke-width": 2.4 }),
      shape("circle", { cx: x(value.best), cy: y + 11, r: 3.2, fill: "var(--s1)" }),
    );
  });
  follow(area, (px, py) => {
    const value = knob.values[Math.floor((py - 4) / row)];
    if (!value) return null;
    const text = `${knob.name} = ${value.text}\n${value.count} trials, median ${timeText(value.middle)}\nquartiles ${timeText(value.low)} to ${timeText(value.high)}\nbest ${timeText(value.best)}`;
    return { x: px, y: py, text };
  });
  legend(figure, [["var(--s0)", "middle half", 0.35], ["var(--s0)", "median"], ["var(--s1)", "best"]]);
}
