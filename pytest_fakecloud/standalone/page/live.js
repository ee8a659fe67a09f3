// A page that draws the answer to one request, and draws it again when it, or its `version()`, changes.

import {el, redraw} from "./dom.js";
import {ask} from "./api.js";

export class LivePage {
  constructor(path, draw, ...above) {
    Object.assign(this, {path, draw, place: el("section")});
    this.node = el("div", {class: "page"}, above, this.place);
  }
  async go() { await this.refresh(); }
  async refresh() {
    const found = await ask("GET", this.path), shape = JSON.stringify([found, this.version?.()]);
    if (shape === this.shape) return;
    this.shape = shape;
    redraw(this.place, this.draw(found));
  }
}
