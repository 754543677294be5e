// Fills the page in with what Weir answers, as the demo's origin reports it line by line.
let original = 0;

function percent(bytes) {
    return `${(100 * bytes / original).toFixed(1)} %`;
}

/** Shows what a row of the report says wherever the page has a place for it. */
function show(name, bytes, type, adapt) {
    if (name === "picture" || name === "page" || name === "identity") original = bytes;
    const isPart = !["ad", "ad-blocked", "script", "script-blocked"].includes(name);
    const said = adapt === "-" ? [] : [adapt];
    const size = `${bytes.toLocaleString("en")} bytes`;
    for (const place of document.querySelectorAll(`[data-row="${name}"]`)) {
        const share = isPart ? [percent(bytes)] : [];
        place.querySelector("output").textContent = [size, ...share, type, ...said].join(" · ");
        const meter = place.querySelector("meter");
        if (meter) meter.value = bytes / original;
        if (place.dataset.src) draw(place);
        if (place.dataset.frame) place.querySelector("iframe").src = place.dataset.frame;
    }
}

/** By fetch, since a picture that saves data is asked for with a field of its own. */
async function draw(figure) {
    const headers = { Accept: "image/webp,*/*" };
    if ("saves" in figure.dataset) headers["Save-Data"] = "on";
    const response = await fetch(figure.dataset.src, { headers });
    figure.querySelector("img").src = URL.createObjectURL(await response.blob());
}

async function look() {
    const response = await fetch("/adapt/figures");
    if (!response.ok) throw new Error(await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        const lines = (text + piece.value).split("\n");
        text = lines.pop();
        for (const line of lines) {
            const row = /^(\S+) +(\d+)  (\S+) +(\S.*)$/.exec(line);
            if (row) show(row[1], +row[2], row[3], row[4]);
        }
    }
    for (const place of document.querySelectorAll("[data-source]")) {
        place.textContent = await (await fetch(place.dataset.source)).text();
    }
}

const state = document.getElementById("state");
document.querySelector(".here").textContent = location.origin;
look().then(() => { state.textContent = ""; }, (error) => { state.textContent = String(error); });
