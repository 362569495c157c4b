// A game that is played by hand: its picture, its buttons and keys, its objectives.
function make(tag, parent, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text) node.textContent = text;
  parent.append(node);
  return node;
}
const named = {ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "Space"};
const words = (name) => name.replaceAll("_", " ");

function page(model, el) {
  const root = make("div", el, "envgen-play");
  const screen = make("div", root, "envgen-play-screen");
  screen.tabIndex = 0;
  screen.setAttribute("data-lm-suppress-shortcuts", "true");
  screen.setAttribute("role", "application");
  screen.setAttribute("aria-label", model.get("title") + ". Play with the keys that the buttons name.");
  const picture = make("img", screen);
  picture.alt = model.get("title");
  const side = make("div", root, "envgen-play-side");
  make("div", side, "envgen-play-hint", "Play with the keys, or use the buttons. Escape leaves the game.");
  const status = make("div", side, "envgen-play-status");
  status.setAttribute("role", "status");
  const actions = make("div", side, "envgen-play-actions");
  make("div", side, "envgen-play-title", "Objectives");
  const goals = make("ul", side, "envgen-play-goals");
  return { root, screen, picture, status, actions, goals };
}

function render({ model, el }) {
  const { root, screen, picture, status, actions, goals } = page(model, el);
  let waiting = false;
  const say = (message) => { waiting = true; model.send(message); };
  const keys = {}, buttons = [];
  for (const [action, key] of model.get("actions")) {
    keys[key.toLowerCase()] = action;
    const button = make("button", actions);
    make("kbd", button, "", named[key] ?? key);
    button.append(" " + words(action));
    button.title = "Play one step: " + words(action) + " (key: " + (named[key] ?? key) + ")";
    button.onclick = () => say({ action });
    buttons.push(button);
  }
  const again = make("button", actions, "envgen-play-again", "Start again");
  again.title = "Begin the same episode anew";
  for (const button of [...buttons, again]) button.setAttribute("data-lm-suppress-shortcuts", "true");
  again.onclick = () => { say({ again: true }); screen.focus(); };

  const leave = () => {                                     // to the button that opened the game, or to the notebook
    const opener = root.closest(".envgen-card")?.querySelector(".envgen-opens-play");
    (opener ?? root.closest(".jp-Notebook"))?.focus();
    if (!opener) screen.blur();
    say({ leave: true });
  };
  root.addEventListener("keydown", (event) => {
    const action = keys[event.key.toLowerCase()];
    const pressed = event.target.tagName === "BUTTON" && (event.key === " " || event.key === "Enter");
    if (pressed || event.ctrlKey || event.altKey || event.metaKey) return;
    const other = !action && event.target === screen && event.key.length === 1;       // a letter that means nothing
    if (!action && !other && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") leave();
    else if (other) say({ key: event.key });
    else if (!(event.repeat && waiting)) say({ action });   // a key held down waits for the picture
  });

  let shown = null;
  const show = () => {
    waiting = false;
    const url = URL.createObjectURL(new Blob([model.get("picture")], { type: "image/png" }));
    picture.src = url;
    if (shown) URL.revokeObjectURL(shown);
    shown = url;
    status.textContent = model.get("status");
    root.classList.toggle("envgen-play-over", model.get("over"));
    for (const button of buttons) button.disabled = model.get("over");
    goals.replaceChildren();
    for (const [name, reached] of model.get("objectives"))
      make("li", goals, reached ? "reached" : "", (reached ? "✓ " : "○ ") + words(name));
  };
  model.on("change:turn", show);
  show();
  if (model.get("fresh")) {                                 // not again when the page is loaded anew
    model.set("fresh", false);
    model.save_changes();
    requestAnimationFrame(() => {
      screen.focus({ preventScroll: true });
      root.scrollIntoView({ block: "nearest" });
    });
    picture.addEventListener("load", () => root.scrollIntoView({ block: "nearest" }), { once: true });
  }
  return () => { model.off("change:turn", show); if (shown) URL.revokeObjectURL(shown); };
}
export default { render };
