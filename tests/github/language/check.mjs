// Prints the problems that GitHub's language service reports. argv[2]: JSON file of texts by path; argv[3]: JSON file of actions.
import { readFileSync } from "node:fs";
import { register } from "node:module";

// The package imports JSON without the attribute that Node requires. Source: @actions/languageservice 0.3.61 under Node 20.
const hook = `export async function load(url, context, next) {
  if (!url.endsWith(".json")) return next(url, context);
  const { readFileSync } = await import("node:fs");
  return { format: "module", shortCircuit: true, source: "export default " + readFileSync(new URL(url), "utf8") };
}`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

const { validate } = await import("@actions/languageservice");
const { TextDocument } = await import("vscode-languageserver-textdocument");

const texts = JSON.parse(readFileSync(process.argv[2], "utf8"));
const actions = JSON.parse(readFileSync(process.argv[3], "utf8"));
const named = (reference) => [reference.owner, reference.name, reference.path].filter(Boolean).join("/");
const config = { actionsMetadataProvider: { fetchActionMetadata: async (reference) => actions[named(reference)] } };

const said = {};
for (const [path, text] of Object.entries(texts)) {
  const document = TextDocument.create(`file:///${path}`, "yaml", 1, text);
  const problems = await validate(document, config);
  said[path] = problems.map((each) => `line ${each.range.start.line + 1}: ${each.message}`);
}
console.log(JSON.stringify(said));
