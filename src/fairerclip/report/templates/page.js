"use strict";
// Draws the plots of the report from the JSON in the page. Figures are looked up and formatted, never computed:
// the only arithmetic is the share of a count in its group, and positions on the screen.
// Data is written to the document only as text and attributes.
(() => {
  const LONGEST = 120;
  const brief = shortNames();
  // Long names are shortened for display; the JSON keeps the whole names.
  const results = JSON.parse(document.getElementById("results").textContent, (key, value) => (typeof value === "string" && key !== "command" ? brief(value) : value));
  const byId = (id) => document.getElementById(id);
  // Names of figures and probes, the same as in the tables.
  const NAMES = JSON.parse(byId("names").textContent);
  document.documentElement.classList.add("js");

  // The beginning and the end of a long name; different names stay different.
  function shortNames() {
    const names = new Map();
    const taken = new Set();
    return (text) => {
      const marks = text.length > LONGEST ? [...text] : [];
      if (marks.length <= LONGEST) return text;
      if (!names.has(text)) {
        const short = marks.slice(0, 79).join("") + "…" + marks.slice(-40).join("");
        let unique = short;
        for (let count = 2; taken.has(unique); count += 1) unique = `${short} (${count})`;
        taken.add(unique);
        names.set(text, unique);
      }
      return names.get(text);
    };
  }

  // ---- Numbers as text, the same as the tables -------------------------------------------------------------

  const NOTHING = "–";
  const missing = (x) => x === null || x === undefined;

  // x × 10^shift with a fixed count of decimals. 12 significant digits first, which drops the noise of binary
  // arithmetic, then halves away from zero, both in decimal: the rule of fairerclip/numbers.py.
  function fixed(x, digits, shift = 0) {
    const [mantissa, power] = Math.abs(x).toExponential(11).split("e");
    const all = mantissa.replace(".", "");
    const kept = 1 + Number(power) + shift + digits;
    const whole = kept < 0 ? 0n : BigInt(all.slice(0, kept).padEnd(kept, "0") || "0") + (all[kept] >= "5" ? 1n : 0n);
    const text = String(whole).padStart(digits + 1, "0");
    const sign = x < 0 && whole > 0n ? "−" : "";
    return sign + (digits ? `${text.slice(0, -digits)}.${text.slice(-digits)}` : text);
  }

  const trimmed = (x, digits, shift = 0) => fixed(x, digits, shift).replace(/\.?0+$/, "");
  const bare = (x) => (missing(x) ? NOTHING : fixed(x, 1, 2));
  const percent = (x) => (missing(x) ? NOTHING : bare(x) + "\u00a0%");
  const gap = (x) => (missing(x) ? NOTHING : bare(x) + "\u00a0points");
  const number = (x) => (missing(x) ? NOTHING : fixed(x, 3));
  const typed = (x) => String(Number(x.toPrecision(12)));
  const setting = (x) => trimmed(x, 4);
  const interval = (low, high) => (missing(low) && missing(high) ? "" : `[${bare(low)}, ${bare(high)}]`);
  const grouped = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  // Beginning and end of a text that is too wide: names of groups often differ only at the end.
  function shorten(text, length) {
    const tail = Math.floor(length / 3);
    return text.length > length ? text.slice(0, Math.max(1, length - 1 - tail)) + "…" + text.slice(text.length - tail) : text;
  }

  // ---- Elements ------------------------------------------------------------------------------------------------

  function setAll(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function draw(parent, tag, attributes = {}, text = null) {
    const element = setAll(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
    if (text !== null) element.textContent = text;
    parent.append(element);
    return element;
  }

  function add(parent, tag, attributes = {}, text = null) {
    const element = setAll(document.createElement(tag), attributes);
    if (text !== null) element.textContent = text;
    parent.append(element);
    return element;
  }

  // A name from the data: isolated, so that its direction does not leak into the text around it.
  const addName = (parent, text) => add(parent, "bdi", {}, text);

  let lastId = 0;
  const newId = (stem) => `${stem}-${(lastId += 1)}`;

  const charts = [];

  // A plot that draws itself again when its width changes. `paint(svg, width)` returns the height.
  function chart(host, title, describe, paint) {
    const state = { host, width: 0 };
    state.paint = () => {
      state.width = Math.max(240, Math.floor(host.clientWidth));
      const ids = [newId("title"), newId("desc")];
      const svg = draw(document.createDocumentFragment(), "svg", { role: "img", "aria-labelledby": ids[0], "aria-describedby": ids[1] });
      draw(svg, "title", { id: ids[0] }, title());
      draw(svg, "desc", { id: ids[1] }, describe());
      const height = paint(svg, state.width);
      setAll(svg, { viewBox: `0 0 ${state.width} ${height}`, width: state.width, height });
      host.replaceChildren(svg);
    };
    state.paint();
    charts.push(state);
    return state.paint;
  }

  function followWidth() {
    const observer = new ResizeObserver((entries) => requestAnimationFrame(() => {
      for (const entry of entries) {
        const state = charts.find((one) => one.host === entry.target);
        if (state && entry.target.clientWidth > 0 && Math.floor(entry.target.clientWidth) !== state.width) state.paint();
      }
    }));
    for (const state of charts) observer.observe(state.host);
  }

  // Hatching, so that no information is in colour alone.
  function hatch(svg, name) {
    const id = newId("hatch");
    const pattern = draw(draw(svg, "defs"), "pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    draw(pattern, "rect", { width: 5, height: 5, class: `tint-${name}` });
    draw(pattern, "line", { x1: 0, y1: 0, x2: 0, y2: 5, class: `hatch-${name}` });
    return `url(#${id})`;
  }

  const scale = (from, to, start, end) => (x) => start + ((x - from) / (to - from || 1)) * (end - start);

  // Round values between two numbers, about `count` of them.
  function ticks(from, to, count) {
    const rough = (to - from) / Math.max(count, 1) || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
    const found = [];
    for (let x = Math.ceil(from / step - 1e-9) * step; x <= to + step * 1e-9; x += step) found.push(Math.abs(x) < step / 1e6 ? 0 : x);
    return found;
  }

  const tickText = (x) => trimmed(x, 6, 2) + "\u00a0%";
  const shapes = [
    (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
    (x, y, r) => `M${x},${y - 1.3 * r}L${x + 1.2 * r},${y + 0.8 * r}L${x - 1.2 * r},${y + 0.8 * r}z`,
    (x, y, r) => `M${x - 0.9 * r},${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}z`,
    (x, y, r) => `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}z`,
    (x, y, r) => `M${x},${y + 1.3 * r}L${x + 1.2 * r},${y - 0.8 * r}L${x - 1.2 * r},${y - 0.8 * r}z`,
    (x, y, r) => `M${x - 0.4 * r},${y - 1.2 * r}h${0.8 * r}v${0.8 * r}h${0.8 * r}v${0.8 * r}h${-0.8 * r}v${0.8 * r}h${-0.8 * r}v${-0.8 * r}h${-0.8 * r}v${-0.8 * r}h${0.8 * r}z`,
    (x, y, r) => `M${x - 1.4 * r},${y - 0.6 * r}h${2.8 * r}v${1.2 * r}h${-2.8 * r}z`,
    (x, y, r) => `M${x - 0.6 * r},${y - 1.4 * r}h${1.2 * r}v${2.8 * r}h${-1.2 * r}z`,
  ];
  const shape = (index) => shapes[index % shapes.length];
  const diamond = shapes[3];
  const paintMark = (element, index) => element.style.setProperty("fill", `var(--mark-${index % 8})`);

  // ---- Bars by group -------------------------------------------------------------------------------------------

  const STAGES = [["before", "zero-shot"], ["after", document.body.dataset.after]];
  const STAGE_NAMES = Object.fromEntries(STAGES);
  const SPACES = { before: "image embeddings", after: "mitigated embeddings" };

  function percentAxis(svg, x, from, to, top, bottom) {
    for (const at of ticks(from, to, (x(to) - x(from)) / 70)) {
      draw(svg, "line", { x1: x(at), x2: x(at), y1: top, y2: bottom, class: "grid" });
      draw(svg, "text", { x: x(at), y: bottom + 15, class: "muted", "text-anchor": x(at) < 14 ? "start" : "middle" }, tickText(at));
    }
  }

  function whisker(parent, x, y, low, high) {
    if (missing(low) || missing(high)) return;
    const d = `M${x(low)},${y - 3.5}v7M${x(low)},${y}H${x(high)}M${x(high)},${y - 3.5}v7`;
    for (const style of ["whisker-halo", "whisker"]) draw(parent, "path", { d, class: style });
  }

  function groupName(svg, row, width, wide, y) {
    const room = Math.floor((wide ? width * 0.3 : width) / 7.8);
    const name = draw(svg, "text", { x: 0, y: wide ? y + 18 : y + 12, class: "strong" }, shorten(row.name, wide ? room : room - 16));
    draw(name, "title", {}, row.name);
    const rows = `n = ${grouped(row.n)}` + (row.small ? ` △ fewer than ${results.settings.small} rows` : "");
    const place = wide ? { x: 0, y: y + 34 } : { x: width, y: y + 12, "text-anchor": "end" };
    draw(svg, "text", { ...place, class: row.small ? "warn" : "muted" }, wide || !row.small ? rows : `n = ${row.n} △ few`);
  }

  function groupBar(svg, row, stage, x, y, fill, width) {
    const mark = row[stage[0]];
    const bar = draw(svg, "rect", { x: x(0), y, width: Math.max(0, x(mark.value || 0) - x(0)), height: 12, fill, class: `bar-${stage[0]}`, "data-group": row.index, "data-stage": stage[0], "data-value": missing(mark.value) ? "" : mark.value });
    draw(bar, "title", {}, `${row.name}, ${stage[1]}: ${percent(mark.value)} ${interval(mark.low, mark.high)}`);
    whisker(svg, x, y + 6, mark.low, mark.high);
    const label = draw(svg, "text", { x: width, y: y + 10.5, "text-anchor": "end", class: "value", "data-group": row.index, "data-stage": stage[0] });
    draw(label, "tspan", { class: `strong text-${stage[0]}` }, percent(mark.value));
    draw(label, "tspan", { class: "muted" }, " " + interval(mark.low, mark.high));
  }

  // Paired bars with whiskers, one pair per group; `rows()` gives {name, n, small, before, after} for each.
  function groupBars(host, title, rows) {
    const describe = () => rows().map((row) => `${row.name}: ` + STAGES.filter(([key]) => row[key]).map(([key, word]) => `${word} ${percent(row[key].value)}`).join(", ")).join(". ");
    return chart(host, title, describe, (svg, width) => {
      const wide = width >= 640;
      const items = rows();
      const stages = STAGES.filter(([key]) => items.some((row) => row[key]));
      const step = (wide ? 12 : 28) + 17 * stages.length;
      const x = scale(0, 1, wide ? Math.round(width * 0.31) : 0, width - (wide ? 150 : 146));
      const bottom = items.length * step;
      const fills = { before: hatch(svg, "before"), after: "var(--after)" };
      percentAxis(svg, x, 0, 1, 0, bottom);
      items.forEach((row, i) => {
        groupName(svg, row, width, wide, i * step);
        stages.forEach((stage, j) => row[stage[0]] && groupBar(svg, row, stage, x, i * step + (wide ? 6 : 19) + 17 * j, fills[stage[0]], width));
      });
      return bottom + 22;
    });
  }

  function drawGroups() {
    const host = byId("plot-groups");
    if (!host) return;
    const { before, after } = results.groups;
    const find = (report, group) => report && report.groups.find((one) => one.y === group.y && one.s === group.s);
    const mark = (group) => group && { value: group.accuracy, low: group.low, high: group.high };
    const rows = (before || after).groups.map((group, index) => ({
      index, name: group.name, n: group.n, small: group.small, before: mark(find(before, group)), after: mark(find(after, group)),
    }));
    groupBars(host, () => `Accuracy by group, ${results.settings.split} rows`, () => rows);
  }

  // ---- The explorer -------------------------------------------------------------------------------------------

  const plane = results.plane;
  const picked = { tau: 0, tauZ: 0, criterion: 0, figure: "worst_group", axis: "worst_group" };
  const FIGURES = NAMES.figures;
  const measured = (figure, x) => ({ percent, gap })[FIGURES[figure].kind](x);
  const inColumn = (figure, x) => ({ percent, bare })[FIGURES[figure].column_kind](x);
  const chosenPoint = plane && plane.chosen_by === "given" ? "the parameters as given" : "the chosen point";
  const repaint = [];

  // Points come with the criterion slowest, then tau_z, then tau.
  const indexAt = (tau, tauZ, criterion) => (criterion * plane.tau_zs.length + tauZ) * plane.taus.length + tau;
  const pickedIndex = () => indexAt(picked.tau, picked.tauZ, picked.criterion);
  const pickedPoint = () => plane.points[pickedIndex()];

  function pick(index) {
    const perCriterion = plane.taus.length * plane.tau_zs.length;
    picked.criterion = Math.floor(index / perCriterion);
    picked.tauZ = Math.floor((index % perCriterion) / plane.taus.length);
    picked.tau = index % plane.taus.length;
    show();
  }

  function step(dTau, dTauZ) {
    const clamp = (x, n) => Math.min(Math.max(x, 0), n - 1);
    picked.tau = clamp(picked.tau + dTau, plane.taus.length);
    picked.tauZ = clamp(picked.tauZ + dTauZ, plane.tau_zs.length);
    show();
  }

  function stepFront(by) {
    const { front } = plane;
    const at = front.indexOf(pickedIndex());
    const near = at >= 0 ? at + by : front.findIndex((i) => plane.points[i].average >= (pickedPoint().average || 0)) + (by < 0 ? -1 : 0);
    if (front.length) pick(front[Math.min(Math.max(near, 0), front.length - 1)]);
  }

  const share = (correct, n) => (n ? correct / n : null);

  function countMark(group, correct) {
    if (missing(correct)) return { value: null, low: null, high: null };
    const ends = plane.intervals[group][String(correct)] || [null, null];
    return { value: share(correct, plane.groups[group].n), low: ends[0], high: ends[1] };
  }

  function pointRows() {
    const point = pickedPoint();
    // In the order of the table of groups.
    return byId("plot-point").dataset.order.split(" ").map(Number).map((index) => ({
      index, name: plane.groups[index].name, n: plane.groups[index].n, small: plane.groups[index].small,
      before: plane.baseline ? countMark(index, plane.baseline.correct[index]) : null,
      after: countMark(index, point.correct && point.correct[index]),
    }));
  }

  const pointText = (point) => `τ ${setting(point.tau)}, τ_z ${setting(point.tau_z)}, ${point.criterion}: ` +
    (point.failure ? `no model. ${point.failure}` : ["average", "worst_group", "eod"].map((figure) => `${FIGURES[figure].short} ${measured(figure, point[figure])}`).join(", "));

  // The plane as a heat map; one value of tau_z makes it a strip.
  function heatRange() {
    const values = plane.points.map((point) => point[picked.figure]).filter((x) => !missing(x));
    return [Math.min(...values), Math.max(...values)];
  }

  // The strong end of the colour ramp is always better.
  function heatColour(value, [low, high]) {
    const t = high > low ? (value - low) / (high - low) : 1;
    const good = FIGURES[picked.figure].better === "higher" ? t : 1 - t;
    const [from, to, part] = good < 0.5 ? ["low", "mid", good * 2] : ["mid", "high", good * 2 - 1];
    return `color-mix(in oklab, var(--ramp-${from}), var(--ramp-${to}) ${Math.round(part * 100)}%)`;
  }

  function heatLayout(width) {
    const left = plane.tau_zs.length > 1 ? 54 : 8;
    const cell = (width - left - 6) / plane.taus.length;
    const tall = plane.tau_zs.length > 1 ? Math.min(Math.max(cell, 300 / plane.tau_zs.length), 46) : 56;
    return { left, cell, tall, top: 6, bottom: 6 + tall * plane.tau_zs.length };
  }

  const cellBox = (at, tau, tauZ) => ({
    x: at.left + tau * at.cell, y: at.top + (plane.tau_zs.length - 1 - tauZ) * at.tall, width: at.cell, height: at.tall,
  });

  function heatCells(svg, at) {
    const range = heatRange();
    const failed = hatch(svg, "none");
    plane.tau_zs.forEach((_, tauZ) => plane.taus.forEach((_tau, tau) => {
      const point = plane.points[indexAt(tau, tauZ, picked.criterion)];
      const box = cellBox(at, tau, tauZ);
      const rect = draw(svg, "rect", { ...box, class: "cell", "data-tau": tau, "data-tau-z": tauZ });
      if (missing(point[picked.figure])) rect.setAttribute("fill", failed);
      else rect.style.setProperty("fill", heatColour(point[picked.figure], range));
      draw(rect, "title", {}, pointText(point));
      if (box.width >= 42 && box.height >= 22) draw(svg, "text", { x: box.x + box.width / 2, y: box.y + box.height / 2 + 4, "text-anchor": "middle", class: "cell-text" }, missing(point[picked.figure]) ? "" : bare(point[picked.figure]));
    }));
  }

  function heatAxes(svg, at, width) {
    const every = Math.max(1, Math.ceil(38 / at.cell));
    plane.taus.forEach((tau, i) => i % every === 0 && draw(svg, "text", { x: at.left + (i + 0.5) * at.cell, y: at.bottom + 15, "text-anchor": "middle", class: "muted" }, trimmed(tau, 2)));
    draw(svg, "text", { x: at.left + (plane.taus.length * at.cell) / 2, y: at.bottom + 32, "text-anchor": "middle", class: "strong" }, "τ");
    if (plane.tau_zs.length < 2) {
      draw(svg, "text", { x: width, y: at.bottom + 32, "text-anchor": "end", class: "muted" }, `τ_z = ${setting(plane.tau_zs[0])}`);
      return;
    }
    const skip = Math.max(1, Math.ceil(18 / at.tall));
    plane.tau_zs.forEach((tauZ, i) => i % skip === 0 && draw(svg, "text", { x: at.left - 6, y: cellBox(at, 0, i).y + at.tall / 2 + 4, "text-anchor": "end", class: "muted" }, trimmed(tauZ, 2)));
    const middle = (at.top + at.bottom) / 2;
    draw(svg, "text", { x: 12, y: middle, class: "strong", transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, "τ_z");
  }

  function heatMarks(svg, at) {
    const middle = (index) => {
      const inside = index % (plane.taus.length * plane.tau_zs.length);
      const box = cellBox(at, inside % plane.taus.length, Math.floor(inside / plane.taus.length));
      return [box.x + box.width / 2, box.y + box.height / 2];
    };
    const here = (index) => plane.points[index].criterion === plane.criteria[picked.criterion];
    const low = at.cell >= 42 ? at.tall / 2 - 7 : 0;
    plane.front.filter(here).forEach((index) => draw(svg, "path", { d: shapes[0](middle(index)[0], middle(index)[1] + low, 2.6), class: "on-front" }));
    if (here(plane.chosen)) draw(svg, "path", { d: diamond(middle(plane.chosen)[0], middle(plane.chosen)[1] - low, 4.2), class: "chosen" });
    const box = cellBox(at, picked.tau, picked.tauZ);
    draw(svg, "rect", { ...box, class: "picked-out" });
    draw(svg, "rect", { ...box, class: "picked" });
  }

  function heatLegend(svg, at, width) {
    const [low, high] = heatRange();
    const y = at.bottom + 46;
    const { short, better } = FIGURES[picked.figure];
    const span = Math.min(180, width - at.left - 10);
    const beside = width - at.left - span > 190;
    for (let i = 0; i < 30; i += 1) {
      const part = draw(svg, "rect", { x: at.left + (i * span) / 30, y, width: span / 30 + 0.5, height: 10 });
      part.style.setProperty("fill", heatColour(low + ((high - low) * (i + 0.5)) / 30, [low, high]));
    }
    draw(svg, "text", { x: at.left, y: y + 25, class: "muted" }, measured(picked.figure, low));
    draw(svg, "text", { x: at.left + span, y: y + 25, class: "muted", "text-anchor": "end" }, measured(picked.figure, high));
    draw(svg, "text", { x: beside ? at.left + span + 10 : at.left, y: beside ? y + 10 : y + 43, class: "muted" }, `${short}, ${better} is better`);
    return beside ? y + 30 : y + 48;
  }

  function drawPlane() {
    const host = byId("plot-plane");
    const title = () => `${FIGURES[picked.figure].label} over τ and τ_z, ${plane.criteria[picked.criterion]}, ${plane.split} rows`;
    const describe = () => `Heat map from ${measured(picked.figure, heatRange()[0])} to ${measured(picked.figure, heatRange()[1])}. Picked: ${pointText(pickedPoint())}`;
    repaint.push(chart(host, title, describe, (svg, width) => {
      const at = heatLayout(width);
      heatCells(svg, at);
      heatAxes(svg, at, width);
      heatMarks(svg, at);
      return heatLegend(svg, at, width);
    }));
    host.addEventListener("click", (event) => {
      if (!(event.target instanceof Element) || !event.target.closest("svg")) return;
      const [x, y] = inside(host, event);
      const at = heatLayout(Math.max(240, Math.floor(host.clientWidth)));
      const tau = Math.floor((x - at.left) / at.cell);
      const tauZ = plane.tau_zs.length - 1 - Math.floor((y - at.top) / at.tall);
      if (tau >= 0 && tau < plane.taus.length && tauZ >= 0 && tauZ < plane.tau_zs.length) pick(indexAt(tau, tauZ, picked.criterion));
    });
    onKeys(host, {
      ArrowRight: () => step(1, 0), ArrowLeft: () => step(-1, 0), ArrowUp: () => step(0, 1), ArrowDown: () => step(0, -1),
      Home: () => step(-plane.taus.length, 0), End: () => step(plane.taus.length, 0),
    });
  }

  // Position of an event in the coordinates of the drawing, at any display size.
  function inside(host, event) {
    const svg = host.querySelector("svg");
    const box = svg.getBoundingClientRect();
    const ratio = svg.viewBox.baseVal.width / box.width;
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
  }

  function onKeys(host, actions) {
    host.addEventListener("keydown", (event) => {
      if (!Object.hasOwn(actions, event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      actions[event.key]();
    });
  }

  // The front: average on the horizontal axis, worst group or EOD on the vertical one.
  function frontScales(width, height) {
    const known = plane.points.filter((point) => !missing(point.average) && !missing(point[picked.axis]));
    if (plane.baseline && !missing(plane.baseline[picked.axis])) known.push(plane.baseline);
    const range = (values) => {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const pad = Math.max((high - low) * 0.07, 0.005);
      return [Math.max(0, low - pad), Math.min(1, high + pad)];
    };
    const [x0, x1] = range(known.map((point) => point.average));
    const [y0, y1] = range(known.map((point) => point[picked.axis]));
    return { x: scale(x0, x1, 58, width - 10), y: scale(y0, y1, height - 44, 10), x0, x1, y0, y1 };
  }

  function frontAxes(svg, at, width, height) {
    for (const tick of ticks(at.x0, at.x1, (width - 60) / 80)) {
      draw(svg, "line", { x1: at.x(tick), x2: at.x(tick), y1: 10, y2: height - 44, class: "grid" });
      draw(svg, "text", { x: at.x(tick), y: height - 28, "text-anchor": "middle", class: "muted" }, tickText(tick));
    }
    for (const tick of ticks(at.y0, at.y1, 5)) {
      draw(svg, "line", { x1: 58, x2: width - 10, y1: at.y(tick), y2: at.y(tick), class: "grid" });
      draw(svg, "text", { x: 52, y: at.y(tick) + 4, "text-anchor": "end", class: "muted" }, picked.axis === "eod" ? tickText(tick).replace("\u00a0%", "") : tickText(tick));
    }
    draw(svg, "text", { x: width / 2 + 20, y: height - 8, "text-anchor": "middle", class: "strong" }, `${FIGURES.average.label} (right is better)`);
    const middle = (height - 44) / 2;
    const name = `${FIGURES[picked.axis].column} (${FIGURES[picked.axis].better} is better)`;
    draw(svg, "text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle", class: "strong" }, name);
  }

  function frontPoints(svg, at) {
    const place = (point) => [at.x(point.average), at.y(point[picked.axis])];
    const visible = (point) => point && !missing(point.average) && !missing(point[picked.axis]);
    const marks = plane.points.filter(visible).map((point) => shape(2 * plane.criteria.indexOf(point.criterion))(...place(point), 3.4));
    new Set(marks).forEach((d) => draw(svg, "path", { d, class: "point" }));
    const front = plane.front.map((index) => plane.points[index]).filter(visible);
    // The front is defined by average and worst group, so its points form a line only for these axes.
    if (picked.axis === "worst_group" && front.length) draw(svg, "path", { d: "M" + front.map((point) => place(point).join(",")).join("L"), class: "front-line" });
    front.forEach((point) => draw(draw(svg, "path", { d: shape(2 * plane.criteria.indexOf(point.criterion))(...place(point), 3.8), class: "front-point" }), "title", {}, pointText(point)));
    return { place, visible };
  }

  function frontMarks(svg, { place, visible }, width) {
    const chosen = plane.points[plane.chosen];
    if (visible(pickedPoint())) {
      const [x, y] = place(pickedPoint());
      draw(svg, "path", { d: shapes[0](x, y, 9), class: "picked-out" });
      draw(svg, "path", { d: shapes[0](x, y, 9), class: "picked" });
    }
    if (visible(chosen)) draw(svg, "path", { d: diamond(...place(chosen), 4.4), class: "chosen" });
    // Last, so that nothing covers it.
    if (visible(plane.baseline)) {
      const [x, y] = place(plane.baseline);
      draw(svg, "path", { d: `M${x - 5},${y - 5}l10,10m0,-10l-10,10`, class: "zero" });
      const right = x > width - 90;
      draw(svg, "text", { x: right ? x - 9 : x + 9, y: y + 4, class: "strong text-before halo", "text-anchor": right ? "end" : "start" }, "zero-shot");
    }
  }

  function nearestPoint(host, event) {
    const [x, y] = inside(host, event);
    const height = frontHeight();
    const at = frontScales(Math.max(240, Math.floor(host.clientWidth)), height);
    let best = null;
    plane.points.forEach((point, index) => {
      if (missing(point.average) || missing(point[picked.axis])) return;
      const distance = Math.hypot(at.x(point.average) - x, at.y(point[picked.axis]) - y);
      if (distance < 24 && (!best || distance < best.distance)) best = { index, distance };
    });
    return best && best.index;
  }

  const frontHeight = () => 390;

  function drawFront() {
    const host = byId("plot-front");
    const title = () => `${FIGURES.average.label} against ${FIGURES[picked.axis].label} of all points, ${plane.split} rows`;
    const describe = () => `Scatter plot of ${plane.points.length} points, ${plane.front.length} of them on the front. Picked: ${pointText(pickedPoint())}`;
    repaint.push(chart(host, title, describe, (svg, width) => {
      const height = frontHeight();
      const at = frontScales(width, height);
      frontAxes(svg, at, width, height);
      frontMarks(svg, frontPoints(svg, at), width);
      return height;
    }));
    host.addEventListener("click", (event) => {
      const index = nearestPoint(host, event);
      if (!missing(index)) pick(index);
    });
    onKeys(host, { ArrowRight: () => stepFront(1), ArrowLeft: () => stepFront(-1), ArrowUp: () => stepFront(-1), ArrowDown: () => stepFront(1) });
  }

  // Updates of all parts that show the picked point.
  function showReadout(point) {
    const forms = { tau: setting, tau_z: setting, lambda_eff: number };
    for (const field of byId("readout").querySelectorAll("[data-field]")) {
      const name = field.dataset.field;
      if (name === "criterion") field.replaceChildren(addName(document.createDocumentFragment(), point.criterion));
      else field.textContent = name in FIGURES ? inColumn(name, point[name]) : forms[name](point[name]);
    }
    const failure = byId("failure");
    failure.hidden = !point.failure;
    failure.textContent = point.failure ? `No model here: ${point.failure}` : "";
    byId("is-chosen").textContent = pickedIndex() === plane.chosen ? chosenPoint : "a point you picked";
    const { baseline } = plane;
    const loses = baseline && !missing(point.worst_group) && point.worst_group < baseline.worst_group;
    byId("loses").hidden = !loses;
    byId("loses").textContent = loses ? `On these rows zero-shot has the better worst group: ${percent(baseline.worst_group)}, here ${percent(point.worst_group)}.` : "";
  }

  // Quoted, so that a shell reads it as one word.
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'"'"'`)}'`);
  // Quoted words first, so that a placeholder inside one is not replaced.
  const PLACES = /'[^']*'|"[^"]*"|(?<![^ ])\{(tau|tau_z|criterion)\}(?![^ ])/g;

  function showCommand(point) {
    const box = byId("command");
    if (!box) return;
    const values = { tau: typed(point.tau), tau_z: typed(point.tau_z), criterion: quoted(point.criterion) };
    box.value = plane.command.replace(PLACES, (found, name) => (name ? values[name] : found));
    byId("copied").textContent = "";
  }

  function showTable() {
    const body = byId("point-rows");
    body.replaceChildren();
    for (const row of pointRows()) {
      const line = add(body, "tr");
      addName(add(line, "th", { scope: "row" }), row.name);
      add(line, "td", { class: "n" }, grouped(row.n));
      for (const mark of [row.before, row.after]) add(line, "td", { class: "n" }, mark ? `${percent(mark.value)} ${interval(mark.low, mark.high)}` : NOTHING);
    }
  }

  function slide(name, index, values) {
    const slider = byId(`slide-${name}`);
    if (!slider) return;
    slider.value = String(index);
    slider.setAttribute("aria-valuetext", setting(values[index]));
    byId(`out-${name}`).textContent = setting(values[index]);
  }

  // Where the plane is one curve, one slider runs over the points of the criterion, by strength.
  const curves = () => byId("slide-strength").dataset.curve.split(";").map((line) => line.split(" ").map(Number));

  function slideStrength() {
    const slider = byId("slide-strength");
    if (!slider) return;
    const curve = curves()[picked.criterion];
    const distance = (index) => Math.abs(plane.points[index].lambda_eff - pickedPoint().lambda_eff);
    const nearest = curve.reduce((best, index, i) => (distance(index) < distance(curve[best]) ? i : best), 0);
    slider.max = String(curve.length - 1);
    slider.value = String(nearest);
    const text = number(pickedPoint().lambda_eff);
    slider.setAttribute("aria-valuetext", text);
    byId("out-strength").textContent = text;
  }

  let saying = 0;

  // Announced with a delay, so that holding a key does not queue a sentence per step.
  function say(point) {
    clearTimeout(saying);
    saying = setTimeout(() => { byId("live").textContent = pointText(point); }, 250);
  }

  function show() {
    const point = pickedPoint();
    slide("tau", picked.tau, plane.taus);
    slide("tau-z", picked.tauZ, plane.tau_zs);
    slideStrength();
    for (const input of document.querySelectorAll("input[name=criterion]")) input.checked = Number(input.value) === picked.criterion;
    showReadout(point);
    showCommand(point);
    showTable();
    repaint.forEach((paint) => paint());
    say(point);
  }

  function onChoice(name, act) {
    for (const input of document.querySelectorAll(`input[name=${name}]`)) input.addEventListener("change", () => act(input.value));
  }

  async function copyCommand() {
    const box = byId("command");
    const status = byId("copied");
    try {
      await navigator.clipboard.writeText(box.value);
      status.textContent = "Copied.";
    } catch {
      // Files opened from disk may not be allowed to use the clipboard.
      box.focus();
      box.select();
      status.textContent = "The command is selected: press Ctrl+C or ⌘C to copy it.";
    }
  }

  function allPointsTable(host) {
    const figures = Object.keys(FIGURES);
    const head = ["Criterion", "τ", "τ_z", "λ_eff", ...figures.map((figure) => FIGURES[figure].column), "No model because"];
    lazyTable(host, head, () => plane.points.map((point) => [
      point.criterion, setting(point.tau), setting(point.tau_z), number(point.lambda_eff),
      ...figures.map((figure) => inColumn(figure, point[figure])), point.failure || "",
    ]));
  }

  function startExplorer() {
    if (!plane) return;
    pickQuietly(plane.chosen);
    drawPlane();
    drawFront();
    repaint.push(groupBars(byId("plot-point"), () => `Accuracy by group at the picked point, ${plane.split} rows`, pointRows));
    if (byId("slide-strength")) byId("slide-strength").addEventListener("input", (event) => pick(curves()[picked.criterion][Number(event.target.value)]));
    if (byId("slide-tau")) byId("slide-tau").addEventListener("input", (event) => { picked.tau = Number(event.target.value); show(); });
    if (byId("slide-tau-z")) byId("slide-tau-z").addEventListener("input", (event) => { picked.tauZ = Number(event.target.value); show(); });
    onChoice("figure", (value) => { picked.figure = value; show(); });
    onChoice("axis", (value) => { picked.axis = value; show(); });
    onChoice("criterion", (value) => { picked.criterion = Number(value); show(); });
    byId("back").addEventListener("click", () => pick(plane.chosen));
    if (byId("copy")) byId("copy").addEventListener("click", copyCommand);
    allPointsTable(byId("all-points"));
    show();
    clearTimeout(saying);
    printAtChosen();
  }

  function pickQuietly(index) {
    const perCriterion = plane.taus.length * plane.tau_zs.length;
    Object.assign(picked, { criterion: Math.floor(index / perCriterion), tauZ: Math.floor((index % perCriterion) / plane.taus.length), tau: index % plane.taus.length });
  }

  // Print shows the chosen point; afterwards the screen shows the picked one again.
  function printAtChosen() {
    let kept = null;
    window.addEventListener("beforeprint", () => { kept = pickedIndex(); pick(plane.chosen); });
    window.addEventListener("afterprint", () => { if (kept !== null) pick(kept); kept = null; });
  }

  // ---- Tables that are made when they are opened -----------------------------------------------------------------

  function lazyTable(details, head, rows) {
    if (!details) return;
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      const box = add(details, "div", { class: "table-box", role: "group", tabindex: "0", "aria-label": details.querySelector("summary").textContent });
      add(box, "p", { class: "scroll-hint", "aria-hidden": "true" }, "more columns →");
      hints.observe(box);
      const table = add(box, "table");
      const top = add(add(table, "thead"), "tr");
      head.forEach((name) => add(top, "th", { scope: "col" }, name));
      const body = add(table, "tbody");
      for (const row of rows()) {
        const line = add(body, "tr");
        row.forEach((text, i) => addName(add(line, i ? "td" : "th", i ? {} : { scope: "row" }), String(text)));
      }
    });
  }

  // ---- Scores --------------------------------------------------------------------------------------------------

  // Whether scores above the threshold are correct for this group: of two classes, only those of the second.
  const rightIsAbove = (group) => results.task.classes.length !== 2 || group.y === results.task.classes[1];

  function histogramPanel(svg, part, group, stage, left, width, highest) {
    const height = 84;
    const { edges, threshold } = part;
    const x = scale(edges[0], edges[edges.length - 1], left, left + width);
    const y = scale(0, highest || 1, height, 6);
    const wrong = hatch(svg, stage);
    const above = rightIsAbove(group);
    const piece = (from, to, top, right) => to > from && draw(svg, "rect", { x: x(from), y: top, width: Math.max(0.5, x(to) - x(from) - 0.6), height: height - top, fill: right ? `var(--${stage})` : wrong });
    group.counts.forEach((count, i) => {
      if (!count) return;
      const top = y(count / group.n);
      if (missing(threshold)) { piece(edges[i], edges[i + 1], top, true); return; }
      piece(edges[i], Math.min(edges[i + 1], threshold), top, !above);
      piece(Math.max(edges[i], threshold), edges[i + 1], top, above);
    });
    draw(svg, "line", { x1: left, x2: left + width, y1: height, y2: height, class: "axis" });
    if (!missing(threshold) && threshold >= edges[0] && threshold <= edges[edges.length - 1]) draw(svg, "line", { x1: x(threshold), x2: x(threshold), y1: 0, y2: height + 4, class: "chance" });
    for (const tick of ticks(edges[0], edges[edges.length - 1], 3)) draw(svg, "text", { x: x(tick), y: height + 16, "text-anchor": "middle", class: "muted" }, String(Number(tick.toPrecision(6))).replace("-", "−"));
    draw(svg, "text", { x: left, y: height + 34, class: `strong text-${stage}` }, `${stage === "before" ? "○" : "■"} ${STAGE_NAMES[stage]}`);
  }

  function drawScores() {
    const host = byId("plot-scores");
    if (!host) return;
    const stages = ["before", "after"].filter((stage) => results.scores[stage]);
    const highest = Object.fromEntries(stages.map((stage) => [stage, Math.max(...results.scores[stage].groups.flatMap((g) => g.counts.map((n) => (g.n ? n / g.n : 0))))]));
    results.scores[stages[0]].groups.forEach((group, index) => {
      const figure = add(host, "figure");
      const caption = add(figure, "figcaption");
      addName(caption, group.name);
      add(caption, "span", { class: "ci" }, ` n = ${grouped(group.n)}`);
      const describe = () => `Histograms of ${results.scores.label} for ${group.name}, ${group.n} rows.`;
      chart(add(figure, "div", { class: "plot" }), () => `Scores of ${group.name}`, describe, (svg, width) => {
        const each = (width - 20 * (stages.length - 1)) / stages.length;
        stages.forEach((stage, i) => histogramPanel(svg, results.scores[stage], results.scores[stage].groups[index], stage, i * (each + 20), each, highest[stage]));
        return 122;
      });
    });
    scoreTable(stages);
  }

  function scoreTable(stages) {
    lazyTable(byId("score-counts"), ["Group", "Ranking", "From", "To", "Rows"], () => stages.flatMap((stage) => {
      const part = results.scores[stage];
      const name = STAGE_NAMES[stage];
      return part.groups.flatMap((group) => group.counts.map((count, i) => [group.name, name, number(part.edges[i]), number(part.edges[i + 1]), count]).filter((row) => row[4] > 0));
    }));
  }

  // ---- The picture in two dimensions ------------------------------------------------------------------------------

  // Labels in the order of the groups.
  const labelsOf = (by) => [...new Set(results.picture.groups.map((group) => group[by]))];

  function markKey(list, names, letters = false) {
    list.replaceChildren();
    names.forEach((name, i) => {
      const item = add(list, "li");
      const svg = draw(item, "svg", { width: 18, height: 18, viewBox: "0 0 18 18", "aria-hidden": "true" });
      paintMark(draw(svg, "path", { d: letters ? "M1,1h16v16h-16z" : shape(i)(9, 9, 6) }), i);
      if (letters) add(item, "b", {}, letter(i));
      addName(item, name);
    });
  }

  const letter = (i) => String.fromCharCode(65 + (i % 26)) + (i >= 26 ? String(Math.floor(i / 26)) : "");

  // Neighbouring squares are merged where their marks would be too small to distinguish.
  const coarseness = (part) => Math.ceil(Math.max(part.x_edges.length, part.y_edges.length) / 27);

  // Counts per square and label: squares hold rows of several labels.
  function pictureSquares(part, by) {
    const labels = labelsOf(by);
    const factor = coarseness(part);
    const squares = new Map();
    for (const [i, j, group, n] of part.cells) {
      const place = [Math.floor(i / factor), Math.floor(j / factor)];
      if (!squares.has(place.join())) squares.set(place.join(), { place, counts: new Map() });
      const { counts } = squares.get(place.join());
      const label = labels.indexOf(results.picture.groups[group][by]);
      counts.set(label, (counts.get(label) || 0) + n);
    }
    return [...squares.values()];
  }

  // Middle of a square in the units of the axis.
  function squareMiddle(edges, index, factor) {
    const edge = (i) => edges[Math.min(i * factor, edges.length - 1)];
    return (edge(index) + edge(index + 1)) / 2;
  }

  // The most frequent label is drawn in the centre of its square, the next one beside it.
  function pictureMark(svg, [x, y], [label, n], rank, size, by) {
    const aside = rank ? size.cell * 0.24 : 0;
    const radius = Math.max(1.3, Math.sqrt(n / size.most) * size.cell * 0.6);
    const mark = draw(svg, "path", { d: shape(label)(x + aside, y + aside, radius), class: "bubble" });
    paintMark(mark, label);
    draw(mark, "title", {}, `${labelsOf(by)[label]}: ${grouped(n)} rows`);
  }

  function picturePanel(svg, part, by, width) {
    const height = Math.round(Math.min(width * 0.78, 400));
    const last = (edges) => edges[edges.length - 1];
    const x = scale(part.x_edges[0], last(part.x_edges), 26, width - 8);
    const y = scale(part.y_edges[0], last(part.y_edges), height - 8, 8);
    const factor = coarseness(part);
    const squares = pictureSquares(part, by);
    const cell = factor * Math.min((width - 34) / (part.x_edges.length - 1), (height - 16) / (part.y_edges.length - 1));
    const size = { cell, most: Math.max(1, ...squares.flatMap((square) => [...square.counts.values()])) };
    draw(svg, "rect", { x: 20, y: 2, width: width - 22, height: height - 4, class: "axis" });
    for (const { place, counts } of squares) {
      const centre = [x(squareMiddle(part.x_edges, place[0], factor)), y(squareMiddle(part.y_edges, place[1], factor))];
      [...counts].sort((a, b) => b[1] - a[1]).slice(0, 2).forEach((entry, rank) => pictureMark(svg, centre, entry, rank, size, by));
    }
    draw(svg, "text", { x: width / 2, y: height + 14, "text-anchor": "middle", class: "muted" }, shorten(part.x_label, Math.floor(width / 7)));
    draw(svg, "text", { x: 12, y: height / 2, transform: `rotate(-90 12 ${height / 2})`, "text-anchor": "middle", class: "muted" }, shorten(part.y_label, Math.floor(height / 7)));
    return height + 22;
  }

  function drawPicture() {
    const { picture } = results;
    if (!picture) return;
    let by = "y";
    const paints = ["before", "after"].filter((stage) => picture[stage]).map((stage) => chart(
      byId(`plot-picture-${stage}`),
      () => `The embedding in two dimensions, ${SPACES[stage]}`,
      () => `Rows counted in squares, marked by ${by === "y" ? "class" : "value of S"}: ${labelsOf(by).join(", ")}.`,
      (svg, width) => picturePanel(svg, picture[stage], by, width),
    ));
    const refresh = () => { markKey(byId("picture-key"), labelsOf(by)); paints.forEach((paint) => paint()); };
    onChoice("colour", (value) => { by = value; refresh(); });
    refresh();
    lazyTable(byId("picture-counts"), ["Group", "Stage", "x from", "y from", "Rows"], () => ["before", "after"].filter((stage) => picture[stage]).flatMap((stage) => picture[stage].cells.map(([i, j, group, n]) => [
      picture.groups[group].name, SPACES[stage], number(picture[stage].x_edges[i]), number(picture[stage].y_edges[j]), n,
    ])));
  }

  // ---- Retrieval -----------------------------------------------------------------------------------------------

  function stackedBar(svg, shares, names, x, y, label) {
    let from = 0;
    shares.forEach((part, i) => {
      const [start, end] = [x(from), x(Math.min(1, from + part))];
      from += part;
      if (end - start <= 0) return;
      const rect = draw(svg, "rect", { x: start, y, width: Math.max(0.5, end - start - 1.5), height: 22 });
      paintMark(rect, i);
      draw(rect, "title", {}, `${label}, ${names[i]}: ${percent(part)}`);
      const text = end - start > 62 ? `${letter(i)} ${percent(part)}` : end - start > 16 ? letter(i) : "";
      if (text) draw(svg, "text", { x: start + (end - start) / 2, y: y + 15.5, "text-anchor": "middle", class: "strong on-mark" }, text).style.setProperty("fill", "var(--page)");
    });
  }

  // Bars of the groups among all rows and among the first hits of one query, at each stage.
  function composition(host, part, query, name, prompt) {
    const rows = [[part.reference || "all rows", part.shares, "muted"]];
    for (const [key, word] of STAGES) if (query[key]) rows.push([word, query[key].counts.map((n) => n / part.k), `strong text-${key}`]);
    const figure = add(host, "figure", { class: "query" });
    const caption = add(figure, "figcaption");
    addName(caption, name);
    if (prompt) add(addName(add(caption, "span", { class: "sub" }, " "), `“${prompt}”`), "span");
    const describe = () => rows.map(([word, shares]) => `${word}: ` + shares.map((x, i) => `${part.groups[i]} ${percent(x)}`).join(", ")).join(". ");
    chart(add(figure, "div", { class: "plot" }), () => `First ${part.k} for ${name}`, describe, (svg, width) => {
      const left = Math.min(96, width * 0.28);
      const x = scale(0, 1, left, width);
      rows.forEach(([word, shares, style], i) => {
        draw(svg, "text", { x: 0, y: i * 28 + 16, class: style }, shorten(word, 13));
        stackedBar(svg, shares, part.groups, x, i * 28, word);
      });
      return rows.length * 28;
    });
  }

  function drawRetrieval() {
    const part = results.retrieval;
    if (!part) return;
    markKey(byId("retrieval-key"), part.groups, true);
    for (const query of part.queries) composition(byId("plot-retrieval"), part, query, query.name, query.prompt);
  }

  // The free query that changed most; without mitigation the most skewed one.
  function drawQueries() {
    const part = results.queries;
    if (!part || !part.queries.length) return;
    const size = (query) => Math.abs((query.change ? query.change.difference : query.before.max_skew.value) || 0);
    const open = part.queries.filter((query) => missing(query.about));
    const most = (open.length ? open : part.queries).reduce((a, b) => (size(b) > size(a) ? b : a));
    markKey(byId("queries-key"), part.groups, true);
    composition(byId("plot-queries"), part, most, most.prompt, null);
  }

  // ---- Dots with intervals: probes and wordings ---------------------------------------------------------------------

  // rows: {label, marks: [{value, low, high, style, shape, name}], line}
  function dotRows(host, title, rows) {
    const describe = () => rows.map((row) => `${row.label}: ` + row.marks.map((mark) => `${mark.name} ${percent(mark.value)}`).join(", ")).join(". ");
    chart(host, () => title, describe, (svg, width) => {
      const wide = width >= 640;
      const x = scale(0, 1, wide ? Math.round(width * 0.31) : 8, width - 16);
      const step = (wide ? 10 : 26) + 15 * Math.max(...rows.map((row) => row.marks.length));
      percentAxis(svg, x, 0, 1, 0, rows.length * step);
      rows.forEach((row, i) => {
        const top = i * step;
        draw(draw(svg, "text", { x: 0, y: wide ? top + step / 2 + 4 : top + 14, class: "strong" }, shorten(row.label, Math.floor((wide ? width * 0.3 : width) / 7))), "title", {}, row.label);
        if (!missing(row.line)) draw(svg, "line", { x1: x(row.line), x2: x(row.line), y1: top + (wide ? 2 : 20), y2: top + step - 2, class: "chance" });
        row.marks.forEach((mark, j) => dotMark(svg, mark, x, top + (wide ? 12 : 28) + 15 * j));
      });
      return rows.length * step + 22;
    });
  }

  function dotMark(svg, mark, x, y) {
    if (missing(mark.value)) return;
    whisker(svg, x, y, mark.low, mark.high);
    draw(draw(svg, "path", { d: mark.shape(x(mark.value), y, 4.6), class: `dot-${mark.style}` }), "title", {}, `${mark.name}: ${percent(mark.value)} ${interval(mark.low, mark.high)}`);
  }

  function drawProbes() {
    if (!byId("plot-probes")) return;
    const rows = new Map();
    for (const probe of results.probes) {
      const label = `${probe.attribute}, ${NAMES.probes[probe.probe]}`;
      if (!rows.has(label)) rows.set(label, { label, marks: [], line: probe.chance });
      const before = probe.stage === "before";
      rows.get(label).marks.push({ ...probe, style: probe.stage, shape: before ? shapes[0] : shapes[2], name: SPACES[probe.stage] });
    }
    dotRows(byId("plot-probes"), `${NAMES.probe} of probes for S; the dashed line: ${NAMES.chance}`, [...rows.values()]);
  }

  function drawWording() {
    if (!byId("plot-wording")) return;
    const rows = results.wording.templates.map((one, i) => ({
      label: one.template + (i === results.wording.used ? " (used)" : ""),
      marks: [
        { ...one.average, style: "before", shape: shapes[0], name: FIGURES.average.label },
        { ...one.worst_group, style: "before", shape: diamond, name: FIGURES.worst_group.label },
      ],
    }));
    dotRows(byId("plot-wording"), `${FIGURES.average.label} and ${FIGURES.worst_group.label} of zero-shot for each wording`, rows);
  }

  // ---- Folding -----------------------------------------------------------------------------------------------------

  // Words beside a table that is wider than its box.
  const hints = new ResizeObserver((entries) => {
    for (const { target } of entries) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
  });

  function startFolding() {
    for (const box of document.querySelectorAll(".table-box")) hints.observe(box);
    const menu = document.querySelector(".contents");
    for (const link of menu.querySelectorAll("a")) {
      link.addEventListener("click", () => {
        const fold = document.querySelector(link.hash).closest("details");
        if (fold) fold.open = true;
        menu.open = false;
      });
    }
    byId("unfold").addEventListener("click", () => {
      const folds = [...document.querySelectorAll("details.part")];
      const open = folds.some((fold) => !fold.open);
      for (const fold of folds) fold.open = open;
      byId("unfold").textContent = open ? "Fold everything" : "Unfold everything";
    });
  }

  // ---- Theme -------------------------------------------------------------------------------------------------------

  const remembered = {
    // Files opened from disk may have no storage.
    get() { try { return localStorage.getItem("fairerclip-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("fairerclip-theme", value); } catch { /* then the choice is not kept */ } },
  };

  function startTheme() {
    const root = document.documentElement;
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const label = () => { byId("theme").textContent = dark() ? "Light theme" : "Dark theme"; };
    const kept = remembered.get();
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
    byId("theme").addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      remembered.set(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
  }

  startTheme();
  startFolding();
  drawGroups();
  startExplorer();
  drawScores();
  drawPicture();
  drawRetrieval();
  drawQueries();
  drawProbes();
  drawWording();
  followWidth();
})();
