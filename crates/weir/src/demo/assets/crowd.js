// Has crowds come, and shows what is told of them as it comes.
const button = document.getElementById("come");
const report = document.getElementById("report");
button.addEventListener("click", async () => {
    button.disabled = true;
    report.textContent = "";
    try {
        const response = await fetch("/crowd/run", { method: "POST" });
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
            report.textContent += piece.value;
        }
    } catch (error) {
        report.textContent += String(error);
    }
    button.disabled = false;
});
