// The ladders of a cycle: rows of stages, of which one is chosen by a click or with the arrow keys.
function render({ model, el }) {
  const box = document.createElement("div");
  box.className = "envgen envgen-ladders";
  el.append(box);

  const stages = () => [...box.querySelectorAll("li[data-place]")];
  const place = (stage) => Number(stage.dataset.place);
  const choose = (stage) => {
    model.set("chosen", place(stage));
    model.save_changes();
    stage.focus();
  };
  const mark = () => {
    for (const row of box.querySelectorAll("ol")) {
      const inside = stages().filter((stage) => row.contains(stage));
      const chosen = inside.find((stage) => place(stage) === model.get("chosen"));
      for (const stage of inside) {
        stage.setAttribute("aria-selected", stage === chosen);
        stage.tabIndex = stage === (chosen || inside[0]) ? 0 : -1;
      }
    }
  };
  const draw = () => {
    const scrolled = [...box.querySelectorAll("ol")].map((row) => row.scrollLeft);
    const focus = stages().includes(document.activeElement) ? place(document.activeElement) : -1;
    box.innerHTML = model.get("html");
    box.querySelectorAll("ol").forEach((row, k) => {
      row.setAttribute("role", "listbox");
      row.removeAttribute("tabindex");
      row.scrollLeft = scrolled[k] || 0;
    });
    for (const stage of stages()) {
      stage.setAttribute("role", "option");
      stage.setAttribute("data-lm-suppress-shortcuts", "true");
      stage.onclick = () => choose(stage);
    }
    mark();
    stages().find((stage) => place(stage) === focus)?.focus();
  };
  box.addEventListener("keydown", (event) => {
    const row = event.target.closest("ol"), inside = stages().filter((stage) => row?.contains(stage));
    const at = inside.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: inside.length - 1, Enter: at, " ": at }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (inside[to]) choose(inside[to]);
  });

  model.on("change:html", draw);
  model.on("change:chosen", mark);
  draw();
  return () => { model.off("change:html", draw); model.off("change:chosen", mark); };
}
export default { render };
