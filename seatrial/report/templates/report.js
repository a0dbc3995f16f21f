// What pointing at a chart shows, and a field to find a node. Without it the page says the same: every point has a
// title, every number is in a table. No request, no storage.
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);

  const show = (hit) => {
    tip.replaceChildren(...hit.told.map((line, n) => {
      const row = document.createElement(n ? "div" : "b");
      row.textContent = line;
      return row;
    }));
    tip.hidden = false;
    const at = hit.circle.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const left = Math.min(at.right + 8, document.documentElement.clientWidth - box.width - 8);
    const above = at.top - box.height - 8;
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = (above > 8 ? above : at.bottom + 8) + "px";
  };

  for (const chart of document.querySelectorAll("svg.chart")) {
    const hits = [...chart.querySelectorAll(".hits circle")].map((circle) => ({
      circle, x: +circle.getAttribute("cx"), y: +circle.getAttribute("cy"), told: circle.textContent.split("\n"),
    }));
    if (!hits.length) continue;
    chart.querySelectorAll("title").forEach((title) => title.remove()); // or the browser shows them as well
    let current = -1;
    const leave = () => {
      hits[current]?.circle.classList.remove("on");
      current = -1;
      tip.hidden = true;
    };
    const go = (n) => {
      if (n !== current) hits[current]?.circle.classList.remove("on");
      current = n;
      hits[n].circle.classList.add("on");
      show(hits[n]);
    };
    chart.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
      const far = (hit) => Math.hypot(3 * (hit.x - at.x), hit.y - at.y); // people aim at a size first
      go(hits.reduce((best, hit, n) => (far(hit) < far(hits[best]) ? n : best), 0));
    });
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("blur", leave);
    chart.setAttribute("tabindex", "0");
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") leave();
      if (!step) return;
      event.preventDefault();
      go(current < 0 ? 0 : (current + step + hits.length) % hits.length);
    });
  }

  for (const table of document.querySelectorAll("table[data-find]")) {
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "find a " + table.dataset.find;
    field.setAttribute("aria-label", field.placeholder);
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      }
    });
    table.parentElement.before(field);
  }
})();
