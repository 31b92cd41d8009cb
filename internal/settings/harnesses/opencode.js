// muxpost wrote this file. It tells muxpost, in files of muxpost's own, what this opencode took and in which of its sessions, and what it does.
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs"
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

// What it does, for as long as this process lives. The sessions of its own helpers are children: they work for one that works.
const children = new Set(), working = new Set(), asked = new Map()
let open = "", failed = "", last = ""

function tell() {
  const word = [...asked.values()][0] ?? (working.size > 0 ? "working" : "idle")
  const text = (open ? word + " " + open : word) + "\n" + failed.replace(/\s+/g, " ").slice(0, 300) + "\n"
  if (!process.env.MUXPOST_NOTE || text === last) return
  try {
    writeFileSync(process.env.MUXPOST_NOTE, text, { mode: 0o600 })
    last = text
  } catch {
    // Then the screen has to tell.
  }
}

function runs(session, does) {
  if (children.has(session)) return
  if (does) working.add(session)
  else working.delete(session)
}

export const Muxpost = async () => ({
  "chat.message": async (input, output) => {
    const text = (output?.parts ?? []).filter((p) => p.type === "text" && !p.synthetic).map((p) => p.text).join("\n")
    const session = input?.sessionID ?? output?.message?.sessionID
    note(session, { type: "user", text })
    if (!children.has(session)) [open, failed] = [session, ""]
    runs(session, true)
    tell()
  },
  event: async ({ event }) => {
    const session = event?.properties?.sessionID
    if (event?.type === "session.status") note(session, { type: "status", status: event.properties.status?.type })
    if (event?.type === "session.idle") note(session, { type: "status", status: "idle" })
    if (event?.type === "session.error") note(session, { type: "error", name: event.properties.error?.name })
    if (event?.type === "permission.asked") note(session, { type: "asked" })
    if (event?.type === "permission.replied") note(session, { type: "replied" })

    const p = event?.properties ?? {}
    if (p.info?.parentID) children.add(p.info.id)
    switch (event?.type) {
      case "session.status":
        runs(session, p.status?.type !== "idle")
        if (children.has(session)) break
        if (p.status?.type === "retry") failed = "tries again: " + p.status.message
        if (p.status?.type === "idle" && failed.startsWith("tries again: ")) failed = ""
        break
      case "session.idle":
        runs(session, false)
        break
      case "session.error":
        if (!children.has(session)) failed = ["error", p.error?.name, p.error?.data?.statusCode, p.error?.data?.message].filter(Boolean).join(" ")
        break
      case "permission.asked":
        asked.set(p.id, "awaiting_approval")
        break
      case "question.asked":
        asked.set(p.id, "awaiting_input")
        break
      case "permission.replied":
      case "question.replied":
      case "question.rejected":
        asked.delete(p.requestID ?? p.permissionID)
        break
      default:
        return
    }
    tell()
  },
})
