
"use strict";
(function () {
  document.documentElement.classList.add("scripted");

  // Tables: a click on a heading sorts by it, another one the other way.
  function key(row, column) {
    var cell = row.cells[column];
    var value = cell.getAttribute("data-value");
    return value === null ? null : Number(value);
  }
  function sortBy(table, column, numeric, ascending) {
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    rows.sort(function (a, b) {
      if (numeric) {
        var x = key(a, column), y = key(b, column);
        if (x === null || y === null) { return (x === null) - (y === null); }
        return ascending ? x - y : y - x;
      }
      var order = a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true });
      return ascending ? order : -order;
    });
    rows.forEach(function (row) { body.appendChild(row); });
  }
  document.querySelectorAll("table").forEach(function (table) {
    var headings = Array.prototype.slice.call(table.tHead.rows[0].cells);
    headings.forEach(function (heading, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.textContent = "";
      heading.appendChild(button);
      button.addEventListener("click", function () {
        var ascending = heading.getAttribute("aria-sort") !== "ascending";
        headings.forEach(function (other) { other.removeAttribute("aria-sort"); });
        heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sortBy(table, column, heading.classList.contains("number"), ascending);
      });
    });
  });

  // On paper nothing is folded.
  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    folded.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (one) { one.open = false; });
  });
})();
