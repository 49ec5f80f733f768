// Charts of lines: parallel coordinates, the roofline, and the accuracy of a model.

/** The best candidates as lines through the values of their knobs; one lights up under the pointer. */
function drawParallel(figure, parallel) {
  const { axes: knobs, seconds, id } = parallel;
  const [fastest, slowest] = [Math.min(...seconds), Math.max(...seconds)];
  const room = Math.max(figure.clientWidth || 600, 92 * (knobs.length + 1));
  const inner = element("div");
  inner.style.width = `${room}px`;
  figure.replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Parallel coordinates" }, inner));
  const area = canvas(inner, {
    height: 330, left: 40, right: 64, top: 34, bottom: 16, name: "Parallel coordinates of the best candidates",
    description: `${seconds.length} candidates, from ${timeText(fastest)} to ${timeText(slowest)}`,
  });
  const step = (area.x1 - area.x0) / Math.max(1, knobs.length);
  const place = (values, at) => (values.length < 2 ? (area.y0 + area.y1) / 2 : area.y0 - (at / (values.length - 1)) * (area.y0 - area.y1));
  const speed = logarithmic(extent(seconds, { log: true, pad: 0 }), [area.y1, area.y0]);
  const rank = (n) => (seconds.length < 2 ? 1 : 1 - n / (seconds.length - 1));
  const lines = shape("g", { fill: "none" });
  seconds.forEach((time, n) => {
    const points = knobs.map((knob, k) => `${(area.x0 + k * step).toFixed(1)},${place(knob.values, knob.at[n]).toFixed(1)}`);
    points.push(`${area.x1},${speed(time).toFixed(1)}`);
    const best = n === 0;
    lines.prepend(
      shape("polyline", {
        class: "candidate", "data-n": n, points: points.join(" "), stroke: best ? "var(--s1)" : "var(--s0)",
        "stroke-width": best ? 2.6 : 1.4, opacity: best ? 1 : 0.15 + 0.55 * rank(n),
      }),
    );
  });
  area.svg.append(lines);
  knobs.forEach((knob, k) => area.svg.append(parallelAxis(area, knob, area.x0 + k * step, (at) => place(knob.values, at), step)));
  area.svg.append(
    shape("line", { class: "axis", x1: area.x1, x2: area.x1, y1: area.y1, y2: area.y0 }),
    shape("text", { class: "strong", x: area.x1, y: 14, "text-anchor": "middle" }, "time"),
    ...[fastest, slowest].map((time) => shape("text", { x: area.x1 + 6, y: speed(time) + 4 }, timeText(time))),
  );
  lightUp(area, lines, (n) => `${n + 1}. ${timeText(seconds[n])}, record ${id[n]}\n${knobs.map((knob) => `${knob.name} = ${knob.values[knob.at[n]]}`).join("\n")}`);
  legend(figure, [["var(--s1)", "the best"], ["var(--s0)", `the next ${seconds.length - 1}; the stronger a line, the higher its rank`]]);
}

function parallelAxis(area, knob, x, place, step) {
  const most = Math.max(4, Math.floor((step - 16) / 7));
  const cut = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const group = shape("g");
  group.append(
    shape("line", { class: "axis", x1: x, x2: x, y1: area.y1, y2: area.y0 }),
    shape("text", { class: "strong", x, y: 14, "text-anchor": "middle" }, cut(knob.name), shape("title", {}, knob.name)),
  );
  const every = Math.ceil(knob.values.length / 14);
  knob.values.forEach((value, at) => {
    if (at % every) return;
    const text = shape("text", { x: x + 5, y: place(at) + 4 }, cut(value), shape("title", {}, value));
    text.style.paintOrder = "stroke";
    text.style.stroke = "var(--card)";
    text.style.strokeWidth = "3px";
    group.append(text);
  });
  return group;
}

/** Let the line under the pointer stand out, and say what it is. */
function lightUp(area, lines, text) {
  const box = tip(area.figure);
  area.figure.style.position = "relative";
  for (const line of lines.children) {
    const { opacity, strokeWidth } = { opacity: line.getAttribute("opacity"), strokeWidth: line.getAttribute("stroke-width") };
    line.style.pointerEvents = "stroke";
    line.addEventListener("pointerenter", (event) => {
      const frame = area.svg.getBoundingClientRect();
      line.setAttribute("opacity", 1);
      line.setAttribute("stroke-width", 3.4);
      box.show(event.clientX - frame.left, event.clientY - frame.top, text(Number(line.dataset.n)));
    });
    line.addEventListener("pointerleave", () => {
      line.setAttribute("opacity", opacity);
      line.setAttribute("stroke-width", strokeWidth);
      box.hide();
    });
  }
}

function drawRoofline(figure, roofline) {
  const { intensity, speed, flops, bandwidth } = roofline;
  const area = canvas(figure, {
    height: 260, name: "Roofline", description: `${speedText(speed)} at ${short(intensity)} operations a byte`,
  });
  const slope = bandwidth && intensity * bandwidth;
  const known = [speed, roofline.default_speed, flops || slope].filter((value) => value);
  const ridge = flops && bandwidth ? flops / bandwidth : intensity;
  const xs = [Math.min(intensity, ridge) / 8, Math.max(intensity, ridge) * 8];
  const ys = [Math.min(...known) / 4, Math.max(...known) * 2.5];
  const x = logarithmic(xs, [area.x0, area.x1]);
  const y = logarithmic(ys, [area.y0, area.y1 + 4]);
  axes(area, { x, y, yText: (v) => short(v / 1e9), xLabel: "operations a byte of the arguments", yLabel: "GFLOP/s" });
  area.svg.append(roof({ x, y, xs, ys }, flops, bandwidth));
  const middle = (area.x0 + area.x1) / 2;
  const side = x(intensity) > middle ? { x: x(intensity) - 10, "text-anchor": "end" } : { x: x(intensity) + 10 };
  const mark = (value, paint, text, height) => {
    area.svg.append(
      shape("circle", { class: "kernel", cx: x(intensity), cy: y(value), r: 5.5, fill: paint, stroke: "var(--card)", "stroke-width": 1.5 }),
      shape("text", { class: "strong", ...side, y: height }, text),
    );
  };
  // Below the roof where it is near; and the slower one below the other.
  const first = y(speed) + (flops && y(speed) - y(flops) < 22 ? 17 : 5);
  const other = roofline.default_speed;
  if (other) mark(other, "var(--s3)", `default ${speedText(other)}`, other > speed ? y(other) - 9 : Math.max(y(other) + 5, first + 15));
  const share = flops && area.width > 480 ? ` (${Math.round((speed / flops) * 100)} %)` : "";
  mark(speed, "var(--s1)", `best ${speedText(speed)}${share}`, first);
}

/** The limits of the machine that are known: a slope, a ceiling, or both. */
function roof({ x, y, xs, ys }, flops, bandwidth) {
  const group = shape("g", { stroke: "var(--ink)", "stroke-width": 1.8 });
  const label = (text, place, height, anchor) => shape("text", { x: place, y: height, "text-anchor": anchor, stroke: "none" }, text);
  if (flops) {
    const from = Math.max(xs[0], bandwidth ? flops / bandwidth : 0);
    group.append(shape("line", { class: "roof", x1: x(from), x2: x(xs[1]), y1: y(flops), y2: y(flops) }));
    group.append(label(`arithmetic: ${speedText(flops)}`, x(xs[1]), y(flops) - 6, "end"));
  }
  if (bandwidth) {
    const from = Math.max(xs[0], ys[0] / bandwidth);
    const to = Math.min(xs[1], (flops || ys[1]) / bandwidth);
    group.append(shape("line", { class: "roof", x1: x(from), x2: x(to), y1: y(from * bandwidth), y2: y(to * bandwidth) }));
    group.append(label(`memory: ${short(bandwidth / 1e9)} GB/s`, x(from) + 36, y(from * bandwidth) - 2, "start"));
  }
  return group;
}

function drawAccuracy(figure, accuracy) {
  const { trial, correlation, count, trained_on: rows } = accuracy;
  const area = canvas(figure, {
    height: 200, name: "How well trees predict the next trials", description: `rank correlation from ${short(Math.min(...correlation), 2)} to ${short(Math.max(...correlation), 2)}`,
  });
  const last = Math.max(...trial);
  const x = last > 40 * trial[0] ? logarithmic([trial[0] * 0.9, last * 1.1], [area.x0, area.x1]) : linear([0, last * 1.02], [area.x0, area.x1]);
  const y = linear([Math.min(0, ...correlation), 1], [area.y0, area.y1 + 6]);
  axes(area, { x, y, xText: (n) => short(n, 6), xLabel: "trials before", yLabel: "rank correlation", yText: (v) => v.toFixed(1) });
  const points = trial.map((at, place) => `${x(at).toFixed(1)},${y(correlation[place]).toFixed(1)}`);
  area.svg.append(
    shape("line", { class: "axis", x1: area.x0, x2: area.x1, y1: y(0), y2: y(0), "stroke-dasharray": "4 4" }),
    shape("polyline", { class: "accuracy", points: points.join(" "), fill: "none", stroke: "var(--s0)", "stroke-width": 2 }),
    ...trial.map((at, place) => shape("circle", { cx: x(at), cy: y(correlation[place]), r: 3.4, fill: "var(--s0)" })),
  );
  follow(area, (px) => {
    const place = trial.reduce((best, at, n) => (Math.abs(x(at) - px) < Math.abs(x(trial[best]) - px) ? n : best), 0);
    const text = `rank correlation ${correlation[place].toFixed(2)}\non the next ${count[place]} trials, learned from ${rows[place]}`;
    return { x: x(trial[place]), y: y(correlation[place]), text };
  });
}
