// Episodes side by side, to be watched: played, paused, scrubbed. All pictures of an episode lie in one sheet.
const SPEEDS = [1, 2, 4, 8, 16, 32];

function make(tag, parent, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text) node.textContent = text;
  parent.append(node);
  return node;
}
const words = (name) => name.replaceAll("_", " ");
const picture = (sheet) => createImageBitmap(new Blob([sheet.data], { type: "image/webp" }));

function canvas(parent, sheet, label) {
  const node = make("canvas", parent);
  [node.width, node.height] = [sheet.width, sheet.height];
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", label);
  const pen = node.getContext("2d");
  return (whole, k) => pen.drawImage(whole, (k % sheet.columns) * sheet.width, Math.floor(k / sheet.columns) *
    sheet.height, sheet.width, sheet.height, 0, 0, sheet.width, sheet.height);
}

// One episode: its picture, a line about the moment, and what the agent saw and how it chose.
async function episode(parent, film) {
  const box = make("section", parent, "envgen-watch-film");
  box.setAttribute("aria-label", film.title);
  make("div", box, "envgen-watch-title", film.title);
  const draw = canvas(box, film.sheet, film.title), whole = await picture(film.sheet);
  const line = make("div", box, "envgen-watch-line");
  const said = film.said.length ? ["In words", "Options"].map((head) => {
    make("div", box, "envgen-watch-head", head);
    return make("div", box, "envgen-watch-said");
  }) : [];
  const rows = [];
  if (film.chances) {
    const list = make("div", box, "envgen-watch-chances");
    make("div", list, "envgen-watch-head", "Probability of each action");
    for (const name of film.actions) {
      const row = make("div", list, "envgen-watch-chance");
      make("span", row, "", words(name));
      const bar = make("span", make("span", row, "envgen-watch-bar"));
      rows.push([row, bar, make("span", row, "envgen-watch-number")]);
    }
  }
  let drawSeen = null, seen = null;
  if (film.seen) {
    make("div", box, "envgen-watch-head", "What it saw: " + film.seen.names);
    drawSeen = canvas(box, film.seen, "what the agent saw: " + film.seen.names);
    box.lastChild.className = "envgen-watch-seen";
    seen = await picture(film.seen);
  }
  return (step) => {
    const k = Math.min(step, film.steps - 1), total = film.totals[k];
    draw(whole, k);
    if (drawSeen) drawSeen(seen, k);
    const expects = film.values ? ` · expects ${film.values[k].toFixed(1)}` : "";
    const over = step >= film.steps ? " · the episode is over" : "";
    line.textContent = `Step ${k + 1} of ${film.steps}: ${words(film.actions[film.chosen[k]])} · reward so far ` +
      `${total.toFixed(1)}${expects}${over}`;
    said.forEach((node, which) => { node.textContent = film.said[k][which]; });
    rows.forEach(([row, bar, number], action) => {
      const chance = film.chances[k][action];
      bar.style.width = `${chance}%`;
      number.textContent = `${chance}%`;
      row.classList.toggle("chosen", action === film.chosen[k]);
    });
  };
}

// The objectives, and in which step each fell, as far as it has been watched.
function objectives(parent, films) {
  const table = make("table", make("div", parent, "envgen-watch-goals"));
  const head = make("tr", make("thead", table)), body = make("tbody", table), marks = [];
  make("th", head, "", "Objective").scope = "col";
  films.forEach((film) => { make("th", head, "", film.who).scope = "col"; });
  const names = [...new Set(films.flatMap((film) => film.possible))];
  for (const name of names) {
    const row = make("tr", body);
    make("td", row, "", words(name));
    films.forEach((film) => marks.push([make("td", row), film.reached[name], film.possible.includes(name)]));
  }
  return (step) => marks.forEach(([cell, at, possible]) => {
    const there = at !== undefined && step + 1 >= at;
    cell.textContent = there ? `✓ step ${at}` : possible ? "○" : "–";
    cell.classList.toggle("reached", there);
  });
}

function controls(root, last, go) {
  const bar = make("div", root, "envgen-watch-controls");
  const button = (text, hint, act) => {
    const node = make("button", bar, "", text);
    node.title = hint;
    node.onclick = act;
    return node;
  };
  const state = { step: 0, timer: null };
  const play = button("▶ Play", "Play, or pause", () => (state.timer ? pause() : start()));
  button("Start", "Back to the first step", () => { pause(); to(0); });
  button("◀ Back", "One step back", () => { pause(); to(state.step - 1); });
  button("Next ▶", "One step on", () => { pause(); to(state.step + 1); });
  const speed = make("select", bar);
  speed.setAttribute("aria-label", "Speed");
  for (const rate of SPEEDS) make("option", speed, "", `${rate} steps/s`).value = rate;
  speed.value = 8;
  const slider = make("input", bar);
  Object.assign(slider, { type: "range", min: 1, max: last + 1, value: 1 });
  slider.setAttribute("aria-label", "Step");
  for (const node of bar.children) node.setAttribute("data-lm-suppress-shortcuts", "true");

  function to(step) {
    state.step = Math.max(0, Math.min(last, step));
    slider.value = state.step + 1;
    go(state.step);
  }
  function pause() {
    clearInterval(state.timer);
    state.timer = null;
    play.textContent = "▶ Play";
  }
  function start() {
    if (state.step >= last) to(0);
    play.textContent = "❚❚ Pause";
    state.timer = setInterval(() => (state.step >= last ? pause() : to(state.step + 1)), 1000 / speed.value);
  }
  slider.oninput = () => { pause(); to(slider.value - 1); };
  speed.onchange = () => { if (state.timer) { pause(); start(); } };
  return { to, pause };
}

function render({ model, el }) {
  const root = make("div", el, "envgen-watch");
  let player = null, shown = 0;

  async function show() {
    const films = model.get("films"), mine = ++shown;
    const fresh = document.createElement("div");
    if (!films.length) {
      make("p", fresh, "", model.get("hint"));
      player?.pause();
      return root.replaceChildren(fresh);
    }
    const last = Math.max(...films.map((film) => film.steps)), updates = [];
    const place = make("div", fresh), row = make("div", fresh, "envgen-watch-films");
    for (const film of films) updates.push(await episode(row, film));
    updates.push(objectives(row, films));
    if (mine !== shown) return;                            // other episodes have come meanwhile
    player?.pause();
    player = controls(place, last - 1, (step) => updates.forEach((update) => update(step)));
    player.to(0);
    root.replaceChildren(fresh);                           // in one go: nothing flickers
  }
  model.on("change:films", show);
  show();
  return () => { model.off("change:films", show); player?.pause(); };
}
export default { render };
