// The official TypeScript SDK 1.x as a client.
// usage: ts1.mjs streamable|sse|stdio ERA TOOL ARGUMENTS TARGET...
import { createRequire } from 'node:module'

const require = createRequire(process.env.TINE_TEST_TOOLS + '/')
const { Client } = require('@modelcontextprotocol/sdk/client/index.js')
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js')
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js')
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js')

const [kind, , tool, args, ...target] = process.argv.slice(2)
const transport = {
  streamable: () => new StreamableHTTPClientTransport(new URL(target[0])),
  sse: () => new SSEClientTransport(new URL(target[0])),
  stdio: () => new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }),
}[kind]()

const client = new Client({ name: 'e2e-ts1', version: '1.0.0' })
await client.connect(transport)
const { tools } = await client.listTools()
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) })
console.log(JSON.stringify({
  server: client.getServerVersion()?.name,
  protocol: transport.protocolVersion,
  tools: tools.map((t) => t.name),
  text: result.content.map((c) => c.text ?? '').join(''),
  isError: result.isError ?? false,
}))
await client.close()
