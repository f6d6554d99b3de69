// Data: one object per engine, written by tools/generate_support_page.py.

const WAYS = {
  k: { sign: "✓", label: "kernel", about: "runs with a kernel" },
  v: { sign: "✓", label: "supported", about: "is converted while the model is loaded" },
  f: { sign: "ƒ", label: "function body", about: "runs with the operator's function body" },
  c: { sign: "⇄", label: "casts to float", about: "runs with a kernel for float, between inserted casts" },
  r: {
    sign: "○",
    label: "removed at load",
    about: "needs no kernel, because the node is removed while the model is loaded",
  },
  u: { sign: "?", label: "not known", about: "is not known" },
  x: { sign: "✕", label: "not supported", about: "is not supported: the model does not load" },
};
const NO_LIMIT = "no limit";
const data = JSON.parse(document.getElementById("support-data").textContent);
const sharedSpans = data.spans.map(decodeSpans);
const typeAliases = new Map(Object.entries(data.aliases));
const engines = new Map(data.engines.map((engine) => [engine.name, engine]));
const defaultEngine = data.engines[0];
for (const engine of data.engines) engine.catalog = listOperators(engine);

function listOperators(engine) {
  return Object.entries(engine.operators).flatMap(([domain, operators]) =>
    Object.keys(operators).map((name) => {
      const path = domain === "ai.onnx" ? name : `${domain}.${name}`;
      return { domain, name, path, key: name.toLowerCase(), full: path.toLowerCase() };
    }),
  );
}

function decodeSpans(text) {
  let first = 0;
  return text.split(",").map((part) => {
    const [, count, way, reason] = part.match(/^(\d+)([a-z])(\d*)$/);
    const span = { first, last: first + Number(count) - 1, way, reason: reason ? data.reasons[reason] : "" };
    first = span.last + 1;
    return span;
  });
}

function decodeVersions(engine, { domain, name }) {
  return engine.operators[domain][name].map(([version, first, last, spans, parameters]) => ({
    version,
    first,
    last: last || Infinity,
    spans: sharedSpans[spans],
    parameters: parameters.map((index) => decodeParameter(...data.parameters[index])),
  }));
}

function decodeParameter(parameter, groups) {
  const decoded = groups.map(([set, spans]) => ({
    types: data.sets[set].map((index) => shortType(data.types[index])),
    spans: sharedSpans[spans],
  }));
  return { parameter, groups: decoded };
}

/** Return spans whose reasons name the operator, its version, and the parameters and the type that are asked for. */
function fillReasons(spans, entry, { version, first }, parameter = "", type = "") {
  const words = {
    $$: "$",
    $o: `\`${entry.path}(${version})\``,
    $n: `\`${entry.path}\``,
    $f: `${first}`,
    $p: `\`${parameter}\``,
    $t: `\`${type}\``,
  };
  return spans.map((span) => ({ ...span, reason: span.reason.replace(/\$[$onfpt]/g, (word) => words[word]) }));
}

function shortType(type) {
  return type.replace(/\btensor\((\w+)\)/g, "$1").replace(/,\s*/g, ",");
}

/** Return a type that a person wrote, such as `float32` or `tensor(Half)`, as the page spells it. */
function readType(text) {
  return shortType(text.toLowerCase()).replace(/\w+(?!\w|\()/g, (word) => typeAliases.get(word) ?? word);
}

function findLimits(engine, release) {
  const index = engine.limits.releases.indexOf(release);
  const row = index < 0 ? undefined : engine.limits.rows.findLast((candidate) => candidate[0] <= index);
  return row && { ir: row[1] || Infinity, opsets: row[2], previews: row[3] };
}

/** Return the spans at an opset after the first one that they apply to: releases refuse opsets that are too new. */
function limitSpans(engine, domain, first, opset, spans) {
  if (opset === first) return spans;
  const cells = spans.flatMap((span) =>
    engine.releases.slice(span.first, span.last + 1).map((release) => {
      const refusal = explainOpset(findLimits(engine, release), domain, opset);
      return refusal ? { way: "x", reason: refusal } : { way: span.way, reason: span.reason };
    }),
  );
  return cells.reduce((merged, cell, index) => {
    const last = merged.at(-1);
    if (last && last.way === cell.way && last.reason === cell.reason) last.last = index;
    else merged.push({ first: index, last: index, ...cell });
    return merged;
  }, []);
}

/** Return why a release refuses an opset; "" if it accepts it. `onnxgate support` uses the same words. */
function explainOpset(limits, domain, opset) {
  if (!limits || opset <= (limits.opsets[domain] ?? Infinity)) return "";
  if (opset <= (limits.previews[domain] ?? 0)) return `opset ${opset} requires ALLOW_RELEASED_ONNX_OPSET_ONLY=0`;
  return `opset ${opset} is too new`;
}

function isSupported(way) {
  return data.supported.includes(way);
}

function wayAt(spans, release) {
  return spans.find((span) => span.first <= release && release <= span.last).way;
}

function nameRange(engine, first, last) {
  const [since, until] = [engine.releases[first], engine.releases[last]];
  return since === until ? since : `${since}–${until}`;
}

function countReleases(spans) {
  return spans.reduce((sum, span) => sum + span.last - span.first + 1, 0);
}

/** Return the ranges, `[first, last]`, in which an operator is supported in any way. */
function listSupported(spans) {
  const ranges = [];
  for (const span of spans) {
    if (!isSupported(span.way)) continue;
    if (ranges.length && ranges.at(-1)[1] === span.first - 1) ranges.at(-1)[1] = span.last;
    else ranges.push([span.first, span.last]);
  }
  return ranges;
}
