// pi's extension for a leg: after its own compaction, pi waits for what the summary left out. See
// agents/shared/halts.py. Whatever goes wrong, pi continues as it would have without segue.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const PATIENCE_MS = 10_000;
const LOOK_MS = 20;

async function ask(folder, summary) {
  const file = (number, kind) => join(folder, `halt-${number}.${kind}`);
  let number = 1;
  while (existsSync(file(number, "json")) || existsSync(file(number, "late"))) number += 1;
  const asked = file(number, "json");
  const aside = `${asked}.${process.pid}`;
  writeFileSync(aside, JSON.stringify({ summary }), { mode: 0o600 });
  renameSync(aside, asked);
  const until = Date.now() + PATIENCE_MS;
  while (Date.now() < until) {
    if (existsSync(file(number, "answer"))) {
      renameSync(file(number, "answer"), file(number, "taken"));
      return JSON.parse(readFileSync(file(number, "taken"), "utf8")).words;
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  renameSync(asked, file(number, "late"));
  return "";
}

export default function (pi) {
  const folder = process.env.SEGUE_HALTS;
  if (!folder) return;
  let isOver = false; // the run: words would begin another one
  pi.on("agent_start", () => {
    isOver = false;
  });
  pi.on("agent_end", () => {
    isOver = true;
  });
  pi.on("session_compact", async (event) => {
    try {
      if (isOver && event.willRetry !== true) return;
      const words = await ask(folder, String(event.compactionEntry?.summary ?? ""));
      if (words) {
        const message = { customType: "segue", content: words, display: true };
        pi.sendMessage(message, { deliverAs: "steer" });
      }
    } catch {
      // as without segue
    }
  });
}
