// The road: its stations in order, then what else there is to look at; one of them is in front.
function render({ model, el }) {
  const bar = document.createElement("div");
  bar.className = "envgen-road";
  bar.setAttribute("role", "tablist");
  bar.setAttribute("aria-label", "The road of a cycle");
  el.append(bar);

  const choose = (index) => {
    model.set("selected", index);
    model.save_changes();
    model.send({ chosen: index });
  };
  const make = (index) => {
    const [name, state] = model.get("pages")[index];
    const button = document.createElement("button");
    button.setAttribute("role", "tab");
    button.setAttribute("aria-label", name);
    button.setAttribute("data-lm-suppress-shortcuts", "true");
    if (state) button.append(Object.assign(document.createElement("span"), { className: "envgen-stop" }));
    button.append(name);
    button.onclick = () => choose(index);
    return button;
  };
  const part = (name, text) =>
    Object.assign(document.createElement("span"), { className: name, textContent: text, ariaHidden: "true" });

  let buttons = [];
  const build = () => {
    const pages = model.get("pages");
    buttons = pages.map((_, index) => make(index));
    bar.replaceChildren();
    buttons.forEach((button, index) => {
      if (index) bar.append(pages[index][1] ? part("envgen-way", "→") : part(pages[index - 1][1] ? "envgen-gap" : "", ""));
      bar.append(button);
    });
    show();
  };
  const words = { done: "done", now: "here the run stands", ahead: "comes later", skipped: "left out in this run" };
  const show = () => {
    const selected = model.get("selected");
    model.get("pages").forEach(([name, state], index) => {
      const button = buttons[index];
      button.setAttribute("aria-selected", index === selected);
      button.tabIndex = index === selected ? 0 : -1;
      button.dataset.state = state;
      if (state) {
        button.title = name + ": " + words[state];
        button.querySelector(".envgen-stop").textContent =
          state === "done" ? "✓" : state === "skipped" ? "–" : String(index + 1);
        if (state === "now") button.setAttribute("aria-current", "step");
        else button.removeAttribute("aria-current");
      }
    });
  };
  bar.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (to + buttons.length) % buttons.length;
    choose(next);
    buttons[next].focus();
  });

  let names = "";
  const follow = () => {
    const now = model.get("pages").map(([name, state]) => name + (state ? "+" : "")).join();
    if (now !== names) { names = now; build(); } else show();
  };
  model.on("change:pages", follow);
  model.on("change:selected", show);
  follow();
  if (model.get("fresh")) {                       // shown for the first time: to the top of the screen, once
    model.set("fresh", false);
    model.save_changes();
    setTimeout(() => el.closest(".envgen-studio")?.scrollIntoView({ block: "start" }), 50);
  }
  return () => { model.off("change:pages", follow); model.off("change:selected", show); };
}
export default { render };
