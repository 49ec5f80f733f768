// The best so far, and the trials around it.

/** What the reader chose of each curve, kept when it is drawn anew. */
const chosenOfCurve = new Map();

function drawCurve(figure, series, key) {
  const known = series.every((one) => one.flop > 0);
  const chosen = chosenOfCurve.get(key) || { x: "trial", y: known ? "speed" : "time" };
  if (!known) chosen.y = "time";
  chosenOfCurve.set(key, chosen);
  const again = () => drawCurve(figure, series, key);
  const shown = series.flatMap((one) => one.points.seconds).some((value) => value !== null);
  const area = canvas(figure, { height: shown ? 340 : 40, name: "Best so far", description: curveInWords(series) });
  if (!shown) {
    area.svg.append(shape("text", { x: 0, y: 24 }, "No trial has a time yet."));
    return;
  }
  const value = chosen.y === "speed" ? (one, s) => one.flop / s : (one, s) => s;
  const scales = curveScales(area, series, chosen, value);
  axes(area, {
    ...scales,
    xText: chosen.x === "trial" ? (n) => short(n, 6) : durationText,
    yText: chosen.y === "speed" ? (v) => short(v / 1e9) : timeText,
    xLabel: chosen.x === "trial" ? "trials so far" : "time of tuning",
    yLabel: chosen.y === "speed" ? "GFLOP/s" : "time of a call",
  });
  series.forEach((one, number) => drawTrials(area, one, number, chosen, value, scales));
  series.forEach((one, number) => drawSteps(area, one, number, chosen, value, scales));
  follow(area, (x, y) => nearestTrial(series, chosen, value, scales, x, y));
  curveLegend(figure, series);
  const tools = element("div", { class: "tools" });
  tools.append(
    choice("horizontal axis", [["trial", "by trial"], ["clock", "by time"]], chosen.x, (x) => { chosen.x = x; again(); }),
  );
  if (known) {
    tools.append(
      choice("vertical axis", [["speed", "GFLOP/s"], ["time", "time of a call"]], chosen.y, (y) => { chosen.y = y; again(); }),
    );
  }
  figure.prepend(tools);
}

function curveInWords(series) {
  return series.map((one) => {
    const last = one.steps.seconds.length - 1;
    if (last < 0) return `${one.label}: no trial has a time`;
    return `${one.label}: from ${timeText(one.steps.seconds[0])} to ${timeText(one.steps.seconds[last])} in ${one.points.total} trials, ${last + 1} steps`;
  }).join("; ");
}

function curveScales(area, series, chosen, value) {
  const xs = series.flatMap((one) => [...one.points[chosen.x], ...one.steps[chosen.x]]);
  const ys = series.flatMap((one) => [
    ...one.points.seconds.filter((s) => s !== null).map((s) => value(one, s)),
    ...one.steps.low.map((s) => value(one, s)),
    ...one.steps.high.map((s) => value(one, s)),
  ]);
  const speed = chosen.y === "speed";
  const make = speed ? linear : logarithmic;
  const domain = extent(ys, speed ? { zero: true } : { log: true });
  return {
    x: (chosen.x === "trial" ? counts : durations)([0, xs.reduce((a, b) => Math.max(a, b), 1)], [area.x0, area.x1]),
    y: make(domain, [area.y0 - 10, area.y1 + 6]),
  };
}

/** Trials as dots; failures as ticks at the bottom. */
function drawTrials(area, one, number, chosen, value, { x, y }) {
  const dots = shape("g", { fill: colour(number), "aria-hidden": "true" });
  const fails = shape("g", { stroke: "var(--bad)", "stroke-width": 1.2, opacity: 0.75, "aria-hidden": "true" });
  one.points.seconds.forEach((seconds, place) => {
    const at = x(one.points[chosen.x][place]).toFixed(1);
    if (seconds === null) {
      fails.append(shape("line", { class: "failure", x1: at, x2: at, y1: area.y0, y2: area.y0 - 7 }));
      return;
    }
    const weak = one.points.kind[place] === 1;
    dots.append(
      shape("circle", {
        class: "trial", cx: at, cy: y(value(one, seconds)).toFixed(1), r: weak ? 1.6 : 2.4, opacity: weak ? 0.25 : 0.45,
      }),
    );
  });
  area.svg.append(dots, fails);
}

/** The best so far as a line of steps, with the range of its timed windows as a band. */
function drawSteps(area, one, number, chosen, value, { x, y }) {
  const { steps, points } = one;
  if (!steps.seconds.length) return;
  const at = steps[chosen.x];
  const end = Math.max(at[at.length - 1], ...points[chosen.x].slice(-1));
  const corners = (times) => {
    const found = [];
    times.forEach((seconds, place) => {
      const height = y(value(one, seconds)).toFixed(1);
      found.push(`${x(at[place]).toFixed(1)},${height}`);
      found.push(`${x(place + 1 < at.length ? at[place + 1] : end).toFixed(1)},${height}`);
    });
    return found;
  };
  const band = [...corners(steps.low), ...corners(steps.high).reverse()].join(" ");
  area.svg.append(
    shape("polygon", { class: "band", points: band, fill: colour(number), opacity: 0.18 }),
    shape("polyline", {
      class: "best", points: corners(steps.seconds).join(" "), fill: "none", stroke: colour(number), "stroke-width": 2.2,
      "stroke-linejoin": "round",
    }),
  );
  steps.seconds.forEach((seconds, place) => {
    area.svg.append(
      shape("circle", {
        class: "step", cx: x(at[place]).toFixed(1), cy: y(value(one, seconds)).toFixed(1), r: 3.6, fill: colour(number),
        stroke: "var(--card)", "stroke-width": 1.2,
      }),
    );
  });
}

/** The trial that is nearest to a place of the drawing, in words. */
function nearestTrial(series, chosen, value, { x, y }, px, py) {
  let found = null, nearest = 18 ** 2;
  const look = (at, height, text) => {
    const distance = (at - px) ** 2 + (height - py) ** 2;
    if (distance < nearest) [nearest, found] = [distance, { x: at, y: height, text: text() }];
  };
  const words = (one, columns, place) => {
    const seconds = columns.seconds[place];
    const speed = one.flop ? `, ${speedText(one.flop / seconds)}` : "";
    const count = columns.trial[place];
    const trials = `${count} trial${count === 1 ? "" : "s"} so far`;
    return `${trials}, after ${durationText(columns.clock[place])}\n${timeText(seconds)}${speed}`;
  };
  for (const one of series) {
    one.points.seconds.forEach((seconds, place) => {
      if (seconds === null) return;
      const dropped = one.points.kind[place] === 1 ? "\nnever the best: dropped or refuted" : "";
      look(x(one.points[chosen.x][place]), y(value(one, seconds)), () => words(one, one.points, place) + dropped);
    });
    one.steps.seconds.forEach((seconds, place) => {
      const range = `\nwindows from ${timeText(one.steps.low[place])} to ${timeText(one.steps.high[place])}\nrecord ${one.steps.id[place]}`;
      look(x(one.steps[chosen.x][place]), y(value(one, seconds)) - 0.01, () => words(one, one.steps, place) + range);
    });
  }
  return found;
}

function curveLegend(figure, series) {
  const entries = series.length > 1 ? series.map((one, number) => [colour(number), one.label]) : [[colour(0), "best so far, with the range of its windows; dots are trials"]];
  if (series.some((one) => one.points.kind.includes(1))) {
    entries.push([series.length > 1 ? "var(--soft)" : colour(0), "faint dots: dropped early, or refuted later", 0.35]);
  }
  if (series.some((one) => one.points.kind.includes(2))) entries.push(["var(--bad)", "failed trial"]);
  legend(figure, entries);
}

/** What the reader chose of the curve of a model, kept when it is drawn anew. */
const chosenOfModel = { x: "clock", y: "time" };

/** The expected time of a run of a model, while its kernels were tuned. */
function drawModel(figure, model) {
  const { steps, trials, spent } = model;
  const times = steps.seconds;
  const last = times.length - 1;
  const words = last < 0 ? "no run has a time" : `from ${timeText(times[0])} to ${timeText(times[last])} a run`;
  const area = canvas(figure, { height: last < 0 ? 40 : 260, name: "Expected time of a run", description: words });
  if (last < 0) {
    area.svg.append(shape("text", { x: 0, y: 24 }, "Not every task has a time yet."));
    return;
  }
  const chosen = chosenOfModel;
  const one = { label: model.name, flop: 0, steps, points: { trial: [trials], clock: [spent], seconds: [null], kind: [0] } };
  const scales = curveScales(area, [one], chosen, (_, seconds) => seconds);
  axes(area, {
    ...scales,
    xText: chosen.x === "trial" ? (n) => short(n, 6) : durationText,
    yText: timeText,
    xLabel: chosen.x === "trial" ? "trials of all tasks so far" : "time of tuning",
    yLabel: "time of a run",
  });
  drawSteps(area, one, 0, chosen, (_, seconds) => seconds, scales);
  follow(area, (x, y) => nearestTrial([one], chosen, (_, seconds) => seconds, scales, x, y));
  const tools = element("div", { class: "tools" });
  tools.append(
    choice("horizontal axis", [["trial", "by trial"], ["clock", "by time"]], chosen.x, (x) => { chosen.x = x; drawModel(figure, model); }),
  );
  figure.prepend(tools);
}
