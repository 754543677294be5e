// Puts a button into each row of the table: asks for the row's page and shows what Weir said about it.
for (const row of document.querySelectorAll("tr[data-path]")) {
    const button = document.createElement("button");
    const output = document.createElement("output");
    button.textContent = "try";
    button.addEventListener("click", async () => {
        button.disabled = true;
        const start = performance.now();
        try {
            const response = await fetch(row.dataset.path);
            await response.arrayBuffer();
            const fields = ["cache-status", "age"].map((name) => [name, response.headers.get(name)]);
            const shown = fields.filter(([, value]) => value !== null).map((field) => field.join(": "));
            const milliseconds = (performance.now() - start).toFixed(1);
            output.textContent = [`${response.status} in ${milliseconds} ms`, ...shown].join(" · ");
        } catch (error) {
            output.textContent = String(error);
        }
        button.disabled = false;
    });
    row.lastElementChild.append(button, output);
}
