// The page as a whole: which task is shown, when its charts are drawn, and what is new.

let page = JSON.parse(document.getElementById("data").textContent);

const CHARTS = {
  curve: (figure, task) => drawCurve(figure, task.series, task.key),
  shares: (figure, task, series) => drawShares(figure, series.knobs),
  knob: (figure, task, series) => drawKnob(figure, series.knobs[figure.dataset.knob]),
  parallel: (figure, task, series) => drawParallel(figure, series.parallel),
  roofline: (figure, task, series) => drawRoofline(figure, series.roofline),
  accuracy: (figure, task, series) => drawAccuracy(figure, series.accuracy),
  throughput: (figure, task, series, log) => drawThroughput(figure, log.throughput),
  time: (figure, task, series, log) => drawTime(figure, log.time),
  model: (figure) => drawModel(figure, page.model),
};

/** Draw the charts that can be seen; a figure that is hidden has no width yet. */
function drawAll() {
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    if (!figure.offsetParent) continue;
    const { chart, task, series, log } = figure.dataset;
    const ofTask = page.tasks[task];
    CHARTS[chart](figure, ofTask, ofTask && ofTask.series[series], page.logs[log]);
  }
}

/** The task that the address names: #task-3; the overview, or the only task, without one. */
function chosenTask() {
  const named = location.hash.match(/^#task-(\d+)$/);
  if (named && Number(named[1]) < page.tasks.length) return Number(named[1]);
  return page.tasks.length === 1 ? 0 : -1;
}

function show() {
  const chosen = chosenTask();
  for (const part of document.querySelectorAll("[data-part]")) {
    part.hidden = part.dataset.part !== (chosen < 0 ? "overview" : `task-${chosen}`);
  }
  const select = document.getElementById("task");
  if (select) select.value = String(chosen);
  drawAll();
}

function enhance() {
  for (const table of document.querySelectorAll("table[data-sortable]")) enhanceTable(table);
  const select = document.getElementById("task");
  if (select) {
    select.addEventListener("change", () => {
      location.hash = select.value === "-1" ? "overview" : `task-${select.value}`;
    });
  }
}

/** Ask for what is new every few seconds; nothing is replaced while nothing has changed. */
function followLogs(seconds) {
  const said = document.getElementById("live");
  let stamp = document.documentElement.dataset.stamp;
  const ask = async () => {
    try {
      const answer = await fetch("live", { headers: { "X-Stamp": stamp }, cache: "no-store" });
      if (answer.status === 200) {
        const news = await answer.json();
        stamp = news.stamp;
        replace(news);
      }
      said.textContent = answer.ok ? "live" : `the server answers ${answer.status}`;
    } catch {
      said.textContent = "the dashboard has ended; this is the last that it said";
    }
    setTimeout(ask, seconds * 1000);
  };
  setTimeout(ask, seconds * 1000);
}

/** Put a new state of the logs in place of the old one; the reader's choices and place stay. */
function replace({ data, main, nav, title, logs }) {
  page = data;
  const active = document.activeElement && document.activeElement.id;
  const folds = [...document.querySelectorAll("details[id]")].map((one) => [one.id, one.open]);
  const { scrollX, scrollY } = window;
  document.title = title;
  document.getElementById("logs").textContent = logs;
  document.getElementById("page").innerHTML = main;
  document.getElementById("choose").innerHTML = nav;
  for (const [id, open] of folds) document.getElementById(id)?.toggleAttribute("open", open);
  enhance();
  show();
  scrollTo(scrollX, scrollY);
  const again = active && document.getElementById(active);
  if (again) {
    again.focus({ preventScroll: true });
    if (again.type === "search") again.setSelectionRange(again.value.length, again.value.length);
  }
}

document.documentElement.classList.add("script");
enhance();
show();
addEventListener("hashchange", () => {
  show();
  scrollTo(0, 0);
});
// A figure inside of a part that was folded gets its width when it is opened.
document.addEventListener("toggle", drawAll, true);
let waiting = 0;
let drawnAt = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnAt) return;
  drawnAt = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(drawAll);
});
const every = Number(document.documentElement.dataset.live || 0);
if (every) followLogs(every);
