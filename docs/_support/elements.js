// Elements. All text is inserted as text, never as HTML.

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === false || value === undefined || value === null) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function sign(way) {
  return element("span", { class: `sign ${way}`, "aria-hidden": "true" }, WAYS[way].sign);
}

/** Return a sentence in which text between backticks is code. */
function prose(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
}

/** Return links, `[text, address, name for screen readers]`, with a separator between them. */
function joinLinks(links, separator = ", ") {
  return links.flatMap(([text, href, label], index) => [
    index ? separator : "",
    element("a", { href, "aria-label": label }, text),
  ]);
}

function select(id, label, options, selected) {
  const build = ([value, text]) => element("option", { value, selected: String(value) === String(selected) }, text);
  const children = options.map((option) =>
    option.group ? element("optgroup", { label: option.group }, option.options.map(build)) : build(option),
  );
  return element("label", { class: "field" }, label, element("select", { id }, children));
}

/** Return the command that gives the same answer. */
function renderTerminal(engine, parts) {
  const command = joinWords(writeCommand(engine, parts));
  return element("p", { class: "command" }, "In a terminal: ", element("code", {}, command));
}

/** Return the words of a text, in which lines do not end after a hyphen or a dash. */
function joinWords(text) {
  return text.split(" ").flatMap((word, index) => [index ? " " : "", element("span", {}, word)]);
}

function writeCommand(engine, parts) {
  return (engine === defaultEngine ? parts : [...parts, `--engine ${engine.name}`]).join(" ");
}

function choiceOf(id) {
  return document.getElementById(id).value;
}

// Addresses: #Gelu/20/float16, #com.microsoft.Gelu, #compare/1.17.1/1.18.0, #export/1.18.0/1.32.0, and the same after
// the name of another engine: #openvino/Gelu.

function readAddress(hash) {
  let parts;
  try {
    parts = decodeURIComponent(hash.replace(/^#/, "")).split("/");
  } catch {
    parts = [hash.replace(/^#/, "")];
  }
  let engine = defaultEngine;
  if (engines.has(parts[0])) engine = engines.get(parts.shift());
  const [view = "", ...rest] = parts;
  if (view === "compare" || view === "export") return { engine, view, releases: rest.filter(Boolean) };
  if (view === "" || Object.hasOwn(engine.operators, view)) return { engine, view: "operators", domain: view };
  return { engine, view: "operators", path: view, rest: rest.filter(Boolean) };
}

function writeAddress(engine, ...parts) {
  const start = engine === defaultEngine ? [] : [engine.name];
  return `#${[...start, ...parts.filter((part) => part !== undefined && part !== "")].join("/")}`;
}

function findOperator(engine, path) {
  const key = path.toLowerCase().replace(/^ai\.onnx\.(?!ml\.|training\.|preview\.)/, "");
  return engine.catalog.find((entry) => entry.path === path) ?? engine.catalog.find((entry) => entry.full === key);
}
