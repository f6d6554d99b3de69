// Newest opset and IR version that a range of releases accepts.

function renderExport(engine, releases) {
  const section = document.getElementById("view-export");
  const names = engine.limits.releases;
  const unknown = releases.filter((release) => !names.includes(release));
  if (unknown.length) {
    const known = `${names[0]}–${names.at(-1)}`;
    showMessage(`The limits of ${engine.title} ${unknown.join(", ")} are not known. Known releases: ${known}.`);
  }
  let [from, to] = releases;
  if (!names.includes(from)) from = names.includes(engine.releases[0]) ? engine.releases[0] : names[0];
  if (!names.includes(to)) to = names.at(-1);
  let [a, b] = [names.indexOf(from), names.indexOf(to)];
  if (a > b) [a, b, from, to] = [b, a, to, from];
  const options = names.toReversed().map((name) => [name, name]);
  const choices = element(
    "div",
    { class: "choices" },
    select("export-from", "Oldest release", options, from),
    select("export-to", "Newest release", options, to),
  );
  choices.addEventListener("change", () =>
    go(writeAddress(engine, "export", choiceOf("export-from"), choiceOf("export-to"))),
  );
  const figures = listFigures(engine, names.slice(a, b + 1));
  const newest = figures[0][1];
  section.replaceChildren(
    element("h2", { id: "export-name", tabindex: "-1" }, "Opset to export"),
    element(
      "p",
      { class: "lead" },
      `The newest opset and IR version that all releases of ${engine.title} in a range accept.`,
    ),
    choices,
    element(
      "dl",
      { class: "figures large" },
      figures.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, `${value}`))),
    ),
    newest === NO_LIMIT
      ? element(
          "p",
          {},
          `Releases of ${engine.title} refuse a model because of its operators, not because of its opset.`,
        )
      : element(
          "pre",
          { tabindex: "0" },
          element("code", {}, `torch.onnx.export(model, args, "model.onnx", opset_version=${newest})`),
        ),
    renderTerminal(defaultEngine, [`onnxgate support --runtime '${engine.name}>=${from},<=${to}' --opset`]),
  );
  document.title = `Newest opset for ${from}–${to} – ${engine.title} operator support by version`;
  announce(figures.map(([name, value]) => `${name}: ${value}`).join(", "));
}

/** Return the newest opset and IR version that all of the releases accept, as pairs of name and value. */
function listFigures(engine, releases) {
  const rows = releases.map((release) => findLimits(engine, release));
  const opsets = new Map();
  for (const row of rows) {
    for (const [domain, newest] of Object.entries(row.opsets)) {
      opsets.set(domain, Math.min(newest, opsets.get(domain) ?? Infinity));
    }
  }
  const ir = Math.min(...rows.map((row) => row.ir));
  return [
    ["Opset", opsets.get("ai.onnx") ?? NO_LIMIT],
    ["IR version", ir === Infinity ? NO_LIMIT : ir],
    ...(opsets.has("ai.onnx.ml") ? [["Opset of ai.onnx.ml", opsets.get("ai.onnx.ml")]] : []),
  ];
}
