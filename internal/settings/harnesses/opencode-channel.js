// muxpost wrote this file. With it this opencode takes deliveries from muxpost over a socket of the session's own, in muxpost's channel protocol
// (docs/harnesses.md): nothing is typed into its terminal, and no question of its can be answered from there.
import { chmodSync, existsSync } from "node:fs"
import { createServer } from "node:http"

const path = process.env.MUXPOST_CHANNEL
delete process.env.MUXPOST_CHANNEL // what opencode starts is not this session's agent

const maxBody = 8 << 20 // bytes
const recordTime = 8000 // how long opencode may take to record a message, in ms
const recent = 50 // messages

let client, directory
let current // the conversation of the newest message
const seen = new Map() // by delivery: the conversation that it came into, and when, as Date.now() says
const queued = new Map() // by delivery that opencode accepted and that did not come in yet: its conversation
const handing = new Map() // by delivery: what hands it over, a promise
let begun = { session: "", at: 0 } // a turn that may not show as busy yet

const pause = (ms) => new Promise((done) => setTimeout(done, ms))
const markOf = (text) => /^\[muxpost ([a-z0-9_-]+)\]/.exec(text ?? "")?.[1]
const textOf = (parts) => parts?.find((p) => p.type === "text" && !p.synthetic)?.text

async function get(url) {
  const { data, error, response } = await client._client.get({ url })
  if (response?.status === 404) return undefined
  if (error || data === undefined) throw new Error(`opencode does not answer ${url}`)
  return data
}

const sessionURL = (id) => "/session/" + encodeURIComponent(id)

// here is the conversation that goes on: the one with the newest message, or the one that this opencode was started with.
async function here(conversation) {
  const id = current ?? conversation
  return id ? get(sessionURL(id)) : undefined
}

// recorded reports whether a delivery is in a conversation. What came in long ago is, however much came after it.
async function recorded(delivery, session) {
  const came = seen.get(delivery)
  if (came && Date.now() - came.at > recordTime) return true
  const messages = (await get(`${sessionURL(came?.session ?? session)}/message?limit=${recent}`)) ?? []
  return messages.some((m) => m.info.role === "user" && markOf(textOf(m.parts)) === delivery)
}

async function busy(session) {
  if (begun.session === session && Date.now() - begun.at < 5000) return true
  const status = (await get("/session/status"))?.[session]
  return status !== undefined && status.type !== "idle"
}

async function dialog() {
  const asked = await Promise.all([get("/permission"), get("/question")])
  return asked.some((list) => list?.length > 0)
}

async function ask(delivery, conversation) {
  const session = (await here(conversation))?.id ?? ""
  const came = seen.get(delivery)?.session ?? queued.get(delivery)
  if ((session || came) && (await recorded(delivery, session))) return { state: "taken", conversation: came ?? session }
  if (came) return { state: "queued", conversation: came }
  if (!session) return { state: "absent", conversation: "" }
  return { state: "absent", conversation: session, busy: await busy(session), dialog: await dialog() }
}

async function handOver(delivery, { text, conversation, when_busy }) {
  const found = await ask(delivery, conversation)
  if (found.state !== "absent" || !found.conversation || found.dialog || (found.busy && when_busy !== "deliver")) return found
  const session = await here(conversation)
  if (session?.id !== found.conversation) return ask(delivery, conversation) // a person has just begun another one
  queued.set(delivery, session.id)
  // It goes on as the newest message did: opencode would take its default agent.
  const { error } = await client.session.promptAsync({
    path: { id: session.id },
    body: {
      parts: [{ type: "text", text }],
      agent: session.agent,
      model: session.model && { providerID: session.model.providerID, modelID: session.model.id },
      variant: session.model?.variant,
    },
  })
  if (error) {
    queued.delete(delivery)
    return { state: "absent", conversation: session.id, busy: false, dialog: false }
  }
  for (const end = Date.now() + recordTime; ; await pause(10)) {
    const stands = await ask(delivery, conversation)
    if (stands.state !== "queued" || Date.now() > end) return stands
  }
}

function hand(delivery, offer) {
  if (!handing.has(delivery)) handing.set(delivery, handOver(delivery, offer).finally(() => handing.delete(delivery)))
  return handing.get(delivery)
}

async function body(request) {
  const chunks = []
  let size = 0
  for await (const chunk of request) {
    if ((size += chunk.length) > maxBody) return undefined
    chunks.push(chunk)
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString("utf8"))
  } catch {
    return undefined
  }
}

async function answer(request) {
  const url = new URL(request.url, "http://agent")
  const delivery = /^\/v1\/deliveries\/([a-z0-9_-]+)$/.exec(url.pathname)?.[1]
  if (!delivery) return [404]
  if (request.method === "GET") return [200, await ask(delivery, url.searchParams.get("conversation") ?? "")]
  if (request.method !== "PUT") return [405]
  const offer = await body(request)
  if (typeof offer?.text !== "string" || markOf(offer.text) !== delivery) return [400]
  return [200, await hand(delivery, offer)]
}

function listen() {
  if (!path || existsSync(path)) return
  const server = createServer(async (request, response) => {
    let [status, result] = [500, undefined]
    try {
      ;[status, result] = await answer(request)
    } catch {
      // What became of it is asked about.
    }
    response.writeHead(status, { "content-type": "application/json" })
    response.end(JSON.stringify(result ?? {}))
  })
  server.on("error", () => {}) // then deliveries are typed
  server.listen(path, () => chmodSync(path, 0o600))
  server.unref?.()
}

// isRoot reports whether a conversation is one of a person's, and not one that an agent began.
async function isRoot(session) {
  const found = await get(sessionURL(session)).catch(() => undefined)
  return found !== undefined && !found.parentID
}

export const MuxpostChannel = async (context) => {
  // opencode may load it again, or for another directory.
  const first = directory === undefined
  directory ??= context.directory
  if (context.directory === directory) client = context.client
  if (first) listen()
  return {
    "chat.message": async (input, output) => {
      const session = input?.sessionID ?? output?.message?.sessionID
      const delivery = markOf(textOf(output?.parts))
      begun = { session, at: Date.now() }
      if (delivery) {
        seen.set(delivery, { session, at: Date.now() })
        queued.delete(delivery)
      }
      if (session && (await isRoot(session))) current = session
    },
    event: async ({ event }) => {
      const { sessionID, status } = event?.properties ?? {}
      if (event?.type === "session.status" && sessionID === begun.session && status?.type !== undefined) begun = { session: "", at: 0 }
      if (event?.type !== "session.error") return
      for (const [delivery, session] of queued) if (session === sessionID) queued.delete(delivery) // it will not come in any more
    },
  }
}
