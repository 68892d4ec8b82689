// Makes one tool call as OpenCode makes it: the plugin checks it first, and the tool runs with the object that was checked.
import { execSync } from "node:child_process"
import { pathToFileURL } from "node:url"

const [plugin, command] = process.argv.slice(2)
const { Toolgate } = await import(pathToFileURL(plugin))
const hooks = await Toolgate({ directory: process.cwd() })
await hooks.config({})
const call = { tool: "bash", sessionID: "ses_tidy", callID: "call_tidy" }
const args = { command, description: "Remove what was built" }
try {
  await hooks["tool.execute.before"](call, { args })
  const output = execSync(args.command, { encoding: "utf8" })
  await hooks["tool.execute.after"]({ ...call, args }, { title: "", output, metadata: { exit: 0 } })
  console.log("It is done.")
} catch (error) {
  console.log(error.message)
}
await hooks.dispose()
