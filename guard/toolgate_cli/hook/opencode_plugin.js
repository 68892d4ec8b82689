// Toolgate's guard, written by `toolgate hook install --for opencode`, and written anew when that is run again.
//
// A tool runs only where the hook's process ends with status 0 and says in JSON that it may. Whatever else happens is
// thrown, and OpenCode runs no tool before which something was thrown.
import { spawn } from "node:child_process"

const HOOK = {"command": "toolgate", "words": [], "seconds": 1}

export const Toolgate = async ({ directory }) => {
  const agents = new Map() // by session
  const asking = new Map() // processes, by call
  const running = new Map() // what was let through, by call
  const recording = new Set()
  let servers = []

  const run = (event, call) => {
    let timer
    return new Promise((resolve, reject) => {
      const child = spawn(HOOK.command, ["hook", "opencode", ...HOOK.words], { windowsHide: true })
      if (call) asking.set(call, child)
      timer = setTimeout(() => {
        child.kill("SIGKILL")
        reject(new Error("Not done: the guard was too slow."))
      }, HOOK.seconds * 1000)
      const said = { stdout: "", stderr: "" }
      for (const name of ["stdout", "stderr"]) {
        child[name].setEncoding("utf8")
        child[name].on("data", (text) => (said[name] += text))
      }
      child.on("error", (error) => reject(new Error(`Not done: the guard could not be started. ${error.message}.`)))
      child.on("close", (code) => resolve({ code, ...said }))
      // A process that ended without reading has its status to say so.
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(event))
    }).finally(() => {
      clearTimeout(timer)
      if (call) asking.delete(call)
    })
  }

  const answer = ({ code, stdout, stderr }) => {
    let said = {}
    try {
      said = JSON.parse(stdout)
    } catch {
      // What cannot be read is no yes.
    }
    if (code === 0 && said?.toolgate === "allowed") return said
    throw new Error(said?.why || stderr.trim() || `Not done: the guard ended with status ${code}, and said nothing.`)
  }

  const record = (call, error) => {
    const { asked, args, begun } = running.get(call) ?? {}
    if (!running.delete(call)) return
    // The very object that the tool was run with: another plugin may have changed it since.
    const event = { ...asked, event: "after", arguments: args, error, duration_ms: Date.now() - begun }
    const done = run(event).catch(() => {}).finally(() => recording.delete(done))
    recording.add(done)
    return done
  }

  return {
    config: async (config) => {
      servers = Object.keys(config.mcp ?? {})
    },

    "chat.message": async (_, { message }) => {
      agents.set(message.sessionID, message.agent)
    },

    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const call = `${sessionID} ${callID}`
      const asked = {
        event: "before",
        tool,
        arguments: args,
        session: sessionID,
        call: callID,
        agent: agents.get(sessionID),
        folder: directory,
        servers,
        process: process.pid,
      }
      const given = JSON.stringify(asked)
      const changed = answer(await run(asked, call)).arguments
      if (JSON.stringify(asked) !== given) throw new Error("Not done: the call was changed while the guard asked.")
      if (changed) {
        // In place: OpenCode runs the tool with the object that it showed, and looks at no other.
        for (const name of Object.keys(args)) delete args[name]
        for (const [name, value] of Object.entries(changed))
          Object.defineProperty(args, name, { value, writable: true, enumerable: true, configurable: true })
      }
      running.set(call, { asked, args, begun: Date.now() })
    },

    "tool.execute.after": ({ sessionID, callID }, output) => record(`${sessionID} ${callID}`, failure(output)),

    event: async ({ event }) => {
      const part = event.properties?.part
      if (event.type !== "message.part.updated" || part?.type !== "tool" || part.state?.status !== "error") return
      // A subtask's hook is given the name of the part.
      for (const name of [part.callID, part.id]) {
        const call = `${part.sessionID} ${name}`
        asking.get(call)?.kill() // Nobody waits for it any more: what it asked is withdrawn.
        await record(call, part.state.error || "it failed, and nothing was said of why")
      }
    },

    dispose: async () => {
      for (const child of asking.values()) child.kill()
      await Promise.allSettled(recording)
    },
  }
}

const failure = (output) => {
  if (output?.isError) return output.content?.map((each) => each.text ?? "").join(" ") || "it failed"
  const status = output?.metadata?.exit
  return typeof status === "number" && status !== 0 ? `the command ended with status ${status}` : undefined
}
