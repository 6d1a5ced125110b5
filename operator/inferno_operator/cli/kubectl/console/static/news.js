// Shows a page anew when something changed since it was made, unless somebody uses it.
// Pages work without this.
"use strict";
const news = new EventSource("/news");
const state = document.getElementById("news");
let shown = document.body.dataset.version;
news.onopen = () => { state.textContent = ""; };
news.onerror = () => { state.textContent = "· no connection: this page may be old"; };
news.onmessage = async (message) => {
  if (message.data === shown) return;
  const main = document.querySelector("main");
  if (location.pathname === "/next" || main.contains(document.activeElement)) {
    state.textContent = "· something changed: reload to see it";
    return;
  }
  const answer = await fetch(location.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const { namespace } = page.body.dataset;
  if (namespace && namespace !== document.body.dataset.namespace) {  // another page chose it
    location.reload();
    return;
  }
  main.replaceWith(document.adoptNode(page.querySelector("main")));
  shown = page.body.dataset.version;
};
