// Scrolls its panel into view, as far as there is room, once.
function render({ el }) {
  const panel = el.closest(".envgen-panel");
  if (!panel) return;
  const show = () => {
    const high = panel.getBoundingClientRect().height > window.innerHeight * 0.6;
    panel.scrollIntoView({ block: high ? "start" : "nearest" });
  };
  show();
  const grown = new ResizeObserver(show);                 // the widgets beside it are drawn later
  grown.observe(panel);
  const timer = setTimeout(() => grown.disconnect(), 1500);
  return () => { clearTimeout(timer); grown.disconnect(); };
}
export default { render };
