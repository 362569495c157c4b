// A table of runs: filtered, sorted, grouped, columns hidden or put first, kept as views, runs chosen, one of them the
// baseline, written as CSV. Nothing of it asks the kernel.
function render({ model, el }) {
  const make = (tag, parent, props = {}) => {
    const node = Object.assign(document.createElement(tag), props);
    parent.append(node);
    return node;
  };
  const root = make("div", el, { className: "envgen envgen-runs" });
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  const bar = make("div", root, { className: "envgen-runs-bar" });
  const label = make("label", bar, { textContent: "Filter " });
  const filter = make("input", label, { type: "search", placeholder: "a name, a tag, a value" });
  const away = make("input", make("label", bar), { type: "checkbox" });
  away.parentNode.append(" archived ones too");
  const hide = make("details", bar);
  make("summary", hide, { textContent: "Columns" });
  const choices = make("div", hide, { className: "envgen-runs-columns" });
  const groups = make("select", make("label", bar, { textContent: "Group by " }));
  const views = make("select", make("label", bar, { textContent: "View " }));
  groups.setAttribute("aria-label", "Group by");
  views.setAttribute("aria-label", "View");
  const keep = make("button", bar, { type: "button", textContent: "Save view", className: "envgen-plain",
                                     title: "Keep columns, order, filter and groups under a name" });
  const csv = make("button", bar, { type: "button", textContent: "CSV", className: "envgen-plain",
                                    title: "The rows and columns as they are shown, as a file" });
  const none = make("button", bar, { type: "button", textContent: "Choose none", className: "envgen-plain" });
  const count = make("span", bar, { className: "envgen-quiet" });
  count.setAttribute("role", "status");
  const place = make("div", root, { className: "envgen-runs-place", tabIndex: 0 });
  place.setAttribute("role", "region");
  place.setAttribute("aria-label", "the runs");

  const group = "baseline-" + Math.random();
  let sorted = ["", 1], own = false;
  const hidden = new Set(), pinned = new Set();
  const set = (name, value) => { own = true; model.set(name, value); model.save_changes(); own = false; tell(); };
  const tell = () => {
    const rows = model.get("rows"), chosen = new Set(model.get("chosen"));
    const shown = rows.filter((row) => chosen.has(row.id)).length;
    count.textContent = rows.length ? `${wanted().length} of ${rows.length} runs, ${shown} chosen` : "no runs";
  };

  const columns = () => {
    const shown = model.get("columns").filter(([key]) => !hidden.has(key));
    return [...shown.filter(([key]) => pinned.has(key)), ...shown.filter(([key]) => !pinned.has(key))];
  };
  const compare = (a, b) => {
    const [x, y] = [a, b].map((row) => row.cells[sorted[0]]?.[0] ?? null);
    if (x === null || y === null) return (x === null) - (y === null);            // what is not known comes last
    return sorted[1] * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  };
  const wanted = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = model.get("rows").filter((row) => (away.checked || !row.archived) && words.every((word) =>
      Object.values(row.cells).some(([, text]) => text.toLowerCase().includes(word))));
    return sorted[0] ? rows.slice().sort(compare) : rows;
  };

  const head = (table) => {
    const row = make("tr", make("thead", table));
    make("th", row, { textContent: "show" });
    make("th", row, { textContent: "baseline" });
    for (const [key, name, kind] of columns()) {
      const cell = make("th", row, { className: kind });
      const here = sorted[0] === key;
      cell.setAttribute("aria-sort", here ? (sorted[1] > 0 ? "ascending" : "descending") : "none");
      const button = make("button", cell, { type: "button", textContent: name + (here ? (sorted[1] > 0 ? " ▲" : " ▼") : "") });
      button.title = "Sort by " + name;
      button.onclick = () => { sorted = [key, here ? -sorted[1] : kind === "number" ? -1 : 1]; draw(key); };
    }
  };
  const body = (table, rows) => {
    const chosen = new Set(model.get("chosen"));
    const part = make("tbody", table), by = groups.value;
    const value = (one) => one.cells[by]?.[1] ?? "";
    const names = by ? [...new Set(rows.map(value))] : [""];
    const lines = names.flatMap((name) => by ? [{ name, count: rows.filter((one) => value(one) === name).length },
                                                 ...rows.filter((one) => value(one) === name)] : rows);
    for (const one of lines) {
      const row = make("tr", part);
      if (one.count !== undefined) {
        make("th", row, { colSpan: columns().length + 2, scope: "colgroup", className: "envgen-runs-group",
                          textContent: `${one.name || "–"}: ${one.count} ${one.count === 1 ? "run" : "runs"}` });
        continue;
      }
      const show = make("input", make("td", row), { type: "checkbox", checked: chosen.has(one.id) });
      show.setAttribute("aria-label", "show " + one.name);
      show.onchange = () => set("chosen", show.checked ? [...model.get("chosen"), one.id]
                                                       : model.get("chosen").filter((id) => id !== one.id));
      const base = make("input", make("td", row), { type: "radio", name: group,
                                                    checked: model.get("baseline") === one.id });
      base.setAttribute("aria-label", one.name + " is the baseline");
      base.onchange = () => set("baseline", one.id);
      for (const [key, , kind] of columns())
        make("td", row, { className: kind, textContent: one.cells[key]?.[1] ?? "" });
    }
  };
  const draw = (focus) => {
    const rows = wanted(), top = place.scrollTop;
    const table = document.createElement("table");
    head(table);
    body(table, rows);
    place.replaceChildren(table);
    place.scrollTop = top;
    tell();
    if (focus) table.querySelectorAll("th button")[columns().findIndex(([key]) => key === focus)]?.focus();
  };
  const offer = () => {
    choices.replaceChildren();
    for (const [key, name] of model.get("columns")) {
      const pair = make("span", choices);
      const box = make("input", make("label", pair), { type: "checkbox", checked: !hidden.has(key) });
      box.parentNode.append(" " + name);
      box.onchange = () => { box.checked ? hidden.delete(key) : hidden.add(key); draw(); };
      const pin = make("button", pair, { type: "button", className: "envgen-plain envgen-pin", textContent: "first" });
      pin.setAttribute("aria-label", name + " first");
      pin.setAttribute("aria-pressed", pinned.has(key));
      pin.onclick = () => {
        pinned.has(key) ? pinned.delete(key) : pinned.add(key);
        pin.setAttribute("aria-pressed", pinned.has(key));
        draw();
      };
    }
    const before = groups.value || (fresh && model.get("group"));
    groups.replaceChildren();
    make("option", groups, { value: "", textContent: "nothing" });
    for (const [key, name, kind] of model.get("columns"))
      if (kind === "text" && key !== "run") make("option", groups, { value: key, textContent: name });
    groups.value = before || "";
    if (model.get("columns").length) fresh = false;
    listViews();
  };
  let fresh = true;
  const listViews = (chosen = views.value) => {
    views.replaceChildren();
    make("option", views, { value: "", textContent: "as it comes" });
    for (const name of Object.keys(model.get("views"))) make("option", views, { value: name, textContent: name });
    views.value = chosen in model.get("views") ? chosen : "";
  };
  const look = () => {
    const view = model.get("views")[views.value] ?? {};
    for (const [set, name] of [[hidden, "hidden"], [pinned, "pinned"]]) {
      set.clear();
      (view[name] ?? []).forEach((key) => set.add(key));
    }
    [sorted, filter.value, away.checked] = [view.sorted ?? ["", 1], view.filter ?? "", view.away ?? false];
    groups.value = view.group ?? model.get("group");
    offer();
    draw();
  };
  const news = () => { offer(); draw(); };
  filter.oninput = () => draw();
  away.onchange = () => draw();
  groups.onchange = () => draw();
  views.onchange = look;
  keep.onclick = () => {
    const name = (window.prompt("A name for this view", views.value) ?? "").trim().slice(0, 60);
    if (!name) return;
    set("views", { ...model.get("views"), [name]: { hidden: [...hidden], pinned: [...pinned], sorted, filter: filter.value,
                                                    away: away.checked, group: groups.value } });
    listViews(name);
  };
  csv.onclick = () => {
    const quoted = (value) => /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
    const lines = [columns().map(([key]) => key), ...wanted().map((one) => columns().map(([key]) => {
      const [value, text] = one.cells[key] ?? [null, ""];
      return String(typeof value === "number" ? value : value === null ? "" : text);
    }))];
    const data = new Blob([lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n"], { type: "text/csv" });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(data), download: "runs.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  none.onclick = () => { set("chosen", []); draw(); };
  for (const name of ["rows", "columns"]) model.on("change:" + name, news);
  const chose = () => { if (!own) draw(); };                 // what a person has just ticked keeps the focus
  for (const name of ["chosen", "baseline"]) model.on("change:" + name, chose);
  news();
  return () => {
    for (const name of ["rows", "columns"]) model.off("change:" + name, news);
    for (const name of ["chosen", "baseline"]) model.off("change:" + name, chose);
  };
}
export default { render };
