
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

  // Flame graphs: a click (or Enter) makes a frame as wide as the graph. The graph is one stop
  // of the Tab key: arrows go to what a frame calls, to its caller and to the frames beside it.
  document.querySelectorAll("figure.flame").forEach(function (figure) {
    var svg = figure.querySelector("svg");
    var width = svg.viewBox.baseVal.width;
    var frames = Array.prototype.map.call(svg.querySelectorAll(".frame"), function (g) {
      return {
        g: g, rect: g.querySelector("rect"), text: g.querySelector("text"), name: g.getAttribute("data-name"),
        from: Number(g.getAttribute("data-from")), share: Number(g.getAttribute("data-share")),
        depth: Number(g.getAttribute("data-depth"))
      };
    });
    function label(name, room) {
      var letters = Math.floor((room - 6) / 6.6);
      if (letters < 3) { return ""; }
      return name.length <= letters ? name : name.slice(0, letters - 1) + "\u2026";
    }
    var stop = 0;
    function shown(f) { return f.g.getAttribute("visibility") !== "hidden"; }
    function focusable(at) {
      frames[stop].g.setAttribute("tabindex", "-1");
      stop = at;
      frames[stop].g.setAttribute("tabindex", "0");
    }
    // next frame of that depth in a direction, within limit.
    function seek(at, step, depth, until) {
      for (var i = at + step; i >= 0 && i < frames.length && frames[i].depth >= until; i += step) {
        if (frames[i].depth === depth && shown(frames[i])) { return i; }
      }
      return -1;
    }
    function arrow(at, key) {
      var depth = frames[at].depth;
      switch (key) {
      case "ArrowDown": return seek(at, 1, depth + 1, depth + 1);
      case "ArrowUp": return seek(at, -1, depth - 1, 0);
      case "ArrowRight": return seek(at, 1, depth, 0);
      case "ArrowLeft": return seek(at, -1, depth, 0);
      case "Home": return 0;
      }
      return -1;
    }
    function zoom(to) {
      focusable(frames.indexOf(to));
      frames.forEach(function (f) {
        var above = f.depth < to.depth;
        var left = (f.from - to.from) / to.share;
        var right = (f.from + f.share - to.from) / to.share;
        var visible = right > 1e-9 && left < 1 - 1e-9;
        f.g.setAttribute("visibility", visible ? "visible" : "hidden");
        f.g.classList.toggle("faded", above);
        left = Math.max(0, left) * width;
        right = Math.min(1, right) * width;
        f.rect.setAttribute("x", left);
        f.rect.setAttribute("width", Math.max(0, right - left));
        f.text.setAttribute("x", left + 3);
        f.text.textContent = visible ? label(f.name, right - left) : "";
      });
    }
    frames.forEach(function (f, at) {
      f.g.addEventListener("click", function () { zoom(f); });
      f.g.addEventListener("keydown", function (event) {
        if (event.key === "Enter") { zoom(f); }
        if (event.key === "Escape") { zoom(frames[0]); frames[0].g.focus(); }
        var to = arrow(at, event.key);
        if (to >= 0) {
          event.preventDefault();
          focusable(to);
          frames[to].g.focus();
        }
      });
    });
    figure.querySelector(".whole").addEventListener("click", function () {
      if (frames.length) { zoom(frames[0]); }
    });
    figure.querySelector(".find").addEventListener("input", function (event) {
      var wanted = event.target.value.toLowerCase(), share = 0, until = -1;
      frames.forEach(function (f) {
        var found = wanted !== "" && f.name.toLowerCase().indexOf(wanted) >= 0;
        f.g.classList.toggle("found", found);
        // Frames come in the order of a walk: what lies within one that was
        // found already is counted with it.
        if (found && f.from + f.share > until + 1e-9) { share += f.share; until = f.from + f.share; }
      });
      figure.querySelector("output").textContent = wanted === "" ? "" : (100 * share).toFixed(1) + " % of all";
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
