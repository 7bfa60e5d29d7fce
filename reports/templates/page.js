"use strict";
(() => {
  const copyText = async (text, button) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  };
  const button = (label, action) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = label;
    made.addEventListener("click", () => action(made));
    return made;
  };
  const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const csvOf = (table) => {
    const head = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.name);
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden)
      .map((row) => [...row.cells].map((cell) => cell.dataset.raw));
    return [head, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  };
  const sortBy = (table, place, numeric) => {
    const headings = [...table.tHead.rows[0].cells];
    const up = headings[place].getAttribute("aria-sort") !== "ascending";
    headings.forEach((cell) => cell.removeAttribute("aria-sort"));
    headings[place].setAttribute("aria-sort", up ? "ascending" : "descending");
    const raw = (row) => row.cells[place].dataset.raw;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      if (raw(a) === "" || raw(b) === "") return (raw(a) === "") - (raw(b) === "");
      const order = numeric ? Number(raw(a)) - Number(raw(b)) : raw(a).localeCompare(raw(b), "en", { numeric: true });
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  };
  for (const box of document.querySelectorAll(".table")) {
    const table = box.querySelector("table");
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      const made = button(cell.textContent, () => sortBy(table, place, cell.classList.contains("number")));
      cell.replaceChildren(made);
    });
    const tools = document.createElement("div");
    tools.className = "tools";
    if (table.tBodies[0].rows.length > 8) {
      const filter = document.createElement("input");
      filter.type = "search";
      filter.placeholder = "filter rows";
      filter.setAttribute("aria-label", "filter rows");
      filter.addEventListener("input", () => {
        const wanted = filter.value.toLowerCase();
        for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      });
      tools.append(filter);
    }
    tools.append(button("copy as CSV", (made) => copyText(csvOf(table), made)));
    box.querySelector(".caption").after(tools);
  }
  for (const box of document.querySelectorAll(".command")) {
    box.append(button("copy", (made) => copyText(box.querySelector("code").textContent, made)));
  }
  for (const key of document.querySelectorAll(".key")) {
    key.addEventListener("click", () => {
      const shown = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", String(shown));
      for (const part of document.querySelectorAll(`.${key.dataset.series}`)) part.classList.toggle("hidden", !shown);
    });
  }
})();
