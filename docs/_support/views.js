// The views, and what connects them.

const LONG_NAME = 18;
const staticIndex = [...document.getElementById("index-list").childNodes];
let state = {};
let focusHeading = false;
let indexPosition = 0;

function go(hash) {
  if (location.hash === hash) render();
  else location.hash = hash;
}

function announce(text) {
  document.getElementById("announcement").textContent = text;
}

function showMessage(text, links = [], command = "") {
  const message = document.getElementById("message");
  const end = text.endsWith("Did you mean") ? "?" : ".";
  const code = command ? [element("code", {}, command), "."] : [];
  message.replaceChildren(element("p", {}, text, ...(links.length ? [" ", ...joinLinks(links), end] : code)));
  message.hidden = false;
}

function render() {
  const before = state;
  const { engine, view, path, rest, releases, domain } = (state = readAddress(location.hash));
  const focused = rememberFocus();
  document.getElementById("message").hidden = true;
  hideSuggestions();
  for (const link of document.querySelectorAll("nav a")) {
    link.hash = link.dataset.view === "operators" ? writeAddress(engine) : writeAddress(engine, link.dataset.view);
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (before.engine !== engine) renderEngine(engine);
  for (const name of ["operators", "compare", "export"]) document.getElementById(`view-${name}`).hidden = name !== view;
  const entry = path && findOperator(engine, path);
  document.body.classList.toggle("has-answer", Boolean(entry) || view !== "operators");
  document.getElementById("operator").hidden = !entry;
  document.getElementById("index").hidden = Boolean(entry);
  if (view === "compare") renderCompare(engine, releases);
  else if (view === "export") renderExport(engine, releases);
  else if (entry) renderOperator(engine, entry, rest);
  else {
    document.title = document.querySelector("h1").textContent;
    if (path) showUnknown(engine, path, rest);
    if (domain) document.getElementById(domain)?.scrollIntoView();
  }
  state.entry = entry;
  state.heading = document.getElementById(entry ? "operator-name" : `${view}-name`);
  const same = before.view === view && before.path === path;
  if (!entry && view === "operators" && before.entry) {
    scrollTo(0, indexPosition);
    const address = writeAddress(before.engine, before.entry.path);
    const link = [...document.querySelectorAll("#index a")].find((it) => it.hash === address);
    link?.focus({ preventScroll: true });
  } else if (focusHeading || (!same && before.view !== undefined && state.heading)) {
    state.heading?.focus({ preventScroll: true });
    if (innerWidth < 640 && state.heading) state.heading.scrollIntoView();
    else scrollTo(0, 0);
  } else focused();
  focusHeading = false;
}

function renderEngine(engine) {
  document.getElementById("select-engine").value = engine.name;
  document.querySelector("h1").textContent = `${engine.title} operator support by version`;
  document.getElementById("lead").textContent = engine.lead;
  document.getElementById("basis").textContent = engine.basis;
  document.getElementById("sources").replaceChildren(...engine.sources.map((name) => element("li", {}, name)));
  document
    .getElementById("index-list")
    .replaceChildren(...(engine === defaultEngine ? staticIndex : renderIndex(engine)));
}

/** Return the list of an engine's operators, as the page has it for the default engine. */
function renderIndex(engine) {
  return Object.keys(engine.operators).map((domain) => {
    const entries = engine.catalog.filter((entry) => entry.domain === domain);
    const count = `${entries.length} operator${entries.length === 1 ? "" : "s"}`;
    return element(
      "section",
      {},
      element("h3", { id: domain }, domain, " ", element("span", { class: "quiet" }, count)),
      element(
        "ul",
        {},
        entries.map((entry) => renderIndexItem(engine, entry)),
      ),
    );
  });
}

function renderIndexItem(engine, entry) {
  const { version, spans } = decodeVersions(engine, entry).at(-1);
  const { way, reason } = spans.at(-1);
  const first = listSupported(spans).at(-1)?.[0];
  let since = `${first === 0 ? "≤ " : ""}${engine.releases[first]}`;
  if (!isSupported(way)) since = reason.includes("is deprecated") ? "deprecated" : WAYS[way].label;
  return element(
    "li",
    {},
    element("a", { href: writeAddress(engine, entry.path) }, breakName(entry.name)),
    ...[" ", element("span", {}, `${version}`), " ", element("span", {}, since)],
  );
}

/** Return a name with places at which a long one may continue on the next line. */
function breakName(name) {
  const words = name.length > LONG_NAME ? name.split(/(?<=[a-z\d])(?=[A-Z])/) : [name];
  return words.flatMap((word, index) => [index ? element("wbr") : "", word]);
}

/** Return a function that focuses the element that has replaced the focused one. */
function rememberFocus() {
  const { id, hash, tagName } = document.activeElement ?? {};
  return () => {
    if (document.activeElement !== document.body) return;
    const matches =
      tagName === "A" ? [...document.querySelectorAll("main a")].filter((link) => link.hash === hash) : [];
    (id ? document.getElementById(id) : matches[0])?.focus({ preventScroll: true });
  };
}

function showUnknown(engine, path, rest) {
  const near = searchOperators(engine, path.toLowerCase(), 5).map((it) => [
    it.path,
    writeAddress(engine, it.path, ...rest),
  ]);
  const text = `${engine.title} has no operator ${path} in any known release.`;
  showMessage(near.length ? `${text} Did you mean` : `${text} All operators are listed below.`, near);
}

function start() {
  history.scrollRestoration = "manual";
  for (const it of document.querySelectorAll("nav, #search")) it.hidden = false;
  const engineSelect = document.getElementById("select-engine");
  engineSelect.append(...[...engines.values()].map((it) => element("option", { value: it.name }, it.title)));
  engineSelect.closest("label").hidden = engines.size < 2;
  engineSelect.addEventListener("change", () => {
    const { view, path, rest } = state;
    const parts = view === "operators" ? [path, ...(rest ?? [])] : [view];
    go(writeAddress(engines.get(engineSelect.value), ...parts));
  });
  input.addEventListener("input", showSuggestions);
  input.addEventListener("keydown", onSearchKey);
  input.addEventListener("blur", hideSuggestions);
  input.addEventListener("focus", () => input.value && showSuggestions());
  document.getElementById("search").addEventListener("submit", onSearchSubmit);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  document.getElementById("index").addEventListener("click", () => {
    indexPosition = scrollY;
  });
  addEventListener("hashchange", render);
  render();
}

start();
