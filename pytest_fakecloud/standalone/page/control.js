// Requests of the control API, which were made by hand, as code of a test.

import {quoted, shell} from "./copying.js";

const CONSTANTS = {null: "None", true: "True", false: "False"};
export function literal(value) {
  if (value === null || typeof value === "boolean") return CONSTANTS[value];
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).filter(([, item]) => item !== undefined).map(([name, item]) => `${quoted(name)}: ${literal(item)}`).join(", ")}}`;
  return typeof value === "string" ? quoted(value) : String(value);
}
const call = (name, args = [], fields = {}) => `${name}(${[...args.map((value) => literal(value)), ...Object.entries(fields).filter(([, value]) => value != null).map(([field, value]) => `${field}=${literal(value)}`)].join(", ")})\n`;

// Returns a request of the control API as Python, or null if no method does the same.
function pythonTest({method, path, body = {}}) {
  const [, fake, rest] = /^\/fakes\/([^/]+)\/(.*)$/.exec(path) ?? [], name = decodeURIComponent(fake ?? "").replace(/\W/g, "_");
  if (method !== "POST") return null;
  if (rest === "faults") { const {kind, args = [], ...fields} = body; return call(`${name}.faults.${kind}`, args, fields); }
  if (rest === "requests" && Array.isArray(body.body) && (body.target ?? "/") === "/") return call(`${name}.execute`, body.body);
  if (rest === "requests") return `import requests\n\nanswer = requests.request(\n    ${quoted(body.method ?? "POST")},\n    ${name}.url + ${quoted(body.target ?? "/")},\n    headers={**${name}.headers${Object.entries(body.headers ?? {}).map(([field, value]) => `, ${quoted(field)}: ${quoted(value)}`).join("")}},\n`
    + (body.body ? `    data=${quoted(typeof body.body === "string" ? body.body : JSON.stringify(body.body))}.encode(),\n` : "") + ")\n";
  if (rest === "destinations") {
    const {url, answer} = body, reply = answer.body ? `(${answer.status}, ${literal(answer.body)})` : answer.status ?? answer;
    return answer.forward ? call(`${name}.destinations.forward`, [url, answer.forward]) : typeof answer === "string" ? call(`${name}.destinations.${answer}`, [url]) : `${name}.destinations.respond(${quoted(url)}, ${reply})\n`;
  }
  if (path === "/clock") return call(`fakecloud.clock.${body.action}`, [body.by ?? body.to].filter((one) => one !== undefined));
  if (path === "/call") return call(`${body.object}.${body.name}`, body.args, body.kwargs);
  return path === "/snapshots" ? "snapshot = fakecloud.snapshot()\n" : null;
}
// The writers of tests, by the name of their button. All but the first read the variables of `pytest-fakecloud env`.
export const TEST_LANGUAGES = {
  pytest: pythonTest,
  JavaScript: ({method, path, body}) => `const answer = await fetch(process.env.PYTEST_FAKECLOUD_URL + ${quoted(`/__control__${path}`)}, {\n  method: ${quoted(method)},\n  headers: { Authorization: \`Bearer \${process.env.PYTEST_FAKECLOUD_TOKEN}\` },\n${body === undefined ? "" : `  body: JSON.stringify(${quoted(body)}),\n`}});\nif (!answer.ok) throw new Error(await answer.text());\n`,
  Go: ({method, path, body}) => `package copied\n\nimport (\n\t"net/http"\n\t"os"\n\t"strings"\n\t"testing"\n)\n\nfunc TestCopied(t *testing.T) {\n\tbody := strings.NewReader(${quoted(JSON.stringify(body) ?? "")})\n\trequest, err := http.NewRequest(${quoted(method)}, os.Getenv("PYTEST_FAKECLOUD_URL")+${quoted(`/__control__${path}`)}, body)\n\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n\trequest.Header.Set("Authorization", "Bearer "+os.Getenv("PYTEST_FAKECLOUD_TOKEN"))\n\tanswer, err := http.DefaultClient.Do(request)\n\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n\tdefer answer.Body.Close()\n\tif answer.StatusCode >= 400 {\n\t\tt.Fatal(answer.Status)\n\t}\n}\n`,
  curl: ({method, path, body}) => `curl -g -X ${method} "$PYTEST_FAKECLOUD_URL/__control__${path}" \\\n  -H "Authorization: Bearer $PYTEST_FAKECLOUD_TOKEN"${body === undefined ? "" : ` \\\n  --data-raw ${shell(JSON.stringify(body))}`}`,
};
