// Draws a timeline that grows and changes at random, and another of the same rows at once, until they differ.
async (seed) => {
    const {Trace} = await import("/console/trace.js");
    const random = (most) => (seed = (seed * 1103515245 + 12345) % 2147483648, seed % most);
    const names = ["kv", "queue"], fakes = names.map((name) => ({name, url: "http://127.0.0.1:1"}));
    const made = (number, rows, done) => {
        const parent = random(3) ? null : rows.at(-1 - random(3)), depth = parent ? parent.depth + 1 : 0;
        return {number, at_us: 1e15 + number * random(2e6), rules: {surrounds: random(3) > 0},
            actor: parent ? "application" : "client", peer: ["kv", "queue", "https://app.example"][random(3)],
            ok: random(4) > 0, done, depth, parent: parent?.number ?? 0, data: {}, subjects: [], faults: [], marks: [],
            text: {what: `GET ${"word ".repeat(random(60))}`, answer: done ? "OK" : "", lines: [], note: ""}};
    };
    const place = () => document.body.appendChild(document.createElement("div"));
    const options = {newest: true, isWanted: (row) => row.number % 7 > 0}, live = new Trace(place(), options);
    const shape = (trace) => JSON.stringify([trace.items.map(({key, top, height, gap, index}) => [key, top, height, gap, index]),
        trace.lanes, trace.shown.map((one) => [one.row.number, one.hue, one.label, one.from, one.to, one.bars.map(({lane, hue, depth}) => [lane, hue, depth]), one.starts]),
        [...trace.matches].map(({row}) => row.number), trace.count.textContent, trace.problemsLabel.textContent]);
    let rows = [], number = 0;
    for (let step = 0; step < 60; step++) {
        rows = rows.slice(step % 20 === 19 ? 5 : 0).map((row, at) => row.done || random(2) ? row : {...row, done: true, ok: false, text: {...row.text, answer: "503"}});
        for (let more = random(6); more > 0; more--) { number++; rows.push(made(number, rows, random(4) > 0)); }
        if (step === 30) live.filter({search: "word word"});
        live.show({rows, findings: [], fakes});
        const fresh = new Trace(place(), options);
        fresh.filter(live.wanted);
        fresh.show({rows, findings: [], fakes});
        const [one, other] = [shape(live), shape(fresh)];
        fresh.destroy();
        if (one !== other) return [step, one, other];
    }
    live.destroy();
    return live.rows.length;
}
