// The connect page: the environment, and a first request in several languages.

import {addresses, choice, code, copyButton, el, own, product, redraw, tokenButton, tools, withoutPassword} from "./dom.js";
import {ask} from "./api.js";
import {entries} from "./journal.js";
import {LANGUAGES, prefixOf, shell} from "./copying.js";

export const FORMATS = {
  ".env": (env) => Object.entries(env).map(([name, value]) => `${name}=${/^[\w.:/@+=-]*$/.test(value) ? value : JSON.stringify(value)}\n`).join(""),
  "Shell": (env) => Object.entries(env).map(([name, value]) => `export ${name}=${shell(value)}\n`).join(""),
  "PowerShell": (env) => Object.entries(env).map(([name, value]) => `$env:${name} = '${value.replaceAll("'", "''")}'\n`).join(""),
  "JSON": (env) => JSON.stringify(env, null, 2) + "\n",
};

const FIRST = {
  kv_server: {
    does: "Store a value and read it", request: ["POST", "/pipeline", JSON.stringify([["SET", "greeting", "hello"], ["GET", "greeting"]])],
    JavaScript: 'import { Redis } from "@upstash/redis";\n\nconst redis = Redis.fromEnv();\nawait redis.set("greeting", "hello");\nconsole.log(await redis.get("greeting"));\n',
    Python: 'from upstash_redis import Redis\n\nredis = Redis.from_env()\nredis.set("greeting", "hello")\nprint(redis.get("greeting"))\n',
  },
  vector_index: {
    does: "Upsert a vector and query", request: ["POST", "/upsert", JSON.stringify({id: "first", vector: [0.1, 0.2], metadata: {kind: "demo"}})],
    JavaScript: 'import { Index } from "@upstash/vector";\n\nconst index = new Index();\nawait index.upsert({ id: "first", vector: [0.1, 0.2], metadata: { kind: "demo" } });\nconsole.log(await index.query({ vector: [0.1, 0.2], topK: 1 }));\n',
    Python: 'from upstash_vector import Index\n\nindex = Index.from_env()\nindex.upsert([("first", [0.1, 0.2], {"kind": "demo"})])\nprint(index.query([0.1, 0.2], top_k=1))\n',
  },
  broker: {
    does: "Produce a record", request: ["POST", "/produce", JSON.stringify({topic: "orders", value: "one kettle"})],
  },
  queue: {
    does: "Publish a message to your application", request: ["POST", "/v2/publish/http://127.0.0.1:3000/hook", JSON.stringify({hello: "world"})],
    JavaScript: 'import { Client } from "@upstash/qstash";\n\nconst client = new Client({ baseUrl: process.env.QSTASH_URL, token: process.env.QSTASH_TOKEN });\nconsole.log(await client.publishJSON({ url: "http://127.0.0.1:3000/hook", body: { hello: "world" } }));\n',
    Python: 'import os\n\nfrom qstash import QStash\n\nclient = QStash(os.environ["QSTASH_TOKEN"], base_url=os.environ["QSTASH_URL"])\nprint(client.message.publish_json(url="http://127.0.0.1:3000/hook", body={"hello": "world"}))\n',
  },
};
const requestTo = (fake, [method, target, body]) => ({method, url: fake.url + target, headers: Object.entries(fake.headers), body});
// The official clients where there is one, otherwise the bare request.
const written = (language, fake) => {
  const first = FIRST[fake.fixture], prefix = prefixOf(fake), text = first[language];
  return text === undefined ? LANGUAGES[language](requestTo(fake, first.request)) : prefix ? withVariables(text, prefix) : text;
};
// The clients of a fake with a name of its own are given its variables, because they read those without the name.
const withVariables = (text, prefix) => [["Redis.fromEnv()", "REDIS", "new Redis({ url: process.env.URL, token: process.env.TOKEN })"], ["new Index()", "VECTOR", "new Index({ url: process.env.URL, token: process.env.TOKEN })"],
  ["Redis.from_env()", "REDIS", 'Redis(url=os.environ["URL"], token=os.environ["TOKEN"])'], ["Index.from_env()", "VECTOR", 'Index(url=os.environ["URL"], token=os.environ["TOKEN"])'],
].reduce((whole, [call, service, explicit]) => whole.includes(call) ? (explicit.includes("os.environ") ? "import os\n\n" : "") + whole.replace(call, explicit.replace("URL", `${prefix}UPSTASH_${service}_REST_URL`).replace("TOKEN", `${prefix}UPSTASH_${service}_REST_TOKEN`)) : whole, text.replace(/QSTASH_(?=URL|TOKEN)/g, `${prefix}QSTASH_`));

export class ConnectPage {
  constructor(state) {
    Object.assign(this, {state, format: ".env", language: "curl"});
    this.body = el("div");
    this.node = el("div", {class: "page"}, el("h1", {}, "Connect your application"), this.body);
  }
  async go() { await this.refresh(); }
  async refresh() {
    const known = JSON.stringify(this.state().fakes);
    if (known !== this.known) { this.env = await ask("GET", "/env"); this.known = known; }
    this.draw();
  }
  draw() {
    const state = this.state(), {env} = this;
    if (!env) return;
    const known = state.fakes.filter((one) => own(FIRST, one.fixture));
    const many = entries.list.length, shape = JSON.stringify([env, known, this.format, this.language, this.fake, many > 0]);
    if (shape === this.shape) return;
    this.shape = shape;
    const fake = known.find((one) => one.name === this.fake) ?? known[0], text = FORMATS[this.format](env);
    redraw(this.body,
      el("p", {class: many ? "banner good" : "banner", role: "status"}, many ? ["Requests arrive. ", el("a", {href: "#/activity"}, "See them in Activity")] : "No requests yet. This line changes when the first one arrives."),
      el("h2", {}, "1. Set the environment"), el("p", {class: "soft"}, "Official clients read these variables. Put them into the environment or the .env file of your application. The control token is copied, but not shown."),
      tools(choice("format", Object.keys(FORMATS), this.format, (one) => { this.format = one; this.draw(); }), copyButton(text, "Copy the environment")), code(FORMATS[this.format]({...env, PYTEST_FAKECLOUD_TOKEN: "***"}), "environment"),
      fake ? [el("h2", {}, "2. Make a first request"), tools(choice("fake", known.map((one) => one.name), fake.name, (one) => { this.fake = one; this.draw(); }, (name) => `${product(known.find((one) => one.name === name))} · ${name}`), choice("language", Object.keys(LANGUAGES), this.language, (one) => { this.language = one; this.draw(); }),
        copyButton(written(this.language, fake), "Copy the first request")), el("p", {class: "soft"}, `${FIRST[fake.fixture].does}:`), code(written(this.language, fake), "first request")] : null,
      el("h2", {}, "3. Addresses"), el("dl", {class: "facts"}, state.fakes.map((one) => el("div", {}, el("dt", {}, el("a", {href: `#/fake/${encodeURIComponent(one.name)}`}, one.name), " ", el("small", {class: "soft"}, product(one))), el("dd", {class: "mono"}, addresses(one).map((address) => el("div", {}, withoutPassword(address), " ", copyButton(address, `Copy the address ${withoutPassword(address)} of ${one.name}`), address === one.url ? tokenButton(one) : null)))))));
  }
}
