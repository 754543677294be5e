document.getElementById("counted").textContent = "An ad server has counted this visit.";
