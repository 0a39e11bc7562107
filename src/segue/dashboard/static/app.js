// Keeps an open page up to date: the server sends only the blocks that changed.
"use strict";

const link = document.getElementById("link");
const said = document.getElementById("said");
let quiet = 0;

// The browser counts times, so a block in which only time passes is not sent again.
function length(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const units = [["d", 86400, Infinity], ["h", 3600, 24], ["min", 60, 60], ["s", 1, 60]];
  const parts = [];
  for (const [name, size, most] of units) {
    const amount = Math.floor(whole / size) % most;
    if (amount) parts.push(`${amount} ${name}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function count(root) {
  const now = Date.now() / 1000;
  for (const each of root.querySelectorAll("time[data-at]")) {
    const past = now - Number(each.dataset.at);
    put(each, past < 5 ? "just now" : `${past < 60 ? length(past) : length(past).split(" ").slice(0, 2).join(" ")} ago`);
  }
  for (const each of root.querySelectorAll("time[data-since]")) put(each, length(now - Number(each.dataset.since)));
  for (const each of root.querySelectorAll("time[data-until]")) {
    const left = Number(each.dataset.until) - now;
    put(each, left > 0 ? `in ${length(left)}` : "now");
  }
  for (const each of root.querySelectorAll("time[data-clock]")) {
    const at = new Date(Number(each.dataset.clock) * 1000);
    const isToday = at.toDateString() === new Date().toDateString();
    put(each, isToday ? at.toLocaleTimeString([], { hour12: false }) : at.toLocaleString([], { hour12: false }));
  }
}

// Changes elements instead of replacing them, so focus, open details and transitions stay.
function morph(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
    old.replaceWith(now);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.nodeName === "TIME") {
    for (const key of ["at", "since", "until", "clock"]) {
      if (now.dataset[key] !== undefined) old.dataset[key] = now.dataset[key];
    }
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const children = [...now.childNodes];
  while (old.childNodes.length > children.length) old.lastChild.remove();
  children.forEach((child, place) => {
    if (place < old.childNodes.length) morph(old.childNodes[place], child);
    else old.append(child);
  });
}

function made(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

function show(news) {
  for (const [id, html] of Object.entries(news.blocks || {})) {
    const old = document.getElementById(id);
    const now = made(html);
    if (!now) continue;
    const follows = old && [...old.querySelectorAll(".talk")].filter((e) => e.scrollTop + e.clientHeight >= e.scrollHeight - 4);
    if (old) morph(old, now);
    for (const each of follows || []) each.scrollTop = each.scrollHeight;
    if (!old) waiting.set(id, now);
  }
  for (const [name, ids] of Object.entries(news.lists || {})) {
    const list = document.querySelector(`[data-list="${name}"]`);
    if (!list) continue;
    ids.forEach((id, place) => {
      const each = document.getElementById(id) || waiting.get(id);
      waiting.delete(id);
      if (each && list.children[place] !== each) list.insertBefore(each, list.children[place] || null);
    });
    while (list.children.length > ids.length) list.lastElementChild.remove();
  }
  count(document);
}

const waiting = new Map();

function state(text, name) {
  put(link, text);
  link.dataset.state = name;
}

function listen() {
  const source = new EventSource(`/live?page=${encodeURIComponent(document.body.dataset.page)}`);
  source.onopen = () => state("live", "live");
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    if (news.trouble) tell(news.trouble, false);
    else show(news);
  };
  source.onerror = () => {
    state("connection lost, trying again", "lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

function tell(text, isFine) {
  clearTimeout(quiet);
  said.hidden = false;
  said.className = isFine ? "fine" : "refused";
  said.textContent = text;
  quiet = setTimeout(() => { said.hidden = true; }, 12000);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form.action")) return;
  event.preventDefault();
  const button = form.querySelector("button");
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");
  tell(`${button.title} …`, true);
  try {
    const answer = await fetch("/act", {
      method: "POST",
      headers: { accept: "application/json" },
      body: new URLSearchParams(new FormData(form)),
    });
    const done = await answer.json();
    tell(done.said, done.ok);
  } catch {
    tell("the dashboard does not answer; is it still running?", false);
  }
  button.removeAttribute("aria-disabled");
});

for (const words of document.querySelectorAll(".talk")) words.scrollTop = words.scrollHeight;
count(document);
setInterval(() => count(document), 1000);
listen();
