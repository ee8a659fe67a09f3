// The connect page: the environment, and a first request in several languages.
import {addresses, choice, code, copyButton, el, own, product, redraw, tokenButton, tools, withoutPassword} from "./dom.js";
import {ask, path} from "./api.js";
import {entries} from "./journal.js";
import {LANGUAGES, shell} from "./copying.js";

export const FORMATS = {
  ".env": (env) => Object.entries(env).map(([name, value]) => `${name}=${/^[\w.:/@+=-]*$/.test(value) ? value : JSON.stringify(value)}\n`).join(""),
  "Shell": (env) => Object.entries(env).map(([name, value]) => `export ${name}=${shell(value)}\n`).join(""),
  "PowerShell": (env) => Object.entries(env).map(([name, value]) => `$env:${name} = '${value.replaceAll("'", "''")}'\n`).join(""),
  "JSON": (env) => JSON.stringify(env, null, 2) + "\n",
};

// The official clients where there is one, otherwise the bare request.
const written = (language, {target, body, texts}, fake) => own(texts, language) ?? LANGUAGES[language]({method: "POST", url: fake.url + target, headers: Object.entries(fake.headers), body});

export class ConnectPage {
  constructor(state) {
    Object.assign(this, {state, format: ".env", language: "curl", body: el("div")});
    this.node = el("div", {class: "page"}, el("h1", {}, "Connect your application"), this.body);
  }
  async go() { await this.refresh(); }
  async refresh() {
    const known = JSON.stringify(this.state().fakes);
    if (known !== this.known) { [this.env, this.first] = await Promise.all([ask("GET", "/env"), Promise.all(this.state().fakes.map(async (fake) => [fake.name, await ask("GET", path(fake, "/first-call"))])).then(Object.fromEntries)]); this.known = known; }
    this.draw();
  }
  draw() {
    const state = this.state(), {env} = this;
    if (!env) return;
    const known = state.fakes.filter((one) => own(this.first, one.name));
    const many = entries.list.length, shape = JSON.stringify([env, known, this.format, this.language, this.fake, many > 0]);
    if (shape === this.shape) return;
    this.shape = shape;
    const fake = known.find((one) => one.name === this.fake) ?? known[0], text = FORMATS[this.format](env);
    redraw(this.body,
      el("p", {class: many ? "banner good" : "banner", role: "status"}, many ? ["Requests arrive. ", el("a", {href: "#/activity"}, "See them in Activity")] : "No requests yet. This line changes when the first one arrives."),
      el("h2", {}, "1. Set the environment"), el("p", {class: "soft"}, "Official clients read these variables. Put them into the environment or the .env file of your application. The control token is copied, but not shown."),
      tools(choice("format", Object.keys(FORMATS), this.format, (one) => { this.format = one; this.draw(); }), copyButton(text, "Copy the environment")), code(FORMATS[this.format]({...env, PYTEST_FAKECLOUD_TOKEN: "***"}), "environment"),
      fake ? [el("h2", {}, "2. Make a first request"), tools(choice("fake", known.map((one) => one.name), fake.name, (one) => { this.fake = one; this.draw(); }, (name) => `${product(known.find((one) => one.name === name))} · ${name}`), choice("language", Object.keys(LANGUAGES), this.language, (one) => { this.language = one; this.draw(); }),
        copyButton(written(this.language, this.first[fake.name], fake), "Copy the first request")), el("p", {class: "soft"}, `${this.first[fake.name].does}:`), code(written(this.language, this.first[fake.name], fake), "first request")] : null,
      el("h2", {}, "3. Addresses"), el("dl", {class: "facts"}, state.fakes.map((one) => el("div", {}, el("dt", {}, el("a", {href: `#/fake/${encodeURIComponent(one.name)}`}, one.name), " ", el("small", {class: "soft"}, product(one))), el("dd", {class: "mono"}, addresses(one).map((address) => el("div", {}, withoutPassword(address), " ", copyButton(address, `Copy the address ${withoutPassword(address)} of ${one.name}`), address === one.url ? tokenButton(one) : null)))))));
  }
}
