(() => {
  // The map: pointer, tap or keys choose a mark; its picture is cut out of the sheet that holds all of them.
  const field = document.getElementById("map-field");
  if (!field) return;
  const drawing = field.querySelector("svg");
  const ring = document.getElementById("map-ring");
  const sheet = document.getElementById("map-sheet");
  const picture = document.getElementById("map-picture");
  const points = [...document.getElementById("map-marks").children].map((mark) => {
    const [x, y] = mark.getAttribute("transform").match(/[\d.]+/g).map(Number);
    const title = mark.querySelector("title");
    title.remove(); // the caption says it at once, and the browser's own label would cover other marks
    return { x, y, at: mark.getAttribute("transform"), side: mark.matches("circle") ? "Real" : "Fake", name: title.textContent, tile: mark.dataset.tile };
  });
  const fromLeft = [...points].sort((a, b) => a.x - b.x || b.y - a.y);
  let chosen = null;

  const paint = () => {
    const context = picture.getContext("2d");
    context.clearRect(0, 0, picture.width, picture.height);
    picture.style.visibility = chosen.tile ? "visible" : "hidden";
    if (!chosen.tile || !sheet.complete) return;
    const edge = picture.width;
    const columns = Number(sheet.dataset.columns);
    const place = Number(chosen.tile);
    context.drawImage(sheet, (place % columns) * edge, Math.floor(place / columns) * edge, edge, edge, 0, 0, edge, edge);
  };
  const choose = (point) => {
    if (!point || point === chosen) return;
    chosen = point;
    ring.setAttribute("transform", point.at);
    ring.setAttribute("visibility", "visible");
    const side = document.createElement("strong");
    side.textContent = point.side;
    document.getElementById("map-caption").replaceChildren(side, " ", point.name, picture && !point.tile ? " (no picture)" : "");
    if (picture) paint();
  };

  // The nearest of some points, the one on top of others first; `reach` is in units of the drawing.
  const nearest = (some, x, y, reach = Infinity) => {
    let best = null;
    for (const point of some) {
      const distance = Math.hypot(point.x - x, point.y - y);
      if (distance <= reach) [best, reach] = [point, distance];
    }
    return best;
  };
  const under = (event, pixels) => {
    const box = drawing.getBoundingClientRect();
    const unit = drawing.viewBox.baseVal.width / box.width;
    return nearest(points, (event.clientX - box.left) * unit, (event.clientY - box.top) * unit, pixels * unit);
  };
  field.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") choose(under(event, 14)); });
  field.addEventListener("click", (event) => choose(under(event, 30)));

  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const towards = ([right, down]) => nearest(points.filter((point) => {
    const [x, y] = [point.x - chosen.x, point.y - chosen.y];
    const along = x * right + y * down;
    return along > 0 && Math.abs(x * down) + Math.abs(y * right) <= along;
  }), chosen.x, chosen.y);
  const steps = { PageUp: -1, PageDown: 1 };
  const next = (key) => {
    if (key === "End") return fromLeft.at(-1);
    if (key === "Home") return fromLeft[0];
    return key in steps ? fromLeft[fromLeft.indexOf(chosen) + steps[key]] : towards(directions[key]);
  };
  field.addEventListener("keydown", (event) => {
    const isOurs = event.key in directions || event.key in steps || event.key === "Home" || event.key === "End";
    if (!isOurs || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    choose(next(event.key));
  });

  // Without this script none of these would do anything.
  field.tabIndex = 0;
  field.setAttribute("role", "application");
  field.setAttribute("aria-label", "Map of both sets");
  field.setAttribute("aria-describedby", "map-help");
  document.getElementById("map-choice").hidden = false;
  if (sheet) sheet.addEventListener("load", paint);
  const { width, height } = drawing.viewBox.baseVal;
  choose(nearest(points, width / 2, height / 2));
})();
