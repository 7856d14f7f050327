"use strict";
// Tables that sort by a column when its heading is clicked. A second click reverses; undefined values stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  const byName = new Intl.Collator(undefined, { numeric: true }).compare;
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      const sign = order === "ascending" ? 1 : -1;
      for (const other of headers) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", order);
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[column];
        return { row, key: cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value) };
      });
      keyed.sort((a, b) => {
        if (typeof a.key === "string") return sign * byName(a.key, b.key);
        if (a.key < 0 || b.key < 0) return (a.key < 0) - (b.key < 0);
        return sign * (a.key - b.key);
      });
      body.append(...keyed.map((each) => each.row));
    });
  });
}

// Fields that filter a table's rows by a part of the name.
for (const input of document.querySelectorAll("input[data-filters]")) {
  const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
  const found = document.querySelector(`[data-found="${input.dataset.filters}"]`);
  const names = rows.map((row) => row.cells[0].textContent.toLowerCase());
  input.closest(".filter").hidden = false;
  input.addEventListener("input", () => {
    const text = input.value.toLowerCase();
    let count = 0;
    rows.forEach((row, index) => {
      row.hidden = !names[index].includes(text);
      count += !row.hidden;
    });
    found.textContent = text ? `${count} found` : "";
  });
}

{% include "names.js" %}

// The images of a cell of the confusion matrix: names of files, with those pictures that the page has.
const cells = JSON.parse(document.getElementById("cell-data")?.textContent ?? "null");
function openCell(row, column, count) {
  const files = cells.files[`${row},${column}`] || [];
  const pictures = new Map();
  for (const figure of document.querySelectorAll("section > .gallery figure:has(img)")) {
    const files = figure.querySelectorAll(".file");
    if (files.length === 1) pictures.set(files[0].textContent, figure);
  }
  const list = document.createElement("ul");
  list.className = "gallery";
  for (const file of files) {
    const item = document.createElement("li");
    const figure = pictures.get(file);
    if (figure) item.append(figure.cloneNode(true));
    else item.append(isolated(file));
    list.append(item);
  }
  const title = document.createElement("b");
  title.append("True ", isolated(cells.names[row]), ", predicted ", isolated(cells.names[column]));
  const shown = files.length ? `, ${files.length} shown` : "; this page has no names of them";
  const panel = document.getElementById("cell");
  panel.replaceChildren(title, `: ${count} ${count === "1" ? "image" : "images"}${shown}`, list);
  panel.hidden = false;
}
for (const button of document.querySelectorAll("button[data-cell]")) {
  const [row, column] = button.dataset.cell.split(",");
  button.addEventListener("click", () => openCell(row, column, button.textContent));
}

// The heat map of the confusion matrix: describes the cell under the pointer, or selected with the arrow keys.
const map = document.getElementById("map");
if (map) {
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const size = cells.names.length;
  const width = Math.ceil(size / data.per_pixel) * data.per_pixel;  // of the picture, in categories
  const images = new Map(data.cells.map(([row, column, count]) => [row * size + column, count]));
  const cursor = document.getElementById("map-cursor");
  const reading = document.getElementById("map-reading");
  const format = new Intl.NumberFormat();
  let row = 0, column = 0;

  function read() {
    const known = images.get(row * size + column);
    const of = `of ${format.format(data.support[row])} images`;
    const count = known
      ? `${format.format(known)} ${of} (${((100 * known) / data.support[row]).toFixed(1)}%)`
      : data.rest ? `at most ${format.format(data.rest)} ${of}` : `none ${of}`;
    reading.replaceChildren("True ", isolated(cells.names[row]), ", predicted ", isolated(cells.names[column]), `: ${count}`);
    cursor.hidden = false;
    cursor.style.left = `${(100 * (column + 0.5)) / width}%`;
    cursor.style.top = `${(100 * (row + 0.5)) / width}%`;
    cursor.style.setProperty("--cell", `${map.clientWidth / width + 4}px`);
  }
  const within = (value) => Math.min(size - 1, Math.max(0, value));

  function point(event) {
    const box = map.querySelector("img").getBoundingClientRect();
    column = within(Math.floor((width * (event.clientX - box.left)) / box.width));
    row = within(Math.floor((width * (event.clientY - box.top)) / box.height));
    read();
  }
  map.addEventListener("pointermove", point);
  map.addEventListener("pointerdown", point);
  map.addEventListener("focus", () => { if (map.matches(":focus-visible")) read(); });
  function open() {
    const known = images.get(row * size + column);
    if (known) openCell(row, column, format.format(known));
  }
  map.addEventListener("click", (event) => { point(event); open(); });
  map.addEventListener("keydown", (event) => {
    if (event.key === "Enter") open();
    const far = event.shiftKey ? 10 : 1;
    const steps = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    row = within(row + step[0]);
    column = within(column + step[1]);
    read();
  });
}
