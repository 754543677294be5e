document.querySelector("main").insertAdjacentHTML("beforeend", "<p>A script that Weir put in wrote this.</p>");
