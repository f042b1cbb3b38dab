// The official TypeScript SDK, of either major version, as a client of several servers.
// usage: node.mjs 1|2 JOB
// JOB is JSON: {"servers": [{"kind", "era", "target"}], "calls": [{"tool", "args"}]}. What each
// server lists and answers is printed as JSON.
import { createRequire } from 'node:module'

const require = createRequire(process.env.TINE_TEST_TOOLS + '/')
const [major, text] = process.argv.slice(2)
const parts = major === '1'
  ? ['@modelcontextprotocol/sdk/client/index.js', '@modelcontextprotocol/sdk/client/streamableHttp.js',
    '@modelcontextprotocol/sdk/client/sse.js', '@modelcontextprotocol/sdk/client/stdio.js']
  : ['@modelcontextprotocol/client', '@modelcontextprotocol/client/stdio']
const { Client, StreamableHTTPClientTransport, SSEClientTransport, StdioClientTransport } =
  Object.assign({}, ...parts.map((p) => require(p)))

const job = JSON.parse(text)
const reports = []
for (const { kind, era, target } of job.servers) {
  const transport = {
    streamable: () => new StreamableHTTPClientTransport(new URL(target[0])),
    sse: () => new SSEClientTransport(new URL(target[0])),
    stdio: () => new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }),
  }[kind]()
  let protocol
  transport.setProtocolVersion = ((set) => (v) => { protocol = v; set?.call(transport, v) })(transport.setProtocolVersion)
  const client = new Client({ name: 'e2e-node', version: '1.0.0' }, { versionNegotiation: { mode: era } })
  await client.connect(transport)
  const { tools } = await client.listTools()
  const results = []
  for (const { tool, args } of job.calls) {
    try {
      results.push(await client.callTool({ name: tool, arguments: args }))
    } catch (e) {
      results.push({ error: e.message, code: e.code })
    }
  }
  reports.push({ protocol: client.getNegotiatedProtocolVersion?.() ?? protocol, tools, results })
  await client.close()
}
console.log(JSON.stringify(reports))
