"use strict";
// a click on a heading sorts its table: rising, falling, then as it was; without a value comes last
const numberIn = (text) => parseFloat(text.replaceAll("−", "-").replace(/[,<+\s]/g, ""));
for (const table of document.querySelectorAll("table:not(.matrix)")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells].filter((heading) => heading.textContent.trim());
  for (const heading of rows.length > 1 ? headings : []) {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    const column = heading.cellIndex;
    const isFigure = heading.classList.contains("figure");
    const textOf = (row) => row.cells[column].textContent;
    const hasValue = (row) => !isFigure || !Number.isNaN(numberIn(textOf(row)));
    const compare = (one, other) => isFigure
      ? numberIn(textOf(one)) - numberIn(textOf(other))
      : textOf(one).localeCompare(textOf(other), "en", { numeric: true });
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const now = before === "ascending" ? "descending" : before ? null : "ascending";
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      if (now) heading.setAttribute("aria-sort", now);
      const sign = now === "descending" ? -1 : 1;
      const sorted = rows.filter(hasValue).sort((one, other) => sign * compare(one, other));
      body.append(...(now ? [...sorted, ...rows.filter((row) => !hasValue(row))] : rows));
    });
  }
}
