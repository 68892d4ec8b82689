// Toolgate's plugin for OpenCode, written by `toolgate hook install --for opencode`; run this again to update it.
//
// For each tool call, the plugin starts the hook as a process. The tool runs only if the process ends with status 0 and
// prints JSON that allows the call. In every other case the plugin throws an error, and OpenCode does not run the tool.
import { spawn } from "node:child_process"

const HOOK = {"command": "toolgate", "words": [], "seconds": 1}

export const Toolgate = async ({ directory }) => {
  const agents = new Map() // maps the id of each session to the name of its OpenCode agent
  const asking = new Map() // maps each call to the process that checks it
  const running = new Map() // maps each allowed call whose tool has not ended yet to its details
  const recording = new Set()
  let servers = []

  const run = (event, call) => {
    let timer
    return new Promise((resolve, reject) => {
      const child = spawn(HOOK.command, ["hook", "opencode", ...HOOK.words], { windowsHide: true })
      if (call) asking.set(call, child)
      timer = setTimeout(() => {
        child.kill("SIGKILL")
        reject(new Error("Not done: the hook exceeded its time limit."))
      }, HOOK.seconds * 1000)
      const output = { stdout: "", stderr: "" }
      for (const name of ["stdout", "stderr"]) {
        child[name].setEncoding("utf8")
        child[name].on("data", (text) => (output[name] += text))
      }
      child.on("error", (error) => reject(new Error(`Not done: the hook could not be started. ${error.message}.`)))
      child.on("close", (code) => resolve({ code, ...output }))
      // The process may end without reading its input; then only its exit status counts.
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(event))
    }).finally(() => {
      clearTimeout(timer)
      if (call) asking.delete(call)
    })
  }

  const answer = ({ code, stdout, stderr }) => {
    let decision = {}
    try {
      decision = JSON.parse(stdout)
    } catch {
      // Output that is not JSON does not allow the call.
    }
    if (code === 0 && decision?.toolgate === "allowed") return decision
    throw new Error(decision?.why || stderr.trim() || `Not done: the hook ended with status ${code} and no message.`)
  }

  const record = (call, error) => {
    const { check, args, begun } = running.get(call) ?? {}
    if (!running.delete(call)) return
    // `args` is the object that the tool ran with; another plugin may have changed it after the check.
    const event = { ...check, event: "after", arguments: args, error, duration_ms: Date.now() - begun }
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
      const check = {
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
      const given = JSON.stringify(check)
      const changed = answer(await run(check, call)).arguments
      if (JSON.stringify(check) !== given) throw new Error("Not done: the arguments changed during the check.")
      if (changed) {
        // Changed in place, because OpenCode runs the tool with the object that it passed, and ignores a new one.
        for (const name of Object.keys(args)) delete args[name]
        for (const [name, value] of Object.entries(changed))
          Object.defineProperty(args, name, { value, writable: true, enumerable: true, configurable: true })
      }
      running.set(call, { check, args, begun: Date.now() })
    },

    "tool.execute.after": ({ sessionID, callID }, output) => record(`${sessionID} ${callID}`, failure(output)),

    event: async ({ event }) => {
      const part = event.properties?.part
      if (event.type !== "message.part.updated" || part?.type !== "tool" || part.state?.status !== "error") return
      // For a subtask, `callID` of the functions above is the id of this message part.
      for (const name of [part.callID, part.id]) {
        const call = `${part.sessionID} ${name}`
        asking.get(call)?.kill() // The call has ended: the process cancels its approval request.
        await record(call, part.state.error || "the tool failed without an error message")
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
