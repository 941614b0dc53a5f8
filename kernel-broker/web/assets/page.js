"use strict";
// Keeps the page up to date, and moves in the grid of nodes by keys. Without it the page is as it was drawn.
(function () {
  document.documentElement.classList.add("scripted");
  var grid = document.getElementById("grid"), detail = document.getElementById("detail"), state = document.getElementById("state");

  // The grid is one stop for Tab. Arrow keys move in it.
  function columns() {
    var cells = grid.children, top = cells[0].offsetTop, n = 1;
    while (n < cells.length && cells[n].offsetTop === top) { n++; }
    return n;
  }
  function enter(cell) {
    var before = grid.querySelector('a[tabindex="0"], a:not([tabindex])');
    if (before) { before.tabIndex = -1; }
    cell.tabIndex = 0;
    cell.focus();
  }
  function tell(event) {
    var cell = event.target.closest("a");
    detail.textContent = cell ? cell.getAttribute("aria-label") : "";
  }
  if (grid) {
    grid.addEventListener("keydown", function (event) {
      var at = Array.prototype.indexOf.call(grid.children, event.target), last = grid.children.length - 1;
      if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) { return; }
      var to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns(), ArrowUp: at - columns(), Home: 0, End: last }[event.key];
      if (to === undefined) { return; }
      event.preventDefault();
      if (to >= 0 && to <= last) { enter(grid.children[to]); }
    });
    grid.addEventListener("focusin", tell);
    grid.addEventListener("mouseover", tell);
  }

  // A kernel or state of the legend shows its nodes alone.
  var chosen = "";
  function choose() {
    if (!grid) { return; }
    grid.classList.toggle("chosen", chosen !== "");
    document.querySelectorAll(".grid a.chosen").forEach(function (cell) { cell.classList.remove("chosen"); });
    if (chosen !== "") { grid.querySelectorAll("a." + chosen).forEach(function (cell) { cell.classList.add("chosen"); }); }
    document.querySelectorAll(".key").forEach(function (key) { key.setAttribute("aria-pressed", String(key.dataset.kernel === chosen)); });
  }
  document.addEventListener("click", function (event) {
    var key = event.target.closest(".key");
    if (!key) { return; }
    chosen = key.dataset.kernel === chosen ? "" : key.dataset.kernel;
    choose();
  });

  // What changes keeps the place of the reader: what has the focus, and which details are open.
  function mark(element) {
    return element.id || element.dataset.kernel || element.getAttribute("href") || "";
  }
  function replace(part, html) {
    var focus = part.contains(document.activeElement) && part !== document.activeElement ? mark(document.activeElement) : "";
    var open = Array.prototype.map.call(part.querySelectorAll("details[open]"), function (one) { return one.id; });
    part.innerHTML = html;
    open.forEach(function (id) {
      var one = document.getElementById(id);
      if (one) { one.open = true; }
    });
    if (focus !== "") {
      Array.prototype.some.call(part.querySelectorAll("a, button, summary, [tabindex]"), function (one) {
        if (mark(one) !== focus) { return false; }
        one.focus();
        return true;
      });
    }
  }
  function cells(news) {
    if (!grid || grid.dataset.names !== news.names) { location.reload(); return; }
    news.cells.forEach(function (change) {
      var cell = grid.children[change[0]];
      if (cell.className !== change[1]) { cell.className = change[1]; }
      if (cell.getAttribute("aria-label") !== change[2]) { cell.setAttribute("aria-label", change[2]); }
    });
    if (chosen !== "") { choose(); }
  }
  function say(text) {
    text = text || "Up to date.";
    if (state.textContent !== text) { state.textContent = text; }
    state.classList.toggle("lost", text !== "Up to date.");
  }

  // One stream, and only while somebody looks: browsers open few connections to a server.
  var address = document.body.dataset.live, source = null;
  function listen() {
    if (!address || source || document.hidden) { return; }
    source = new EventSource(address);
    source.addEventListener("cells", function (event) { cells(JSON.parse(event.data)); });
    source.addEventListener("part", function (event) {
      var part = JSON.parse(event.data), to = document.getElementById(part.id);
      if (to) { replace(to, part.html); }
      if (part.id === "legend") { choose(); }
    });
    source.addEventListener("state", function (event) { say(JSON.parse(event.data)); });
    source.addEventListener("error", function () {
      say("No connection to kernelctl web: this is as of " + state.dataset.drawn + " or later.");
      if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(listen, 5000); }
    });
  }
  document.addEventListener("visibilitychange", function () {
    if (document.hidden && source) { source.close(); source = null; }
    listen();
  });
  listen();
})();
