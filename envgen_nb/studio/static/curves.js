// Charts over environment steps or seconds: the values at the pointer, zoom, smoothing. Nothing of it asks the kernel.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = { wide: 250, small: 104 };
const LEFT = 46, RIGHT = 14, TOP = 8, LOW = 20;

const known = (value) => typeof value === "number" && Number.isFinite(value);
const nice = (low, high, most) => {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * (1 - 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= Math.floor(high / step + 1e-9); k++) found.push(+(k * step).toPrecision(12));
  return found;
};
const short = (value) => {
  const size = Math.abs(value), cut = (number) => String(+number.toPrecision(3));
  return size >= 1e6 ? cut(value / 1e6) + "M" : size >= 1e3 ? cut(value / 1e3) + "k" : cut(value);
};
const seconds = (value) => {
  const whole = Math.round(value), two = (number) => String(number).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
};
// Exponential moving average without the bias of its beginning, as TensorBoard smooths (weight 0 to 1).
const smooth = (values, weight) => {
  let sum = 0, mass = 0;
  return values.map((value) => {
    if (!known(value)) return value;
    [sum, mass] = [weight * sum + (1 - weight) * value, weight * mass + 1 - weight];
    return sum / mass;
  });
};

function render({ model, el }) {
  const make = (tag, parent, props = {}) => {
    const node = Object.assign(document.createElement(tag), props);
    parent?.append(node);
    return node;
  };
  const shape = (tag, parent, props) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
    parent.append(node);
    return node;
  };
  const root = make("div", el, { className: "envgen envgen-curves" });
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  const bar = make("div", root, { className: "envgen-curves-bar" });
  const smoothing = make("label", bar, { textContent: "Smoothing " });
  const slider = make("input", smoothing, { type: "range", min: 0, max: 0.98, step: 0.02, value: model.get("smoothing") });
  const weight = make("output", smoothing);
  const axis = make("label", bar, { textContent: "Axis " });
  const choice = make("select", axis);
  for (const [value, text] of [["steps", "environment steps"], ["time", "time of training"]])
    make("option", choice, { value, textContent: text });
  const whole = make("button", bar, { type: "button", textContent: "Show all", className: "envgen-plain", hidden: true,
                                      title: "Leave the zoom (double click, Escape)" });
  make("span", bar, { className: "envgen-quiet",
                      textContent: "Point at a chart for its values; drag across it to zoom in." });
  const key = make("div", root, { className: "envgen-key" });
  const place = make("div", root, { className: "envgen-charts" });
  const said = make("div", root, { className: "envgen-said" });                   // for screen readers
  said.setAttribute("role", "status");

  let range = null, at = null, charts = [];
  const time = () => choice.value === "time" && model.get("clock").length > 0;
  const across = (step) => {                                  // a number of steps on the axis that is shown
    if (!time()) return step;
    const clock = model.get("clock");
    let k = clock.findIndex(([one]) => one >= step);
    if (k < 0) k = clock.length - 1;
    const [a, b] = [k ? clock[k - 1] : [0, 0], clock[k]];
    return b[0] === a[0] ? b[1] : a[1] + (b[1] - a[1]) * Math.min(1, (step - a[0]) / (b[0] - a[0]));
  };
  const label = (value) => time() ? seconds(value) : short(value);
  const unit = () => time() ? "of training" : "steps";

  const chart = (panel) => {
    const figure = make("figure", place, { className: "envgen-curve" + (panel.wide ? " wide" : "") });
    const caption = make("figcaption", figure);
    make("b", caption, { textContent: panel.title });
    make("span", caption, { textContent: panel.said });
    const box = shape("svg", figure, { tabindex: -1, role: "img", "aria-label": [panel.title, panel.said].filter(Boolean).join(": ") });
    const tip = make("div", figure, { className: "envgen-tip", hidden: true });
    const one = { panel, figure, box, tip };
    const lines = () => panel.lines.map((line) => {
      const xs = line.x.map(across);
      const ys = line.smooth && +slider.value ? smooth(line.y, +slider.value) : line.y;
      return { ...line, xs, ys, raw: line.y };
    });

    one.draw = () => {
      const width = figure.clientWidth, height = panel.wide ? HEIGHT.wide : HEIGHT.small;
      if (!width) return;
      const shown = lines(), bands = panel.bands.map((ends) => ends.map(across));
      const [left, right] = range ?? [0, Math.max(across(model.get("last")), ...shown.flatMap((line) => line.xs), 1e-9)];
      const inside = (x) => x >= left && x <= right;
      let scale = panel.scale;
      if (!scale) {
        const seen = shown.flatMap((line) => line.xs.flatMap((x, k) =>
          inside(x) ? [line.ys[k], line.low?.[k], line.high?.[k], ...(line.seeds?.[k] ?? [])] : [])).filter(known);
        const [low, high] = [Math.min(...(panel.zero ? [0] : []), ...seen), Math.max(...(panel.zero ? [0] : []), ...seen)];
        const room = 0.05 * (high - low) || 1;
        scale = seen.length ? [low - room * (low !== 0), high + room * (high !== 0)] : [0, 1];
      }
      const X = (x) => LEFT + (width - LEFT - RIGHT) * (x - left) / ((right - left) || 1);
      const Y = (y) => TOP + (height - TOP - LOW) * (scale[1] - y) / ((scale[1] - scale[0]) || 1);
      Object.assign(one, { X, Y, shown, left, right, width, height });
      box.replaceChildren();
      box.setAttribute("viewBox", `0 0 ${width} ${height}`);
      box.setAttribute("height", height);
      const clip = "clip-" + Math.random().toString(36).slice(2);
      shape("rect", shape("clipPath", box, { id: clip }), { x: LEFT - 5, y: 0, width: width - LEFT - RIGHT + 10, height });
      for (const y of nice(...scale, panel.wide ? 5 : 2)) {
        shape("path", box, { d: `M${LEFT} ${Y(y)}H${width - RIGHT}`, class: y === 0 ? "zero" : "grid" });
        shape("text", box, { x: LEFT - 6, y: Y(y) + 4, class: "end" }).textContent = short(y);
      }
      const marks = nice(left, right, Math.max(2, Math.floor(width / 110)));
      for (const x of marks) {
        shape("path", box, { d: `M${X(x)} ${TOP}V${height - LOW}`, class: "grid" });
        shape("text", box, { x: X(x), y: height - 5, class: X(x) > width - 40 ? "end" : "middle" }).textContent = label(x);
      }
      const inner = shape("g", box, { "clip-path": `url(#${clip})` });
      for (const [a, b] of bands)
        shape("rect", inner, { x: X(a), y: TOP, width: Math.max(1, X(b) - X(a)), height: height - TOP - LOW, class: "band" });
      for (const line of shown) {
        const style = line.colour ? `--line:${line.colour}` : "";
        const path = (ys) => {
          let pen = "M", text = "";
          line.xs.forEach((x, k) => {
            if (known(ys[k])) text += `${pen}${X(x).toFixed(1)} ${Y(ys[k]).toFixed(1)}`;
            pen = known(ys[k]) ? "L" : "M";
          });
          return text;
        };
        if (line.low && line.kind !== "measured") {
          const there = line.xs.map((x, k) => k).filter((k) => known(line.low[k]) && known(line.high[k]));
          const edge = (ks, ys) => ks.map((k) => `${X(line.xs[k]).toFixed(1)} ${Y(ys[k]).toFixed(1)}`).join("L");
          if (there.length) shape("path", inner, {
            d: `M${edge(there, line.high)}L${edge(there.slice().reverse(), line.low)}Z`, class: "interval", style });
        }
        if (line.kind !== "measured") {
          if (line.ys !== line.raw) shape("path", inner, { d: path(line.raw), class: "raw " + line.kind, style });
          shape("path", inner, { d: path(line.ys), class: "line " + line.kind, style });
        }
        line.xs.forEach((x, k) => {
          const lone = !known(line.ys[k - 1]) && !known(line.ys[k + 1]);
          for (const y of line.seeds?.[k] ?? [])
            shape("circle", inner, { cx: X(x), cy: Y(y), r: 2.5, class: "seed", style });
          if (!known(line.ys[k]) || !(line.dots || lone || line.kind === "measured")) return;
          if (line.kind === "measured" && known(line.low?.[k]))
            shape("path", inner, { d: `M${X(x)} ${Y(line.low[k])}V${Y(line.high[k])}`, class: "line measured" });
          shape("circle", inner, { cx: X(x), cy: Y(line.ys[k]), r: 3, class: "dot " + line.kind, style });
        });
      }
      one.over = shape("g", box, { "clip-path": `url(#${clip})` });
      one.pointed();
    };

    const digits = (value) => Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
    one.values = (x) => one.shown.flatMap((line) => {               // what each line has there
      let best = -1;
      line.xs.forEach((one, k) => {
        if (known(line.ys[k]) && (best < 0 || Math.abs(one - x) < Math.abs(line.xs[best] - x))) best = k;
      });
      if (best < 0 || Math.abs(line.xs[best] - x) > (one.right - one.left) / 50) return [];
      const [value, low, high] = [line.ys, line.low ?? [], line.high ?? []].map((of) => of[best]);
      const more = known(low) ? ` [${digits(low)}, ${digits(high)}]` : "";
      const raw = line.ys !== line.raw ? ` (${digits(line.raw[best])} unsmoothed)` : "";
      return [{ line, x: line.xs[best], y: value, text: digits(value) + panel.unit + more + raw + (line.texts?.[best] ? ", " + line.texts[best] : "") }];
    });
    one.pointed = () => {
      if (!one.over) return;
      one.over.replaceChildren();
      tip.hidden = !(at && at.chart === one);
      if (!at || at.x < one.left || at.x > one.right) return;
      shape("path", one.over, { d: `M${one.X(at.x)} ${TOP}V${one.height - LOW}`, class: "pointer" });
      const found = one.values(at.x);
      for (const { line, x, y } of found)
        shape("circle", one.over, { cx: one.X(x), cy: one.Y(y), r: 4.5, class: "ring " + line.kind, style: line.colour ? `--line:${line.colour}` : "" });
      if (tip.hidden) return;
      tip.replaceChildren();
      make("b", tip, { textContent: `${label(at.x)} ${unit()}` });
      for (const { line, text } of found) {
        const row = make("div", tip);
        make("i", row, { className: line.kind }).style.setProperty("--line", line.colour || "");
        row.append(`${line.name}: ${text}`);
      }
      const x = one.X(at.x);
      tip.style.left = x < one.width / 2 ? `${x + 12}px` : "";
      tip.style.right = x < one.width / 2 ? "" : `${one.width - x + 12}px`;
      if (at.keyboard) said.textContent = [panel.title, ...[...tip.childNodes].map((node) => node.textContent)].join(", ");
    };

    const value = (event) => {
      const where = event.clientX - box.getBoundingClientRect().left;
      const x = one.left + (one.right - one.left) * (where - LEFT) / (one.width - LEFT - RIGHT);
      return Math.min(one.right, Math.max(one.left, x));
    };
    const places = () => [...new Set(one.shown.flatMap((line) =>
      line.xs.filter((x, k) => known(line.ys[k]) && x >= one.left && x <= one.right)))].sort((a, b) => a - b);
    const nearest = (x) => places().reduce((best, one) => Math.abs(one - x) < Math.abs(best - x) ? one : best, Infinity);
    const point = (x, keyboard) => {
      at = Number.isFinite(x) ? { chart: one, x, keyboard } : null;
      charts.forEach((other) => other.pointed());
    };
    let from = null;
    box.addEventListener("pointerdown", (event) => { if (event.button === 0) { from = value(event); box.setPointerCapture(event.pointerId); } });
    box.addEventListener("pointermove", (event) => {
      const x = value(event);
      point(nearest(x), false);
      if (from !== null) {
        const [a, b] = [one.X(from), one.X(x)].sort((a, b) => a - b);
        shape("rect", one.over, { x: a, y: TOP, width: b - a, height: one.height - TOP - LOW, class: "chosen" });
      }
    });
    box.addEventListener("pointerup", (event) => {
      const ends = [from ?? NaN, value(event)].sort((a, b) => a - b);
      from = null;
      if (one.X(ends[1]) - one.X(ends[0]) > 8) zoom(ends);
    });
    box.addEventListener("pointercancel", () => { from = null; });
    box.addEventListener("pointerleave", () => { if (from === null) point(NaN); });
    box.addEventListener("dblclick", () => zoom(null));
    box.addEventListener("blur", () => point(NaN));
    box.addEventListener("focus", () => stop(charts.indexOf(one)));
    box.addEventListener("keydown", (event) => {
      const all = places(), k = at ? all.indexOf(nearest(at.x)) : -1, middle = at?.x ?? (one.left + one.right) / 2;
      const half = (one.right - one.left) / 4;
      const act = {
        ArrowRight: () => point(all[Math.min(all.length - 1, k + 1)], true),
        ArrowLeft: () => point(all[k < 0 ? all.length - 1 : Math.max(0, k - 1)], true),
        ArrowDown: () => charts[charts.indexOf(one) + 1]?.box.focus(),
        ArrowUp: () => charts[charts.indexOf(one) - 1]?.box.focus(),
        Home: () => point(all[0], true), End: () => point(all[all.length - 1], true),
        "+": () => zoom([Math.max(one.left, middle - half), Math.min(one.right, middle + half)]), "-": () => zoom(null),
        Escape: range ? () => zoom(null) : null,
      }[event.key];
      if (!act) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    });
    return one;
  };

  const stop = (index) =>                                     // the one chart that the Tab key stops at
    charts.forEach((one, k) => one.box.setAttribute("tabindex", k === index ? 0 : -1));
  const zoom = (ends) => { range = ends; whole.hidden = !ends; drawAll(); };
  const drawAll = () => charts.forEach((one) => one.draw());
  const news = () => {
    const some = (line) => line.x.some((x) => x > 0);       // without any there is no axis to draw
    const panels = model.get("panels").filter((panel) => model.get("last") || panel.lines.some(some));
    const lines = panels.flatMap((panel) => panel.lines);
    root.hidden = !panels.length;
    root.dataset.last = model.get("last");
    smoothing.hidden = !lines.some((line) => line.smooth);
    axis.hidden = !model.get("clock").length;
    weight.textContent = (+slider.value).toFixed(2);
    key.replaceChildren();
    const names = new Map(lines.map((line) => [line.name, line]));
    for (const [name, line] of names) {
      const part = make("span", key);
      make("i", part, { className: line.kind }).style.setProperty("--line", line.colour || "");
      part.append(name + (line.kind === "measured" ? ", 95% interval" : ""));
    }
    if (panels.some((panel) => panel.bands.length)) {
      make("i", make("span", key), { className: "band" });
      key.lastChild.append("the agent was in designed worlds");
    }
    const focused = charts.findIndex((one) => one.box === document.activeElement);
    const pointed = at && charts.indexOf(at.chart);
    place.replaceChildren();
    charts = panels.map(chart);
    at = at && charts[pointed] ? { ...at, chart: charts[pointed] } : null;
    drawAll();
    stop(Math.max(0, focused));
    charts[focused]?.box.focus({ preventScroll: true });
  };
  slider.oninput = () => { weight.textContent = (+slider.value).toFixed(2); drawAll(); };
  slider.onchange = () => { model.set("smoothing", +slider.value); model.save_changes(); };
  choice.onchange = () => zoom(null);
  whole.onclick = () => zoom(null);
  let width = 0;
  const watch = new ResizeObserver(() => { if (place.clientWidth !== width) { width = place.clientWidth; drawAll(); } });
  watch.observe(place);
  model.on("change:panels", news);
  news();
  return () => { watch.disconnect(); model.off("change:panels", news); };
}
export default { render };
