// Draws the two pictures, which browsers do not know how to: binary PPM (P6, three bytes a pixel) and
// PGM (P5, one byte a pixel).

/** Width, height, bytes a pixel, and where the pixels begin. */
function parse(bytes) {
    const words = [];
    let at = 0;
    while (words.length < 4) {
        let word = "";
        while (bytes[at] > 32) word += String.fromCharCode(bytes[at++]);
        at += 1;
        if (word) words.push(word);
        if (at > 100) throw new Error("no picture");
    }
    const [kind, width, height] = words;
    if (kind !== "P5" && kind !== "P6") throw new Error(`no picture but ${kind}`);
    return { width: +width, height: +height, channels: kind === "P6" ? 3 : 1, at };
}

function draw(canvas, bytes) {
    const { width, height, channels, at } = parse(bytes);
    const image = new ImageData(width, height);
    for (let pixel = 0; pixel < width * height; pixel++) {
        const from = at + pixel * channels;
        for (let channel = 0; channel < 3; channel++) {
            image.data[pixel * 4 + channel] = bytes[from + (channels === 3 ? channel : 0)];
        }
        image.data[pixel * 4 + 3] = 255;
    }
    canvas.width = width;
    canvas.height = height;
    canvas.getContext("2d").putImageData(image, 0, 0);
}

async function look(figure) {
    const output = figure.querySelector("output");
    try {
        // Not from the browser's memory: the picture is to be seen as it is served now.
        const response = await fetch(figure.dataset.picture, { cache: "no-store" });
        const bytes = new Uint8Array(await response.arrayBuffer());
        const fields = ["content-type", "cache-status"].map((name) => response.headers.get(name));
        output.textContent = [`${bytes.length} bytes`, ...fields.filter(Boolean)].join(" · ");
        draw(figure.querySelector("canvas"), bytes);
    } catch (error) {
        output.textContent = String(error);
    }
}

function lookAtAll() {
    document.querySelectorAll("figure").forEach(look);
}

document.querySelector(".here").textContent = location.origin;
document.getElementById("again").addEventListener("click", lookAtAll);
lookAtAll();
