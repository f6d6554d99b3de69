// Search by name, with near spellings.

const DOMAIN_ORDER = ["ai.onnx", "ai.onnx.ml", "com.microsoft"];

function rankDomain(domain) {
  const rank = DOMAIN_ORDER.indexOf(domain);
  return rank < 0 ? DOMAIN_ORDER.length : rank;
}

/** Return the number of edits (insert, delete, replace, swap) between two words, or more than `limit`. */
function editDistance(one, other, limit) {
  if (Math.abs(one.length - other.length) > limit) return limit + 1;
  let [before, previous] = [[], Array.from({ length: other.length + 1 }, (_, index) => index)];
  for (let row = 1; row <= one.length; row++) {
    const current = [row];
    for (let column = 1; column <= other.length; column++) {
      const cost = one[row - 1] === other[column - 1] ? 0 : 1;
      current[column] = Math.min(previous[column] + 1, current[column - 1] + 1, previous[column - 1] + cost);
      if (row > 1 && column > 1 && one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1]) {
        current[column] = Math.min(current[column], before[column - 2] + 1);
      }
    }
    [before, previous] = [previous, current];
  }
  return previous[other.length];
}

function scoreEntry(entry, key) {
  if (entry.key === key || entry.full === key) return 0;
  if (entry.key.startsWith(key)) return 1;
  if (entry.full.startsWith(key)) return 2;
  if (entry.full.includes(key)) return 3;
  if (key.length < 3) return Infinity;
  const limit = key.length < 6 ? 1 : key.length < 12 ? 2 : 3;
  const name = key.includes(".") ? entry.full : entry.key;
  const distance = editDistance(name, key, limit);
  if (distance <= limit) return 3 + distance;
  return key.length > 3 && editDistance(name.slice(0, key.length), key, 1) <= 1 ? 7 : Infinity;
}

function searchOperators(engine, key, count) {
  return engine.catalog
    .map((entry) => [scoreEntry(entry, key), entry])
    .filter(([score]) => score < Infinity)
    .sort(
      ([scoreA, a], [scoreB, b]) =>
        scoreA - scoreB ||
        rankDomain(a.domain) - rankDomain(b.domain) ||
        a.name.length - b.name.length ||
        (a.path < b.path ? -1 : 1),
    )
    .slice(0, count)
    .map(([, entry]) => entry);
}

/** Split "Gelu 20 float16" into the key to search and the rest of the address. */
function readQuery(text) {
  const [key = "", ...words] = text.trim().split(/[\s/]+/);
  const opset = words.find((word) => /^\d+$/.test(word));
  const type = words.find((word) => /^[a-z]/i.test(word) && word !== "opset");
  return { key: key.toLowerCase().replace(/^ai\.onnx\.(?=[^.]+$)(?!ml$)/, ""), opset, type: type && readType(type) };
}

const input = document.getElementById("search-input");
const list = document.getElementById("search-list");
let suggestions = [];
let active = -1;

function showSuggestions() {
  const { key } = readQuery(input.value);
  suggestions = key ? searchOperators(state.engine, key, 8) : [];
  list.replaceChildren(
    ...suggestions.map((entry, index) =>
      element(
        "li",
        {
          id: `suggestion-${index}`,
          role: "option",
          "aria-selected": "false",
          onpointerdown: (event) => event.preventDefault(), // keeps the focus in the input
          onclick: () => openSuggestion(index),
        },
        element("span", {}, entry.name),
        element("span", { class: "quiet" }, entry.domain),
      ),
    ),
  );
  list.hidden = !suggestions.length;
  input.setAttribute("aria-expanded", String(!list.hidden));
  setActive(-1);
  if (key) {
    announce(suggestions.length ? `${suggestions.length} suggestions` : `No operator is named like ${key}`);
  }
  document.getElementById("search-none").hidden = !key || suggestions.length > 0;
}

function hideSuggestions() {
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
  setActive(-1);
}

function setActive(index) {
  active = index;
  [...list.children].forEach((item, position) => item.setAttribute("aria-selected", String(position === index)));
  if (index < 0) input.removeAttribute("aria-activedescendant");
  else {
    input.setAttribute("aria-activedescendant", `suggestion-${index}`);
    list.children[index].scrollIntoView({ block: "nearest" });
  }
}

function openSuggestion(index) {
  const { opset, type } = readQuery(input.value);
  const entry = suggestions[index];
  hideSuggestions();
  input.value = "";
  indexPosition = 0;
  const newest = decodeVersions(state.engine, entry).at(-1).first;
  focusHeading = true;
  go(writeAddress(state.engine, entry.path, opset ?? (type && newest), type));
}

function onSearchKey(event) {
  const count = suggestions.length;
  if (event.key === "Escape") {
    if (list.hidden) input.value = "";
    hideSuggestions();
    event.preventDefault();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !event.altKey) {
    if (list.hidden) showSuggestions();
    if (!suggestions.length) return;
    const step = event.key === "ArrowDown" ? 1 : -1;
    setActive(active < 0 ? (step > 0 ? 0 : count - 1) : (active + step + count) % count);
    event.preventDefault();
  }
}

function onSearchSubmit(event) {
  event.preventDefault();
  if (list.hidden) showSuggestions();
  if (suggestions.length) openSuggestion(Math.max(active, 0));
}
