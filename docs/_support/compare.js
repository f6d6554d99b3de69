// Comparison of two releases.

function renderCompare(engine, releases) {
  const section = document.getElementById("view-compare");
  const names = engine.releases;
  let [from, to] = releases;
  const unknown = releases.filter((release) => !names.includes(release));
  if (unknown.length) {
    showMessage(
      `No support table for ${engine.title} ${unknown.join(", ")}. Known releases: ${names[0]}–${names.at(-1)}.`,
    );
  }
  if (!names.includes(to)) to = names.at(-1);
  if (!names.includes(from)) from = names.findLast((name) => minorOf(name) !== minorOf(to)) ?? names[0];
  const [a, b] = [names.indexOf(from), names.indexOf(to)];
  const options = names.toReversed().map((name) => [name, name]);
  const choices = element(
    "div",
    { class: "choices" },
    select("compare-from", "From", options, from),
    element(
      "button",
      { type: "button", id: "compare-swap", onclick: () => go(writeAddress(engine, "compare", to, from)) },
      "Swap",
    ),
    select("compare-to", "To", options, to),
  );
  choices.addEventListener("change", () =>
    go(writeAddress(engine, "compare", choiceOf("compare-from"), choiceOf("compare-to"))),
  );
  const changes = compareReleases(engine, a, b);
  const parts = [
    ["gained-operators", "Operators now supported"],
    ["gained-versions", "Versions now supported"],
    ["lost-operators", "Operators no longer supported"],
    ["lost-versions", "Versions no longer supported"],
    ["other-way", "Supported in another way"],
    ["other-types", "Changed types"],
    ["unknown-in-one", "Support not known in one release"],
    ["unknown-types", "Types not known in one release"],
  ];
  section.replaceChildren(
    element("h2", { id: "compare-name", tabindex: "-1" }, `${engine.title} ${from} → ${to}`),
    choices,
    renderLimitChanges(engine, from, to),
    ...parts
      .filter(([kind]) => changes[kind])
      .map(([kind, title]) => renderChanges(engine, kind, title, changes[kind])),
  );
  const counts = parts.map(([kind, title]) => changes[kind] && `${title}: ${changes[kind].length}`).filter(Boolean);
  if (!counts.length)
    section.append(element("p", { class: "note" }, "No operator, version or type differs between these releases."));
  section.append(renderTerminal(engine, [`onnxgate support --diff ${from} ${to}`]));
  document.title = `${from} → ${to} – ${engine.title} operator support by version`;
  announce(`${from} compared with ${to}. ${counts.join(", ") || "No differences"}`);
}

function minorOf(release) {
  return release.split(".").slice(0, 2).join(".");
}

function compareReleases(engine, a, b) {
  const changes = {};
  const add = (kind, change) => (changes[kind] ??= []).push(change);
  for (const entry of engine.catalog) {
    const versions = decodeVersions(engine, entry);
    const existed = versions.some((it) => isSupported(wayAt(it.spans, a)));
    const exists = versions.some((it) => isSupported(wayAt(it.spans, b)));
    for (const it of versions) {
      const [from, to] = [wayAt(it.spans, a), wayAt(it.spans, b)];
      const change = { entry, version: it.version, opset: it.first, from, to };
      if (isSupported(from) && isSupported(to)) {
        if (from !== to) add("other-way", change);
        const { changed, unknown } = compareTypes(it.parameters, a, b);
        if (changed.length) add("other-types", { ...change, parameters: changed });
        if (unknown.length) add("unknown-types", { ...change, parameters: unknown });
      } else if (from === "u" || to === "u") {
        if (from !== to) add("unknown-in-one", change);
      } else if (isSupported(to)) add(existed ? "gained-versions" : "gained-operators", change);
      else if (isSupported(from)) add(exists ? "lost-versions" : "lost-operators", change);
    }
  }
  return changes;
}

/** Return the parameters with types that only one release supports, and those with types not known for one. */
function compareTypes(parameters, a, b) {
  const [changed, unknown] = [[], []];
  for (const { parameter, groups } of parameters) {
    const types = { "+": [], "−": [], "?": [] };
    for (const group of groups) {
      const [from, to] = [wayAt(group.spans, a), wayAt(group.spans, b)];
      if (from === to || (isSupported(from) && isSupported(to))) continue;
      types[from === "u" || to === "u" ? "?" : isSupported(to) ? "+" : "−"].push(...group.types);
    }
    if (types["+"].length || types["−"].length) changed.push({ parameter, added: types["+"], removed: types["−"] });
    if (types["?"].length) unknown.push({ parameter, unknown: types["?"] });
  }
  return { changed, unknown };
}

function renderTypeChange({ parameter, added = [], removed = [], unknown = [] }) {
  return element(
    "span",
    { class: "type-change" },
    element("code", {}, parameter),
    added.length ? element("span", { class: "gained" }, ` + ${added.join(", ")}`) : null,
    removed.length ? element("span", { class: "lost" }, ` − ${removed.join(", ")}`) : null,
    unknown.length ? element("span", { class: "quiet" }, ` ? ${unknown.join(", ")}`) : null,
  );
}

function renderLimitChanges(engine, from, to) {
  const [before, after] = [findLimits(engine, from), findLimits(engine, to)];
  if (!before || !after) return "";
  const domains = Object.keys({ ...before.opsets, ...after.opsets });
  const changed = domains.filter(
    (domain) =>
      domain === "ai.onnx" ||
      (Object.hasOwn(engine.operators, domain) && before.opsets[domain] !== after.opsets[domain]),
  );
  const rows = [
    ["IR version", before.ir, after.ir],
    ...changed.map((domain) => [`Opset of ${domain}`, before.opsets[domain], after.opsets[domain]]),
  ];
  const show = (value) => (value === undefined || value === Infinity ? NO_LIMIT : `${value}`);
  return element(
    "dl",
    { class: "figures" },
    rows.map(([name, old, now]) =>
      element(
        "div",
        {},
        element("dt", {}, name),
        element("dd", {}, old === now ? `${show(now)} in both` : `${show(old)} → ${show(now)}`),
      ),
    ),
  );
}

/** Return the changes by domain; versions of an operator with the same change share an item. */
function groupChanges(changes) {
  const domains = new Map();
  for (const { entry, version, opset, from, to, parameters } of changes) {
    const items = domains.get(entry.domain) ?? new Map();
    const key = JSON.stringify([entry.path, from, to, parameters]);
    const item = items.get(key) ?? { entry, from, to, parameters, versions: new Map() };
    if (!item.versions.has(version)) item.versions.set(version, opset);
    domains.set(entry.domain, items.set(key, item));
  }
  return [...domains].map(([domain, items]) => [domain, [...items.values()]]);
}

function renderChanges(engine, kind, title, changes) {
  const mark = { gained: "+", lost: "−", other: "±", unknown: "?" }[kind.split("-")[0]];
  const domains = groupChanges(changes);
  const count = domains.reduce((sum, [, items]) => sum + items.length, 0);
  return element(
    "details",
    { open: true, class: "changes" },
    element("summary", {}, element("h3", {}, `${mark} ${title} `, element("span", { class: "quiet" }, `${count}`))),
    domains.map(([domain, items]) => [
      element("h4", {}, domain),
      element(
        "ul",
        { class: kind.endsWith("-types") ? "" : "columns" },
        items.map((it) => element("li", {}, renderChange(engine, kind, it))),
      ),
    ]),
  );
}

function renderChange(engine, kind, { entry, versions, from, to, parameters }) {
  const links = [...versions].map(([version, opset]) => [
    `${version}`,
    writeAddress(engine, entry.path, opset),
    `${entry.name} ${version}`,
  ]);
  const subject = element("span", { class: "subject" }, breakName(entry.name), " ", joinLinks(links, " "));
  const show = (way) => element("span", { class: "run" }, sign(way), WAYS[way].label);
  if (kind.endsWith("-types")) return [subject, element("span", {}, parameters.map(renderTypeChange))];
  if (kind === "other-way" || kind === "unknown-in-one") {
    return [subject, element("span", { class: "way-change" }, show(from), " → ", show(to))];
  }
  return [subject, show(kind.startsWith("lost") ? "x" : to)];
}
