// The page of one fake: tabs with counts, and the current tab.
import {copyButton, el, link, missing, number, own, product, redraw, showCurrent} from "./dom.js";
import {ask, path} from "./api.js";

const CODE = {kv_server: () => import("./kv.js"), vector_index: () => import("./vector.js"), broker: () => import("./broker.js"), queue: () => import("./queue.js")};

// Loads the code for a kind of fake and returns the page of a fake. Others than these have no data to show.
export async function open(fake) { return new FakePage(fake, (await own(CODE, fake.fixture)?.())?.tabs); }

class FakePage {
  constructor(fake, tabs) {
    Object.assign(this, {fake, hasLists: Boolean(tabs), place: el("div"), counts: {}});
    this.tabs = [...tabs ?? [], {name: "faults", title: "Faults", counted: "faults", make: async (one) => new (await import("./faults.js")).FaultsPage(one)}, {name: "request", title: "Request", make: async (one) => (await import("./sending.js")).requestPage(one)}];
    this.nav = el("nav", {class: "subtabs", "aria-label": `parts of ${fake.name}`});
    this.node = el("div", {class: "page fake"}, el("div", {class: "tools head"}, el("h1", {}, fake.name, " ", el("small", {class: "soft"}, product(fake))), el("span", {class: "mono soft"}, fake.url), copyButton(fake.url, "Copy the address", "Copy")), this.nav, this.place);
  }
  leave() { this.inner?.leave?.(); }

  async go(route) {
    const name = route.parts[2], chosen = this.tabs.find((tab) => tab.name === name);
    // The address of a fake alone is that of its first tab, whose list writes its filters into its own address only.
    if (!name) { history.replaceState(null, "", link(["fake", this.fake.name, this.tabs[0].name], route.query)); dispatchEvent(new HashChangeEvent("hashchange")); return; }
    if (name !== this.current) {
      this.inner?.leave?.();
      this.current = name;
      const inner = await chosen?.make(this.fake) ?? {node: missing(`${this.fake.name} has no tab ${name}.`, this.tabs.map((tab) => [["fake", this.fake.name, tab.name], tab.title]))};
      // Another tab was chosen while the code of this one was loaded.
      if (this.current !== name) return;
      this.inner = inner;
      this.place.replaceChildren(this.inner.node);
      this.drawTabs();
    }
    await Promise.all([this.inner.go?.(route), this.count()]);
  }
  async refresh() { await Promise.all([this.inner.refresh?.(), this.count()]); }

  async count() {
    const [lists, faults] = await Promise.all([this.hasLists ? ask("GET", path(this.fake, "/lists")) : {}, ask("GET", path(this.fake, "/faults"))]);
    this.counts = {...lists, faults: faults.filter((one) => one.active).length};
    this.drawTabs();
  }
  drawTabs() {
    const shape = JSON.stringify([this.counts, this.current]);
    if (shape === this.shape) return;
    this.shape = shape;
    redraw(this.nav, this.tabs.map(({name, title, counted}) => {
      const many = this.counts[counted], open = name === "dead-letters" ? this.counts["open-dead-letters"] : many;
      return el("a", {href: link(["fake", this.fake.name, name]), "data-key": name, "aria-current": name === this.current ? "page" : null}, title, many ? el("span", {class: name === "dead-letters" && open ? "many bad" : "many", title: open === many ? null : "open ones of all: the message of the others was delivered since"}, open === many ? number(many) : `${number(open)} of ${number(many)}`) : null);
    }));
    showCurrent(this.nav);
  }
}
