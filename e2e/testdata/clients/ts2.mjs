// The official TypeScript SDK 2.x as a client.
// usage: ts2.mjs streamable|sse|stdio legacy|auto TOOL ARGUMENTS TARGET...
import { createRequire } from 'node:module'

const require = createRequire(process.env.TINE_TEST_TOOLS + '/')
const { Client, StreamableHTTPClientTransport, SSEClientTransport } = require('@modelcontextprotocol/client')
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio')

const [kind, era, tool, args, ...target] = process.argv.slice(2)
const transport = {
  streamable: () => new StreamableHTTPClientTransport(new URL(target[0])),
  sse: () => new SSEClientTransport(new URL(target[0])),
  stdio: () => new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }),
}[kind]()

const client = new Client({ name: 'e2e-ts2', version: '1.0.0' }, { versionNegotiation: { mode: era } })
await client.connect(transport)
const { tools } = await client.listTools()
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) })
console.log(JSON.stringify({
  server: client.getServerVersion()?.name,
  protocol: client.getNegotiatedProtocolVersion(),
  tools: tools.map((t) => t.name),
  text: result.content.map((c) => c.text ?? '').join(''),
  isError: result.isError ?? false,
}))
await client.close()
