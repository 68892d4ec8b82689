// What OpenCode does with a plugin, as far as the guard's is concerned: it hands the arguments over, and runs the tool
// with that very object, whatever the plugin puts in its place.
import { pathToFileURL } from "node:url"

const [path, given] = process.argv.slice(2)
const { config, agent, calls } = JSON.parse(given)
const [make, ...others] = Object.values(await import(pathToFileURL(path)))
if (others.length) throw new Error("OpenCode takes every export for a plugin")
const hooks = await make({ directory: "/srv/project" })
await hooks.config(config)
await hooks["chat.message"]({}, { message: { sessionID: "ses_1", agent } })

const part = (callID, state) => ({
  event: { type: "message.part.updated", properties: { part: { type: "tool", id: `prt_${callID}`, sessionID: "ses_1", callID, state } } },
})

const one = async ({ tool, callID, args, ends, givenUp }) => {
  const input = { tool, sessionID: "ses_1", callID }
  const output = { args }
  const asking = hooks["tool.execute.before"](input, output)
  if (givenUp)
    process.stdin.once("data", () => {
      process.stdin.unref()
      return hooks.event(part(callID, { status: "error", error: "Tool execution aborted" }))
    })
  try {
    await asking
  } catch (error) {
    await hooks.event(part(callID, { status: "error", error: error.message }))
    return { callID, thrown: error.message }
  }
  if (ends?.changes) Object.assign(args, ends.changes)
  if (ends?.error) await hooks.event(part(callID, { status: "error", error: ends.error }))
  else await hooks["tool.execute.after"]({ ...input, args }, { title: "", output: "", metadata: {}, ...ends })
  return { callID, ran: args }
}

const results = await Promise.all(calls.map(one))
await hooks.dispose()
console.log(JSON.stringify(results))
