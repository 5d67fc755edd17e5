"use strict";
// What went wrong and what is shown stands in the page's attributes, where a test reads it.
const facts = document.getElementById("facts").dataset;
facts.errors = "";
window.onerror = (message) => { facts.errors += message + "; "; };

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const { phases, workers, columns } = data;
const count = columns.phase.length;
const GUTTER = 150, AXIS = 22, GAP = 2, MARGIN = 0.01;

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "rect", "line", "circle", "text", "title"].includes(name);
  const made = svg ? document.createElementNS(find("blank").namespaceURI, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Numbers as people read them.
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const precise = (value) => Number(value.toPrecision(3)).toString();
function duration(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${precise(seconds * 1e6)} µs`;
  if (size < 1) return `${precise(seconds * 1e3)} ms`;
  if (size < 100) return `${precise(seconds)} s`;
  const whole = Math.round(seconds), pad = (value) => String(value).padStart(2, "0");
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`
    : `${Math.floor(whole / 3600)} h ${pad(Math.floor(whole / 60) % 60)} min ${pad(whole % 60)} s`;
}

// Events as typed arrays of seconds, lane after lane; `first[i]` is where lane i begins.
const start = new Float64Array(count), end = new Float64Array(count);
const first = [0], longest = [];
let total = 0;
for (const size of columns.counts) {
  const from = first[first.length - 1];
  let time = 0, most = 0;
  for (let i = from; i < from + size; i++) {
    time += columns.start[i];
    start[i] = time / 1e6;
    end[i] = start[i] + columns.duration[i] / 1e6;
    most = Math.max(most, end[i] - start[i]);
    total = Math.max(total, end[i]);
  }
  first.push(from + size);
  longest.push(most);
}
const standsFor = (i) => (columns.steps.length && columns.steps[i] > 1 ? columns.steps[i] : 1);
total = total || 1;
// Where steps ran that were not recorded one by one: between a recorded one and what comes next in its lane.
const gaps = columns.counts.map((_, lane) => {
  const found = [];
  for (let i = first[lane]; i + 1 < first[lane + 1]; i++) {
    const one = standsFor(i) > 1, other = standsFor(i + 1) > 1;
    const between = one && other ? columns.step[i] !== columns.step[i + 1]
      : one !== other && columns.epoch[i] >= 0 && columns.epoch[i + 1] >= 0;
    if (between && end[i] < start[i + 1]) found.push([end[i], start[i + 1]]);
  }
  return found;
});
function search(low, high, isBefore) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(middle)) low = middle + 1; else high = middle;
  }
  return low;
}
const lowerBound = (lane, time) => search(first[lane], first[lane + 1], (i) => start[i] < time);

// The part in view, in seconds, kept in the address's hash.
const whole = { from: -MARGIN * total, to: total * (1 + MARGIN) };
let view = { ...whole }, alone = -1;
function readHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const from = parseFloat(hash.get("from")), to = parseFloat(hash.get("to"));
  return from < to ? { from, to } : { ...whole };
}
let written = 0;
function show(from, to) {
  const width = Math.min(Math.max(to - from, 2e-6), whole.to - whole.from);
  const left = Math.min(Math.max(width < to - from ? whole.from : from, whole.from), whole.to - width);
  view = { from: left, to: left + width };
  requestDraw();
  clearTimeout(written);
  written = setTimeout(() => {
    const isWhole = view.from <= whole.from && view.to >= whole.to;
    const hash = `#from=${view.from.toFixed(6)}&to=${view.to.toFixed(6)}`;
    try { history.replaceState(null, "", isWhole ? "#" : hash); } catch { /* a sandboxed frame has no address */ }
  }, 200);
}
function zoom(factor, centre = (view.from + view.to) / 2) {
  show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
}
const pan = (share) => {
  const by = share * (view.to - view.from);
  show(view.from + by, view.to + by);
};

// Lanes. Every column of pixels stacks the phases by their share of its time, so that nothing is too short to count.
const canvas = find("canvas"), context = canvas.getContext("2d");
const laneHeight = Math.max(6, Math.min(34, Math.floor(620 / Math.max(workers.length, 1)) - GAP));
const height = AXIS + workers.length * (laneHeight + GAP);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function packed(colour, over, opacity) {
  const channel = (text, i) => parseInt(text.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => Math.round(opacity * channel(colour, i) + (1 - opacity) * channel(over, i)));
  return (255 << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0];
}
function cover(lane, from, to, pixels, shares) {
  const perPixel = (to - from) / pixels, kinds = phases.length + 1;
  const spread = (x0, x1, kind, weight) => {
    for (let x = Math.max(0, Math.floor(x0)); x < pixels && x < x1; x++) {
      shares[x * kinds + kind] += weight * (Math.min(x1, x + 1) - Math.max(x0, x));
    }
  };
  const between = gaps[lane];
  for (let i = search(0, between.length, (g) => between[g][1] < from); i < between.length && between[i][0] < to; i++) {
    spread((between[i][0] - from) / perPixel, (between[i][1] - from) / perPixel, phases.length, 1);
  }
  let drawn = 0;
  for (let i = lowerBound(lane, from - longest[lane]); i < first[lane + 1] && start[i] < to; i++) {
    if (end[i] < from) continue;
    drawn += 1;
    const x0 = (start[i] - from) / perPixel, x1 = (end[i] - from) / perPixel;
    spread(x0, x1, columns.phase[i], x1 - x0 < 1 ? standsFor(i) : 1);
  }
  return drawn;
}
function drawLane(lane, pixels, rows, colours, empty, image) {
  const kinds = phases.length + 1, shares = new Float32Array(pixels * kinds);
  const drawn = cover(lane, view.from, view.to, pixels, shares);
  for (let x = 0; x < pixels; x++) {
    let sum = 0, reached = 0, row = 0;
    for (let p = 0; p < phases.length; p++) sum += shares[x * kinds + p];
    const scale = rows / Math.max(1, sum);
    for (let p = 0; p < kinds; p++) {
      reached += shares[x * kinds + p] * scale;
      for (; row < Math.min(rows, Math.round(reached)); row++) image[(rows - 1 - row) * pixels + x] = colours[p];
    }
    for (; row < rows; row++) image[(rows - 1 - row) * pixels + x] = empty;
  }
  return drawn;
}
function ticks(from, to, most) {
  const rough = (to - from) / most, unit = 10 ** Math.floor(Math.log10(rough));
  const nice = [1, 2, 5, 10].map((i) => i * unit).find((step) => step >= rough);
  const step = rough < 10 ? nice : [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].find((s) => s >= rough) ?? nice;
  const found = [];
  for (let i = Math.ceil(from / step); i * step <= to; i++) found.push(i * step);
  return { step, found };
}
function label(seconds, step) {
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return step >= 10 && total >= 100 ? duration(seconds) : `${seconds.toFixed(digits)} s`;
}
let requested = false;
function requestDraw() {
  if (!requested) requestAnimationFrame(draw);
  requested = true;
}
function draw() {
  requested = false;
  const ratio = Math.min(window.devicePixelRatio || 1, 16000 / height), width = find("stage").clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pixels = Math.max(1, Math.round((width - GUTTER) * ratio)), rows = Math.max(1, Math.round(laneHeight * ratio));
  const lane = style("--lane"), ink = style("--ink"), soft = style("--soft");
  const colours = phases.map(([, , colour], p) => packed(colour, lane, alone < 0 || alone === p ? 1 : 0.12));
  const empty = packed(lane, lane, 1);
  colours.push(packed(soft, lane, 0.28));
  let drawn = 0;
  workers.forEach(([rank, host], i) => {
    const image = context.createImageData(pixels, rows), top = AXIS + i * (laneHeight + GAP);
    drawn += drawLane(i, pixels, rows, colours, empty, new Uint32Array(image.data.buffer));
    context.putImageData(image, Math.round(GUTTER * ratio), Math.round(top * ratio));
    if (laneHeight < 10 && i % 2) return;
    context.save();
    context.scale(ratio, ratio);
    context.beginPath();
    context.rect(0, top - 3, GUTTER - 8, laneHeight + 6);
    context.clip();
    context.font = `${Math.min(12.5, laneHeight + 3)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.fillStyle = ink;
    context.fillText(rank, 0, top + laneHeight / 2);
    context.fillStyle = soft;
    context.fillText(host, 26, top + laneHeight / 2);
    context.restore();
  });
  drawAxis(width, ratio, soft);
  Object.assign(facts, { drawn, from: view.from.toFixed(6), to: view.to.toFixed(6), lanes: workers.length });
  const all = whole.to - whole.from, part = (view.to - view.from) / all, left = (view.from - whole.from) / all;
  Object.assign(find("window").style, { left: `${100 * left}%`, width: `${100 * part}%` });
  find("shown").textContent = count
    ? `${number(drawn)} of ${number(count)} events in ${duration(view.to - view.from)}. ` +
      "Wheel or + and − zoom, dragging or the arrow keys move, 0 shows all; the address keeps the part in view." +
      (columns.steps.some((steps) => steps > 1) ? " Of many steps one was recorded; grey are the others, for which " +
        "it stands." : "")
    : "No statistics were collected; fit with collectTrainingStats=True.";
}
function drawAxis(width, ratio, soft) {
  context.save();
  context.scale(ratio, ratio);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = context.strokeStyle = soft;
  const { step, found } = ticks(view.from, view.to, Math.max(2, (width - GUTTER) / 110));
  for (const time of found) {
    const x = GUTTER + (width - GUTTER) * (time - view.from) / (view.to - view.from);
    context.fillRect(Math.round(x), AXIS - 6, 1, 5);
    context.textAlign = x > width - 30 ? "right" : x < GUTTER + 24 ? "left" : "center";
    context.fillText(label(time, step), x, 11);
  }
  context.restore();
}
