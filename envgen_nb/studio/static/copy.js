// Copies a text to the clipboard; where the page may not, it is selected instead.
export default { render({ model, el }) {
  const button = document.createElement("button");
  const box = document.createElement("textarea");
  const fresh = () => { button.textContent = model.get("label"); button.title = model.get("hint"); };
  button.className = "lm-Widget jupyter-widgets jupyter-button widget-button";
  button.style.width = "auto";
  box.readOnly = true; box.hidden = true; box.rows = 6; box.style.width = "100%";
  box.setAttribute("aria-label", "the text to copy");
  fresh(); model.on("change:label", fresh); model.on("change:hint", fresh);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(model.get("text"));
      button.textContent = "Copied";
    } catch (refused) {
      box.hidden = false; box.value = model.get("text"); box.focus(); box.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C to copy";
    }
    setTimeout(fresh, 2500);
  });
  el.append(button, box);
} };
