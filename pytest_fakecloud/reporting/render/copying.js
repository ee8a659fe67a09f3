// Requests as code that can be copied: a recorded request, or one that the console proposes.

// Headers that clients add to each request, which do not change what it does. In Base64, an answer could not be read.
const NOISE = /^(host|connection|keep-alive|content-length|transfer-encoding|te|user-agent|accept-(encoding|language|charset)|sec-.*|dnt|priority|pragma|cache-control|origin|referer|traceparent|tracestate|baggage|sentry-trace|upstash-(telemetry-.*|encoding))$/i;
const matters = ([name, value]) => !NOISE.test(name) && !(/^accept$/i.test(name) && value.startsWith("*/*"));

// Return the HTTP request of a row, or null without an absolute address. The report masks credentials; those of the fake
// are in its `headers`, which only the console has. Commands on a database connection have a reply or no answer.
export function requestOf({request, response, peer}, report) {
  const fake = (report.fakes ?? []).find((one) => one.name === peer), parts = /^(\S+) (.*)$/.exec(request.line);
  if (!parts || (fake && (response === null || response?.line === "reply"))) return null;
  const [, method, target] = parts, url = /^https?:/.test(target) ? target : fake && target.startsWith("/") ? fake.url + target : "";
  if (!url) return null;
  const known = Object.entries(fake?.headers ?? {});
  const headers = (request.headers ?? []).filter(matters).map(([name, value]) =>
    known.find(([each]) => value.includes("***") && each.toLowerCase() === name.toLowerCase()) ?? [name, value]);
  return {method, url, headers, body: request.body ?? "", cut: request.cut};
}

export function lost({headers, body, cut}) {
  if (cut) return " The body is longer than what was recorded.";
  if (body.includes("\ufffd")) return " The bytes of the body that are not text are missing.";
  if (body.includes("***")) return " Secrets in the body are missing.";
  return headers.some(([, value]) => value.includes("***")) ? " Replace *** by the credentials." : "";
}

export const quoted = (text) => JSON.stringify(text).replaceAll("\u007f", "\\u007f");
export const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function curl({method, url, headers, body}) {
  // With -X HEAD, curl waits for a body. Without -g, it expands brackets and braces in an address.
  const sends = method === "HEAD" ? "-I" : `-X ${/^[A-Za-z]+$/.test(method) ? method : shell(method)}`;
  // With --data-binary, curl reads a file if the body begins with @.
  return [`curl -g ${sends} ${shell(url)}`, ...headers.map(([name, value]) => `-H ${shell(`${name}: ${value}`)}`), ...(body ? [`--data-raw ${shell(body)}`] : [])].join(" \\\n  ");
}

const headerLines = (headers, write) => headers.map(([name, value]) => write(quoted(name), quoted(value))).join("");
const javascript = ({method, url, headers, body}, fields = headerLines(headers, (name, value) => `    ${name}: ${value},\n`)) => `const answer = await fetch(${quoted(url)}, {\n  method: ${quoted(method)},\n${fields && `  headers: {\n${fields}  },\n`}${body && `  body: ${quoted(body)},\n`}});\nconsole.log(answer.status, await answer.text());\n`;
const python = ({method, url, headers, body}, fields = headerLines(headers, (name, value) => `        ${name}: ${value},\n`)) => `import requests\n\nanswer = requests.request(\n    ${quoted(method)},\n    ${quoted(url)},\n${fields && `    headers={\n${fields}    },\n`}${body && `    data=${quoted(body)}.encode(),\n`})\nprint(answer.status_code, answer.text)\n`;
const go = ({method, url, headers, body}) => `package main\n\nimport (\n\t"fmt"\n\t"io"\n\t"net/http"\n\t"strings"\n)\n\nfunc main() {\n\tbody := strings.NewReader(${quoted(body)})\n\trequest, err := http.NewRequest(${quoted(method)}, ${quoted(url)}, body)\n\tif err != nil {\n\t\tpanic(err)\n\t}\n${headerLines(headers, (name, value) => `\trequest.Header.Set(${name}, ${value})\n`)}\tanswer, err := http.DefaultClient.Do(request)\n\tif err != nil {\n\t\tpanic(err)\n\t}\n\tdefer answer.Body.Close()\n\ttext, _ := io.ReadAll(answer.Body)\n\tfmt.Println(answer.Status, string(text))\n}\n`;

// Returns the commands of a row on a database connection as lists of words, or null if they were not all recorded: a row of a transaction has only its EXEC.
export function commandsOf({request, response, data}) {
  const commands = response?.line === "reply" && data?.words;
  return !commands || commands[0][0].toUpperCase() === "EXEC" && request.line !== "EXEC" ? null : {commands, headers: [], body: commands.flat().join(" ")};
}
// The beginning of the variables of a fake in `pytest-fakecloud env`, if its name is not that of its fixture (as in `own_prefix()`).
export const prefixOf = ({name, fixture}) => name === fixture ? "" : `${name.toUpperCase().replace(/[^A-Z0-9_]/g, "_")}_`.replace(/^(?=\d)/, "_");
// The clients connect to the REDIS_URL of a fake there.
const wordsIn = (words) => words.map(quoted).join(", ");
export const REDIS_CLIENTS = {
  "redis-py": (commands, prefix = "") => `import os\n\nimport redis\n\nclient = redis.Redis.from_url(os.environ["${prefix}REDIS_URL"])\n${commands.map((words) => `print(client.execute_command(${wordsIn(words)}))\n`).join("")}`,
  ioredis: (commands, prefix = "") => `import Redis from "ioredis";\n\nconst client = new Redis(process.env.${prefix}REDIS_URL);\n${commands.map((words) => `console.log(await client.call(${wordsIn(words)}));\n`).join("")}client.disconnect();\n`,
  "node-redis": (commands, prefix = "") => `import { createClient } from "redis";\n\nconst client = await createClient({ url: process.env.${prefix}REDIS_URL }).connect();\n${commands.map((words) => `console.log(await client.sendCommand([${wordsIn(words)}]));\n`).join("")}client.destroy();\n`,
  "go-redis": (commands, prefix = "") => `package main\n\nimport (\n\t"context"\n\t"fmt"\n\t"os"\n\n\t"github.com/redis/go-redis/v9"\n)\n\nfunc main() {\n\toptions, err := redis.ParseURL(os.Getenv("${prefix}REDIS_URL"))\n\tif err != nil {\n\t\tpanic(err)\n\t}\n\tclient := redis.NewClient(options).Conn()\n\tdefer client.Close()\n${commands.map((words) => `\tfmt.Println(client.Do(context.Background(), ${wordsIn(words)}).Result())\n`).join("")}}\n`,
  "redis-cli": (commands, prefix = "") => commands.map((words) => `redis-cli -u "$${prefix}REDIS_URL" ${words.map(shell).join(" ")}\n`).join(""),
};

export const LANGUAGES = {curl, JavaScript: javascript, Python: python, Go: go};
