// Shows a page anew when something changes, unless somebody types in it. It works without this.
"use strict";
const news = new EventSource("/news");
const state = document.getElementById("news");
news.onopen = () => { state.textContent = ""; };
news.onerror = () => { state.textContent = "· no connection: this page may be old"; };
news.onmessage = async () => {
  const main = document.querySelector("main");
  if (location.pathname === "/next" || main.contains(document.activeElement)) {
    state.textContent = "· something changed: reload to see it";
    return;
  }
  const answer = await fetch(location.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  main.replaceWith(document.adoptNode(page.querySelector("main")));
};
