// Every name that a pinned client exports is used by a test here, or excused with a reason.
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { complete, named } from "./surface.mjs";

const here = (file) => readFileSync(new URL(file, import.meta.url), "utf8");
const sources = readdirSync(new URL(".", import.meta.url))
  .filter((file) => file.endsWith(".test.mjs") && file !== "exports.test.mjs")
  .map(here)
  .join("\n");
const excused = {
  ...named("the class of a part of the client, whose methods are called", "Chat FlowControlApi Messages Schedules UrlGroups SearchIndex VectorIndex"),
  ...named("raised by the client before it sends anything", "QstashEmptyArrayError"),
  ...named("raised for an answer that differs from another error's only in its headers", "QstashRatelimitError QstashChatRatelimitError"),
  ...named("of the workflows that @upstash/workflow has replaced", "QStashWorkflowAbort QStashWorkflowError formatWorkflowError"),
  ...named("an address outside the service, like that of upstash()", "anthropic custom openai resend setupAnalytics"),
  ...named("starts the vendor's own development server", "startDevServer"),
  ...named("sends nothing", "decodeBase64 WorkflowMiddleware loggingMiddleware"),
  ...named("thrown by steps, for the client itself to catch", "WorkflowAbort WorkflowError"),
  ...named("made by Ratelimit({ analytics: true })", "Analytics"),
  ...named("another name of the client's main class", "default"),
};

for (const client of Object.keys(JSON.parse(here("package.json")).dependencies)) {
  if (!client.startsWith("@upstash/")) continue;
  test(client, async () => {
    const names = Object.keys(await import(client)).filter((name) => !new RegExp(`\\b${name}\\b`).test(sources));
    complete(names.filter((name) => !(name in excused)), "excused");
  });
}
