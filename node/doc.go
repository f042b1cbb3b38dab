// Package node has the tools of MCP servers as Go values, and serves Go
// functions as MCP tools.
//
// A [Node] is one tool: [Node.Tool] describes it, [Node.Call] calls it. Where it
// comes from makes no difference:
//
//   - [Connect] consumes a server over streamable HTTP, server-sent events or
//     standard input and output; its tools are nodes.
//   - [Func] makes a node of a Go function, with schemas from its types.
//   - [New] makes a node of a description and a function on JSON.
//   - [Node.Wrap] makes a node around another: middleware is a function from a
//     node to a node.
//
// A [Source] has nodes: a node itself, a connected [Server], or several of them
// under one roof, by [Merge]. [Handler], [Serve] and [ServeStdio] serve sources,
// and [Expose] adds them to a server of the official SDK. A server that is served
// again is served as it changes, so that a proxy is
//
//	s, err := node.Connect(ctx, node.Command("npx", "-y", "some-server"), nil)
//	...
//	node.Serve(ctx, "127.0.0.1:8080", s)
//
// Results keep the bytes that the server sent ([Result.Raw]): a node that is
// consumed and served again loses no field and no digit of a number.
//
// # Errors
//
// An error of a call is one of three kinds, to be found with [errors.Is]:
//
//   - [ErrNotSent]: the tool did not run; the call may be repeated.
//   - [ErrOutcomeUnknown]: the call was sent and no answer came.
//   - [ErrTool]: the server or the tool answered with an error.
//
// The message names the tool and the server's command or URL. A tool that fails
// usually says so in a result ([Result.Err]), for a language model to read, and
// [Node.Call] returns that result without an error; [Call] makes it an error. A
// result that [Call] can't decode is an error of no kind.
//
// # Limits
//
// A message is 64 MiB at most, in either direction; one that is longer is not sent, and an
// answer that is longer fails its call. Of a server 20,000 tools on 1,000
// pages are read. [Handler] has 10,000 sessions at most, and ends those that were
// idle for an hour.
//
// # Connections
//
// A connection that is lost is replaced by one with a new session, at the next
// call, or earlier if the server has a URL, and the list of tools is read again. A
// call is repeated on the new connection only if the server can't have seen it.
//
// Both eras of the protocol are spoken on either side: the handshake era (to
// 2025-11-25) and the stateless one (2026-07-28). What the SDK has is not repeated
// here: transports, OAuth, progress, elicitation, prompts and resources are
// reached by [Options], [Server.Session] and [Request].
package node
