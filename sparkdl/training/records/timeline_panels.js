// The pointer, the keys and the buttons.
const stage = find("stage"), tooltip = find("tooltip");
const timeAt = (event) => {
  const box = canvas.getBoundingClientRect();
  return view.from + (view.to - view.from) * (event.clientX - box.left - GUTTER) / (box.width - GUTTER);
};
const laneAt = (event) => Math.floor((event.clientY - canvas.getBoundingClientRect().top - AXIS) / (laneHeight + GAP));
function eventAt(lane, time) {
  const slack = 3 * (view.to - view.from) / (canvas.clientWidth - GUTTER);
  let best = -1, least = Infinity;
  for (let i = lowerBound(lane, time - longest[lane] - slack); i < first[lane + 1] && start[i] <= time + slack; i++) {
    const away = Math.max(start[i] - time, time - end[i], 0);
    if (away <= slack && away * 1e3 + (end[i] - start[i]) < least) {
      best = i;
      least = away * 1e3 + (end[i] - start[i]);
    }
  }
  return best;
}
function told(lane, i) {
  const [rank, host, device] = workers[lane], [, words] = phases[columns.phase[i]];
  const fact = (name, text) => (columns[name].length && columns[name][i] >= 0 ? [text(columns[name][i])] : []);
  const lines = [
    `${duration(end[i] - start[i])}, from ${start[i].toFixed(6)} s`,
    [...fact("epoch", (n) => `epoch ${n + 1}`), ...fact("step", (n) => `step ${n + 1}`)].join(", "),
    [...fact("rows", (n) => `${number(n)} rows`), ...fact("bytes", (n) => `${number(n)} bytes`)].join(", "),
    standsFor(i) > 1 ? `stands for ${standsFor(i)} steps` : "",
    `worker ${rank} on ${host}, ${device}`,
  ];
  return [element("b", {}, words), ...lines.filter(Boolean).flatMap((line) => [element("br"), line])];
}
function point(event) {
  const lane = laneAt(event), time = timeAt(event), inside = time >= view.from && lane >= 0 && lane < workers.length;
  const i = inside ? eventAt(lane, time) : -1;
  tooltip.hidden = i < 0;
  const x = event.clientX - canvas.getBoundingClientRect().left;
  Object.assign(find("cursor").style, { left: `${x}px`, display: inside ? "block" : "none" });
  if (i < 0) return;
  tooltip.replaceChildren(...told(lane, i));
  const right = event.clientX + 16 + tooltip.offsetWidth > window.innerWidth;
  tooltip.style.left = `${right ? event.clientX - 16 - tooltip.offsetWidth : event.clientX + 16}px`;
  tooltip.style.top = `${Math.max(4, Math.min(event.clientY + 14, window.innerHeight - tooltip.offsetHeight - 8))}px`;
}
let dragged = null;
canvas.addEventListener("pointerdown", (event) => {
  dragged = { time: timeAt(event), x: event.clientX };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (dragged) {
    const by = dragged.time - timeAt(event);
    show(view.from + by, view.to + by);
  }
  point(event);
});
for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { dragged = null; });
canvas.addEventListener("pointerleave", () => {
  tooltip.hidden = true;
  find("cursor").style.display = "none";
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const pixels = event.deltaMode === 1 ? 30 : 1;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(pixels * event.deltaX / canvas.clientWidth);
  else zoom(1.0025 ** (pixels * event.deltaY), Math.max(view.from, timeAt(event)));
}, { passive: false });
const actions = {
  left: () => pan(-0.25), right: () => pan(0.25), in: () => zoom(0.5), out: () => zoom(2),
  all: () => show(whole.from, whole.to),
};
const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "all" };
stage.addEventListener("keydown", (event) => {
  if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  actions[keys[event.key]]();
});
find("buttons").addEventListener("click", (event) => actions[event.target.dataset.do]?.());
window.addEventListener("hashchange", () => { view = readHash(); requestDraw(); });
window.addEventListener("resize", requestDraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", requestDraw);

const swatch = (colour) => element("span", { class: "swatch", style: `background:${colour}` });
phases.forEach(([, words, colour], p) => {
  const button = element("button", { "aria-pressed": "false", title: "Show it alone" }, swatch(colour), words);
  button.addEventListener("click", () => {
    alone = alone === p ? -1 : p;
    find("key").childNodes.forEach((other, i) => other.setAttribute("aria-pressed", String(i === alone)));
    requestDraw();
  });
  find("key").append(button);
});

// What the numbers say.
function about() {
  const epochs = data.history.length, seconds = data.history.reduce((sum, epoch) => sum + epoch.seconds, 0);
  const rows = data.history.reduce((sum, epoch) => sum + epoch.rows, 0);
  const plural = (many, thing) => `${number(many)} ${thing}${many === 1 ? "" : "s"}`;
  find("about").textContent = [
    ...(count ? [plural(workers.length, "worker"), duration(total)] : []), plural(epochs, "epoch"),
    ...(seconds ? [`${number(rows / seconds)} rows/s in training`] : []),
    ...(count ? [`began ${new Date(1000 * data.began).toISOString().slice(0, 19).replace("T", " ")} UTC`] : []),
  ].join(" · ");
}
function shares() {
  const body = find("shares").tBodies[0];
  data.shares.forEach(({ phases: parts, other, compute, exchange, waiting }, i) => {
    const stack = element("div", { class: "stack" });
    parts.forEach((share, p) => {
      const title = `${phases[p][1]}: ${percent(share)}`;
      stack.append(element("span", { style: `width:${100 * share}%;background:${phases[p][2]}`, title }));
    });
    stack.title = `all else: ${percent(other)}`;
    const name = i ? `${workers[i - 1][0]}  ${workers[i - 1][1]}` : "all";
    const cells = [compute, exchange, waiting].map((share) => element("td", {}, percent(share)));
    body.append(element("tr", {}, element("td", { title: name }, name), element("td", {}, stack), ...cells));
  });
}
function curves() {
  const W = 520, H = 250, left = 48, right = 96, top = 10, bottom = 34, history = data.history;
  const lines = [["training", "loss", "var(--accent)"], ["validation", "validation_loss", "var(--second)"]]
    .map(([name, field, colour]) => ({ name, colour, points: history.map((e, i) => [i + 1, e[field]]) }))
    .map((line) => ({ ...line, points: line.points.filter(([, loss]) => loss !== null) }))
    .filter((line) => line.points.length);
  if (!lines.length) return void find("curves").append(element("p", { class: "note" }, "No epoch was trained."));
  const all = lines.flatMap((line) => line.points.map(([, loss]) => loss));
  const most = Math.max(...all), spread = most - Math.min(...all) || Math.abs(most) || 1;
  const least = Math.min(...all) >= 0 && Math.min(...all) < 0.6 * most ? 0 : Math.min(...all) - 0.08 * spread;
  const high = most + 0.04 * spread;
  const x = (epoch) => left + (W - left - right) * (history.length > 1 ? (epoch - 1) / (history.length - 1) : 0.5);
  const y = (loss) => top + (H - top - bottom) * (high - loss) / (high - least);
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "loss by epoch" });
  const levels = ticks(least, high, 5), digits = Math.max(0, -Math.floor(Math.log10(levels.step) + 1e-9));
  for (const level of levels.found) {
    svg.append(element("line", { x1: left, x2: W - right, y1: y(level), y2: y(level), stroke: "var(--line)" }));
    svg.append(element("text", { x: left - 8, y: y(level) + 4, "text-anchor": "end" }, level.toFixed(digits)));
  }
  const every = Math.max(1, Math.ceil(history.length / 8));
  for (let epoch = 1; epoch <= history.length; epoch += every) {
    svg.append(element("text", { x: x(epoch), y: H - bottom + 17, "text-anchor": "middle" }, epoch));
  }
  svg.append(element("text", { x: (left + W - right) / 2, y: H - 2, "text-anchor": "middle" }, "epoch"));
  const ends = lines.map(({ points }) => y(points[points.length - 1][1]));
  if (ends.length > 1 && Math.abs(ends[0] - ends[1]) < 14) {
    const [middle, sign] = [(ends[0] + ends[1]) / 2, ends[0] < ends[1] ? 1 : -1];
    ends.splice(0, 2, middle - 7 * sign, middle + 7 * sign);
  }
  lines.forEach(({ name, colour, points }, i) => {
    const places = points.map(([epoch, loss]) => `${x(epoch).toFixed(1)} ${y(loss).toFixed(1)}`);
    svg.append(element("path", { d: `M${places.join("L")}`, fill: "none", stroke: colour, "stroke-width": 2 }));
    for (const [epoch, loss] of points) {
      const title = element("title", {}, `${name} loss of epoch ${epoch}: ${loss.toPrecision(5)}`);
      const radius = points.length > 60 ? 1.5 : 3;
      svg.append(element("circle", { cx: x(epoch), cy: y(loss), r: radius, fill: colour }, title));
    }
    const last = x(points[points.length - 1][0]);
    svg.append(element("text", { x: last + 9, y: ends[i] + 4, style: `fill:${colour};font-weight:600` }, name));
  });
  find("curves").append(svg);
}
function histogram({ counts, edges, logarithmic, number: times, total: seconds, median, high }, [, words, colour]) {
  const W = 260, H = 92, floor = H - 18, most = Math.max(...counts), width = W / counts.length;
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `durations of ${words}` });
  counts.forEach((many, i) => {
    if (!many) return;
    const tall = Math.max(1.5, (floor - 4) * many / most);
    const title = element("title", {}, `${duration(edges[i])} to ${duration(edges[i + 1])}: ${number(many)} times`);
    const box = { x: i * width + 0.5, y: floor - tall, width: width - 1, height: tall, fill: colour };
    svg.append(element("rect", box, title));
  });
  svg.append(element("line", { x1: 0, x2: W, y1: floor, y2: floor, stroke: "var(--soft)" }));
  svg.append(element("text", { x: 0, y: H - 4 }, duration(edges[0])));
  svg.append(element("text", { x: W, y: H - 4, "text-anchor": "end" }, duration(edges[edges.length - 1])));
  if (logarithmic) svg.append(element("text", { x: W / 2, y: H - 4, "text-anchor": "middle" }, "logarithmic"));
  const sum = element("span", { class: "note" }, `${number(times)} in ${duration(seconds)}`);
  const caption = element("figcaption", {}, swatch(colour), words, " · ", sum);
  const note = `median ${duration(median)}, 95 % within ${duration(high)}`;
  return element("figure", {}, caption, element("p", { class: "note" }, note), svg);
}
about();
shares();
curves();
find("histograms").append(...data.histograms.map((one, p) => histogram(one, phases[p])));
find("words").append(...data.report.map((line) => element("p", {}, line)));
if (!count) for (const part of ["words", "histograms", "shares"]) find(part).closest("section").hidden = true;
view = readHash();
draw();
facts.ready = "yes";
