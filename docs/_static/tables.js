// On a narrow screen, site.css shows each row of a table as a list of cells labelled by their columns.
for (const table of document.querySelectorAll("article table.docutils")) {
  const heads = Array.from(table.querySelectorAll("thead th"), (head) => head.textContent.trim());
  for (const row of table.tBodies[0]?.rows ?? []) {
    Array.from(row.cells).forEach((cell, column) => {
      cell.setAttribute("data-column", heads[column] ?? "");
      cell.classList.toggle("blank", !cell.textContent.trim());
    });
  }
}
