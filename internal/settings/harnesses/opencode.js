// muxpost wrote this file. It tells muxpost, in files of muxpost's own, what this opencode took and in which of its sessions.
import { appendFileSync, mkdirSync } from "node:fs"
import { join } from "node:path"

const dir = process.env.MUXPOST_SESSIONS

function note(session, line) {
  if (!dir || !/^ses_[A-Za-z0-9]+$/.test(session ?? "")) return
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 })
    appendFileSync(join(dir, session + ".jsonl"), JSON.stringify({ time: new Date().toISOString(), session, ...line }) + "\n", { mode: 0o600 })
  } catch {
    // What is not noted counts as unconfirmed; the agent goes on.
  }
}

export const Muxpost = async () => ({
  "chat.message": async (input, output) => {
    const text = (output?.parts ?? []).filter((p) => p.type === "text" && !p.synthetic).map((p) => p.text).join("\n")
    note(input?.sessionID ?? output?.message?.sessionID, { type: "user", text })
  },
  event: async ({ event }) => {
    const session = event?.properties?.sessionID
    if (event?.type === "session.status") note(session, { type: "status", status: event.properties.status?.type })
    if (event?.type === "session.idle") note(session, { type: "status", status: "idle" })
    if (event?.type === "session.error") note(session, { type: "error", name: event.properties.error?.name })
    if (event?.type === "permission.asked") note(session, { type: "asked" })
    if (event?.type === "permission.replied") note(session, { type: "replied" })
  },
})
