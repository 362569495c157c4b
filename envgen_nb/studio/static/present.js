// Large text, and the studio alone on the screen where the browser permits it; Escape leaves.
function render({ model, el }) {
  const button = document.createElement("button");
  button.className = "lm-Widget jupyter-widgets jupyter-button widget-button";
  button.style.width = "auto";
  button.setAttribute("data-lm-suppress-shortcuts", "true");
  const show = () => {
    button.textContent = model.get("large") ? "Leave large text" : "Large text";
    button.title = "For a projector: large text, and nothing but the studio on the screen; Escape leaves";
    button.setAttribute("aria-pressed", model.get("large"));
  };
  const set = (large) => { model.set("large", large); model.save_changes(); };
  const studio = () => el.closest(".envgen-studio");
  button.onclick = async () => {
    set(!model.get("large"));
    try {
      if (model.get("large")) await studio()?.requestFullscreen();
      else if (document.fullscreenElement) await document.exitFullscreen();
    } catch (refused) { /* then the text is large, and the page stays around it */ }
  };
  const left = () => { if (!document.fullscreenElement && model.get("large")) set(false); };
  document.addEventListener("fullscreenchange", left);
  model.on("change:large", show);
  show();
  el.append(button);
  return () => { document.removeEventListener("fullscreenchange", left); model.off("change:large", show); };
}
export default { render };
