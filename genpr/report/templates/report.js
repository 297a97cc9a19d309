"use strict";
(() => {
  // Enlarge a picture: click or Enter; arrow keys go on, Escape closes, and focus returns to where it was.
  const dialog = document.getElementById("large");
  const buttons = [...document.querySelectorAll("button.enlarge")];
  let place = 0;
  const show = (index) => {
    place = (index + buttons.length) % buttons.length;
    const copies = [...buttons[place].querySelectorAll("img")].map((image) => image.cloneNode());
    document.getElementById("large-pictures").replaceChildren(...copies);
    const caption = buttons[place].parentElement.querySelector("figcaption");
    document.getElementById("large-caption").replaceChildren(...[...caption.childNodes].map((node) => node.cloneNode(true)));
  };
  if (dialog) {
    buttons.forEach((button, index) => button.addEventListener("click", () => { show(index); dialog.showModal(); }));
    document.getElementById("previous").addEventListener("click", () => show(place - 1));
    document.getElementById("next").addEventListener("click", () => show(place + 1));
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft") show(place - 1);
      if (event.key === "ArrowRight") show(place + 1);
    });
    dialog.addEventListener("close", () => buttons[place].focus());
  }
  // Paper cannot be unfolded.
  const folded = [...document.querySelectorAll("details:not([open])")];
  window.addEventListener("beforeprint", () => folded.forEach((each) => { each.dataset.was = each.open; each.open = true; }));
  window.addEventListener("afterprint", () => folded.forEach((each) => { each.open = each.dataset.was === "true"; }));
})();
