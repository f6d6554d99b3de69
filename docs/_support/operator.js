// One operator.

function renderOperator(engine, entry, rest) {
  const versions = decodeVersions(engine, entry);
  const choice = readChoice(engine, entry, versions, rest);
  const { shown, opset, type } = choice;
  const longType = data.types.find((name) => shortType(name) === type);
  const at = (spans, parameter) =>
    limitSpans(engine, entry.domain, shown.first, opset, fillReasons(spans, entry, shown, parameter, longType));
  const questions = type
    ? findQuestions(shown, type).map(([names, spans]) => [`${names.join(", ")} = ${type}`, at(spans, names[0])])
    : [["", at(shown.spans)]];
  document
    .getElementById("operator")
    .replaceChildren(
      renderHeading(engine, entry),
      renderChoices(engine, entry, versions, choice),
      ...questions.map(([title, spans]) => renderAnswer(engine, title, spans, choice)),
      shown.parameters.length ? renderTypes(engine, entry, choice, at) : "",
      renderVersions(engine, entry, versions, shown),
      renderCommand(engine, entry, choice),
    );
  const heading = [entry.name, rest.length ? opset : "", type].filter(Boolean).join(" ");
  document.title = `${heading} – ${engine.title} operator support by version`;
  announce(
    questions.map(([title, spans]) => [heading, title, describeSupport(engine, spans).join(" ")].join(": ")).join("; "),
  );
}

/** Return the version, the opset and the type in an address; explain what is unknown, and use the newest instead. */
function readChoice(engine, entry, versions, rest) {
  const hasOpset = /^\d+$/.test(rest[0] ?? "");
  const newest = versions.at(-1);
  const newestOpset = findNewestOpset(engine, entry.domain);
  let opset = hasOpset ? Number(rest[0]) : newest.first;
  let shown = versions.findLast((version) => version.first <= opset);
  if (!shown) {
    const links = versions.map((it) => [`${it.first}`, writeAddress(engine, entry.path, it.first)]);
    showMessage(
      `${entry.name} does not exist in opset ${opset} of ${entry.domain}. It exists since opset`,
      links.slice(0, 1),
    );
  } else if (opset > newestOpset) {
    const isOther = entry.domain !== "ai.onnx";
    showMessage(
      `No known release accepts opset ${opset} of ${entry.domain}. The newest known opset is ${newestOpset}.` +
        (isOther ? " For models with this opset of ai.onnx, run " : ""),
      [],
      isOther ? writeCommand(engine, [`onnxgate support ${entry.name} --opset ${opset}`]) : "",
    );
    shown = undefined;
  }
  if (!shown) [shown, opset] = [newest, newest.first];
  const types = new Set(shown.parameters.flatMap(({ groups }) => groups.flatMap((group) => group.types)));
  let type = readType(rest.slice(hasOpset ? 1 : 0).join("/"));
  if (type && !types.has(type)) {
    const near = [...types].filter((name) => editDistance(name, type, 2) <= 2);
    const links = near.map((name) => [name, writeAddress(engine, entry.path, opset, name)]);
    const text = `${entry.name} ${shown.version} has no type ${type}.`;
    showMessage(links.length ? `${text} Did you mean` : `${text} Its types are listed below.`, links);
    type = "";
  }
  return { shown, opset, newestOpset, type, types };
}

/** Return the newest opset of a domain that any release of an engine accepts, or that has an operator. */
function findNewestOpset(engine, domain) {
  const limits = [engine, defaultEngine].flatMap((it) => it.limits.rows.map((row) => row[2][domain] ?? 0));
  const versions = Object.values(engine.operators[domain]).map((it) => it.at(-1)[1]);
  return Math.max(...limits, ...versions);
}

function renderHeading(engine, entry) {
  const others = engine.catalog.filter((other) => other.key === entry.key && other.domain !== entry.domain);
  const links = others.map((other) => [other.path, writeAddress(engine, other.path)]);
  return element(
    "header",
    {},
    element(
      "h2",
      { id: "operator-name", tabindex: "-1" },
      entry.name,
      " ",
      element("span", { class: "domain" }, entry.domain),
    ),
    links.length ? element("p", { class: "quiet" }, "Also ", joinLinks(links)) : null,
  );
}

/** Return the spans of a type, and the parameters for which they are the same: `[parameters, spans]`. */
function findQuestions({ parameters }, type) {
  const questions = [];
  for (const { parameter, groups } of parameters) {
    const spans = groups.find(({ types }) => types.includes(type))?.spans;
    const isSpecific = spans?.some(({ reason }) => reason.includes("$p"));
    const equal = isSpecific ? undefined : questions.find((question) => question[1] === spans);
    if (equal) equal[0].push(parameter);
    else if (spans) questions.push([[parameter], spans]);
  }
  return questions;
}

function renderChoices(engine, entry, versions, { opset, newestOpset, type, types }) {
  const byVersion = new Map();
  for (const it of versions) {
    const options = byVersion.get(it.version) ?? [];
    const last = Math.min(it.last, Math.max(newestOpset, it.first));
    for (let value = it.first; value <= last; value++) options.push([value, `${value}`]);
    byVersion.set(it.version, options);
  }
  const groups = [...byVersion].map(([version, options]) => ({ group: `version ${version}`, options }));
  const choices = element(
    "div",
    { class: "choices" },
    select("choose-opset", entry.domain === "ai.onnx" ? "Opset" : `Opset of ${entry.domain}`, groups, opset),
    select("choose-type", "Type", [["", "any"], ...[...types].map((name) => [name, name])], type),
  );
  choices.addEventListener("change", () => {
    go(writeAddress(engine, entry.path, choiceOf("choose-opset"), choiceOf("choose-type")));
  });
  return choices;
}

/** Return the answer in a few words, and how many releases it is about. */
function describeSupport(engine, spans) {
  const ranges = listSupported(spans);
  const total = engine.releases.length;
  const newest = total - 1;
  const unknown = spans.filter((span) => span.way === "u");
  if (!ranges.length && unknown.length) {
    const number = countReleases(unknown);
    if (number === total) return ["Not known", ""];
    return ["Not known", `for ${number} of ${total} known releases and not supported by the others`];
  }
  if (!ranges.length) return ["Not supported", `by any of the ${total} known releases`];
  const text = ranges.map(([first, last]) => nameRange(engine, first, last)).join(", ");
  const count = countReleases(spans.filter((span) => isSupported(span.way)));
  if (count === total) return ["Supported", `by all ${total} known releases, ${text}`];
  const last = ranges.at(-1)[1];
  const older = countReleases(unknown.filter((span) => span.last < last));
  const rest = older ? `; not known for ${older} older ${older === 1 ? "release" : "releases"}` : "";
  if (ranges.length === 1 && last === newest) {
    return [`Supported since ${engine.releases[ranges[0][0]]}`, `by ${count} of ${total} known releases${rest}`];
  }
  if (last === newest) return [`Supported by ${text}`, `${count} of ${total} known releases${rest}`];
  const newer = countReleases(unknown.filter((span) => span.first > last));
  const end = ["not by newer releases", "not known for some newer releases", "not known for newer releases"];
  return [`Supported by ${text}`, `and ${end[newer ? (newer < newest - last ? 1 : 2) : 0]}${rest}`];
}

function renderAnswer(engine, title, spans, { shown, opset }) {
  const [verdict, detail] = describeSupport(engine, spans);
  const latest = spans.at(-1).way;
  const state = !spans.some((span) => isSupported(span.way)) ? latest : isSupported(latest) ? "k" : "c";
  const note = opset === shown.version ? "" : ` Opset ${opset} uses version ${shown.version}.`;
  return element(
    "section",
    { class: `answer ${state}` },
    title ? element("h3", {}, element("code", {}, title)) : null,
    element("p", { class: "verdict" }, element("strong", {}, joinWords(verdict)), " ", joinWords(detail && `${detail}.`), note),
    renderStrip(engine, spans),
    element(
      "table",
      { class: "spans" },
      element("caption", { class: "unseen" }, "Releases"),
      element(
        "tbody",
        {},
        spans.map((span) =>
          element(
            "tr",
            { class: span.way },
            element(
              "th",
              { scope: "row" },
              sign(span.way),
              element("span", { class: "range" }, nameRange(engine, span.first, span.last)),
            ),
            element("td", {}, WAYS[span.way].label, span.reason ? [": ", ...prose(span.reason)] : ""),
          ),
        ),
      ),
    ),
  );
}

/** Draw one box for each minor release. The table below it contains the same as text. */
function renderStrip(engine, spans) {
  const minors = new Map();
  for (const span of spans) {
    for (let release = span.first; release <= span.last; release++) {
      const [major, minor, ...patch] = engine.releases[release].split(".");
      const runs = minors.get(`${major}.${minor}`) ?? [];
      const last = runs.at(-1);
      if (last && last.way === span.way) last.until = patch.join(".");
      else runs.push({ way: span.way, since: patch.join("."), until: patch.join(".") });
      minors.set(`${major}.${minor}`, runs);
    }
  }
  const boxes = [...minors].map(([minor, runs]) =>
    element(
      "li",
      {},
      element("span", { class: "minor" }, minor),
      runs.map(({ way, since, until }) =>
        element(
          "span",
          { class: `cell ${way}` },
          WAYS[way].sign,
          runs.length > 1 ? element("small", {}, since === until ? `.${since}` : `.${since}–${until}`) : "",
        ),
      ),
    ),
  );
  return element("ol", { class: "strip", "aria-hidden": "true" }, boxes);
}

function renderRuns(engine, runs) {
  return runs.map(({ first, last, way }) =>
    element(
      "span",
      { class: `run ${way}`, title: WAYS[way].about },
      sign(way),
      element("span", { class: "range" }, nameRange(engine, first, last)),
      element("span", { class: ["k", "v", "x"].includes(way) ? "unseen" : "" }, ` ${WAYS[way].label}`),
    ),
  );
}

/** Return the ranges of releases that support something in the same way, whatever the reasons are. */
function mergeWays(spans) {
  const runs = [];
  for (const { first, last, way } of spans) {
    if (runs.at(-1)?.way === way) runs.at(-1).last = last;
    else runs.push({ first, last, way });
  }
  return runs;
}

/** Return the types by parameter and ranges. Parameters with the same types and ranges share an item. */
function groupTypes(parameters, at) {
  const merged = new Map();
  for (const { parameter, groups } of parameters) {
    const byWays = new Map();
    for (const { types, spans } of groups) {
      const runs = mergeWays(at(spans));
      const key = JSON.stringify(runs);
      byWays.set(key, { runs, types: [...(byWays.get(key)?.types ?? []), ...types] });
    }
    const items = [...byWays.values()];
    const key = JSON.stringify(items);
    if (!merged.has(key)) merged.set(key, { names: [], groups: items });
    merged.get(key).names.push(parameter);
  }
  return [...merged.values()];
}

function renderTypes(engine, entry, { shown, opset, type }, at) {
  const parameters = groupTypes(shown.parameters, at);
  const rows = parameters.flatMap(({ names, groups }) =>
    groups.map(({ types, runs }, index) =>
      element(
        "tr",
        { class: types.includes(type) ? "selected" : "" },
        index
          ? null
          : element("th", { scope: "rowgroup", rowspan: groups.length }, element("code", {}, names.join(", "))),
        element(
          "td",
          { class: "types" },
          types.map((name) =>
            element(
              "a",
              { href: writeAddress(engine, entry.path, opset, name), "aria-current": name === type ? "true" : null },
              name,
            ),
          ),
        ),
        element("td", { class: "runs" }, renderRuns(engine, runs)),
      ),
    ),
  );
  return element(
    "section",
    {},
    element("h3", {}, `Types of version ${shown.version}`),
    element(
      "table",
      { class: "grid" },
      element("caption", { class: "unseen" }, "Types"),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          ["Parameter", "Types", "Releases"].map((text) => element("th", { scope: "col" }, text)),
        ),
      ),
      element("tbody", {}, rows),
    ),
    renderLegend(parameters.flatMap(({ groups }) => groups.flatMap(({ runs }) => runs))),
  );
}

function renderLegend(spans) {
  const used = new Set(spans.map((span) => span.way));
  const items = Object.keys(WAYS).filter((way) => used.has(way));
  return element(
    "ul",
    { class: "legend" },
    items.map((way) => element("li", {}, sign(way), WAYS[way].about)),
  );
}

function renderVersions(engine, entry, versions, shown) {
  const items = [];
  for (const it of versions) {
    const runs = mergeWays(it.spans);
    const last = items.at(-1);
    if (last?.version === it.version && JSON.stringify(last.runs) === JSON.stringify(runs)) {
      last.last = it.last;
      last.isShown ||= it === shown;
    } else items.push({ version: it.version, first: it.first, last: it.last, runs, isShown: it === shown });
  }
  if (items.length < 2) return "";
  const rows = items.toReversed().map(({ version, first, last, runs, isShown }) => {
    const opsets = last === Infinity ? `${first} and newer` : last === first ? first : `${first}–${last}`;
    const link = { href: writeAddress(engine, entry.path, first), "aria-current": isShown ? "true" : null };
    return element(
      "tr",
      { class: isShown ? "selected" : "" },
      element("th", { scope: "row" }, element("a", link, `${version}`)),
      element("td", {}, `opset ${opsets}`),
      element("td", { class: "runs" }, renderRuns(engine, runs)),
    );
  });
  return element(
    "section",
    {},
    element("h3", {}, "Versions"),
    element(
      "table",
      { class: "grid versions" },
      element("caption", { class: "unseen" }, "Versions"),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          ["Version", "Used by", "Releases"].map((text) => element("th", { scope: "col" }, text)),
        ),
      ),
      element("tbody", {}, rows),
    ),
  );
}

function renderCommand(engine, entry, { opset, type }) {
  const parts = ["onnxgate support", entry.path, `--opset ${opset}`];
  if (type) parts.push(/^\w+$/.test(type) ? `--type ${type}` : `--type '${type}'`);
  return renderTerminal(engine, parts);
}
