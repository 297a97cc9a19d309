"use strict";
(() => {
  // Click or Enter enlarges a picture, arrow keys show the previous or next one, and Escape closes and restores the focus.
  const dialog = document.getElementById("large");
  const buttons = [...document.querySelectorAll("button.enlarge")];
  let current = 0;
  const show = (index) => {
    current = (index + buttons.length) % buttons.length;
    const copies = [...buttons[current].querySelectorAll("img")].map((image) => image.cloneNode());
    document.getElementById("large-pictures").replaceChildren(...copies);
    const caption = buttons[current].parentElement.querySelector("figcaption");
    document.getElementById("large-caption").replaceChildren(...[...caption.childNodes].map((node) => node.cloneNode(true)));
  };
  if (dialog) {
    buttons.forEach((button, index) => button.addEventListener("click", () => { show(index); dialog.showModal(); }));
    document.getElementById("previous").addEventListener("click", () => show(current - 1));
    document.getElementById("next").addEventListener("click", () => show(current + 1));
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft") show(current - 1);
      if (event.key === "ArrowRight") show(current + 1);
    });
    dialog.addEventListener("close", () => buttons[current].focus());
  }
  // Print the content of all details elements.
  const folded = [...document.querySelectorAll("details:not([open])")];
  window.addEventListener("beforeprint", () => folded.forEach((each) => { each.dataset.wasOpen = each.open; each.open = true; }));
  window.addEventListener("afterprint", () => folded.forEach((each) => { each.open = each.dataset.wasOpen === "true"; }));
})();
