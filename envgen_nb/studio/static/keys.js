// Keeps JupyterLab's shortcuts away from the other widgets in the same output.
function render({ el }) {
  const claim = (event) => {
    const output = el.closest(".jp-OutputArea-output");
    if (output?.contains(event.target))
      event.target.toggleAttribute("data-lm-suppress-shortcuts", !(event.ctrlKey || event.altKey || event.metaKey));
  };
  window.addEventListener("keydown", claim, true);          // before JupyterLab, which listens at the document
  return () => window.removeEventListener("keydown", claim, true);
}
export default { render };
