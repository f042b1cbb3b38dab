// The official TypeScript SDKs as a client that knows a URL and logs in by
// itself. Where a browser would open, the redirect is followed here.
// usage: oauth.mjs 1|2 streamable|sse legacy|auto TOOL ARGUMENTS URL [CLIENT_ID]
import { createRequire } from 'node:module'

const require = createRequire(process.env.TINE_TEST_TOOLS + '/')
const [major, kind, era, tool, args, url, clientID] = process.argv.slice(2)
const sdk = major === '1'
  ? {
      ...require('@modelcontextprotocol/sdk/client/index.js'),
      ...require('@modelcontextprotocol/sdk/client/streamableHttp.js'),
      ...require('@modelcontextprotocol/sdk/client/sse.js'),
      ...require('@modelcontextprotocol/sdk/client/auth.js'),
    }
  : require('@modelcontextprotocol/client')

const redirect = 'http://127.0.0.1:1/callback'
const kept = { client: clientID && { client_id: clientID } }
let visits = 0
let answer
const authProvider = {
  redirectUrl: redirect,
  clientMetadata: {
    client_name: 'e2e', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'], token_endpoint_auth_method: 'none',
  },
  state: () => 'state-of-e2e',
  clientInformation: () => kept.client,
  saveClientInformation: (c) => { kept.client = c },
  tokens: () => kept.tokens,
  saveTokens: (t) => { kept.tokens = t },
  saveCodeVerifier: (v) => { kept.verifier = v },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: async (to) => {
    visits++
    const resp = await fetch(to, { redirect: 'manual' })
    answer = new URL(resp.headers.get('location')).searchParams
    if (!answer.get('code') || answer.get('state') !== 'state-of-e2e') throw new Error('the issuer says ' + answer)
  },
}
const make = () => kind === 'sse'
  ? new sdk.SSEClientTransport(new URL(url), { authProvider })
  : new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider })
const newClient = () => new sdk.Client({ name: 'e2e', version: '1.0.0' }, major === '1' ? {} : { versionNegotiation: { mode: era } })

let client = newClient()
let transport = make()
try {
  await client.connect(transport)
  throw new Error('it was let in without a login')
} catch (err) {
  if (!(err instanceof sdk.UnauthorizedError) && !(err?.cause instanceof sdk.UnauthorizedError)) throw err
}
await (major === '1' ? transport.finishAuth(answer.get('code')) : transport.finishAuth(answer))
client = newClient()
transport = make()
await client.connect(transport)
const { tools } = await client.listTools()
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) })
console.log(JSON.stringify({
  tools: tools.map((t) => t.name),
  text: result.content.map((c) => c.text ?? '').join(''),
  isError: result.isError ?? false,
  visits,
  client: kept.client.client_id,
  token: kept.tokens.access_token,
}))
await client.close()
process.exit(0)
