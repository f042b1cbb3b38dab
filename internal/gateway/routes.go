package gateway

import (
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
)

const (
	get   = http.MethodGet
	post  = http.MethodPost
	put   = http.MethodPut
	patch = http.MethodPatch
	del   = http.MethodDelete
)

// controlRoutes is the control API.
func controlRoutes() []action {
	user, operator := api.RoleUser, api.RoleOperator
	return []action{
		{method: get, pattern: "/openapi.json", name: "openAPI", role: user, bound: true, right: access.Freely,
			summary: "This document", operation: op((*Gateway).openAPI)},
		{method: get, pattern: "/status", name: "status", role: user,
			summary: "What the gateway is and how it does", operation: op((*Gateway).status)},
		{method: post, pattern: "/reload", name: "reload", role: operator,
			summary: "Read the config again; the answer comes when it holds", operation: op((*Gateway).reloadConfig)},

		{method: get, pattern: "/servers", name: "listServers", role: user, bound: true, right: access.Freely,
			summary: "The configured servers", operation: op((*Gateway).servers)},
		{method: get, pattern: "/servers/{server}", name: "getServer", role: user,
			summary: "One server, with its policy", operation: op((*Gateway).server)},
		{method: patch, pattern: "/servers/{server}", name: "patchServer", role: operator,
			summary: "Change a server at run time", operation: op((*Gateway).patchServer)},
		{method: get, pattern: "/servers/{server}/logs", name: "serverLogs", role: operator,
			summary: "The end of what a server's instances wrote to standard error", operation: op((*Gateway).logs)},
		{method: post, pattern: "/servers/{server}/login", name: "beginLogin", role: user,
			summary: "Begin a person's login at a server that wants one", operation: op((*Gateway).beginLogin)},
		{method: post, pattern: "/servers/{server}/login/{flow}", name: "finishLogin", role: user,
			summary: "Finish a login with what came to the redirect", operation: op((*Gateway).finishLogin)},
		{method: del, pattern: "/servers/{server}/login", name: "logout", role: user,
			summary: "Forget the login at a server", operation: op((*Gateway).logout)},

		{method: get, pattern: "/tools", name: "listTools", role: user, bound: true, right: access.Freely,
			summary: "The tools of a session, as in the merged view", operation: op((*Gateway).tools)},
		{method: post, pattern: "/call", name: "callTool", role: user, bound: true, right: access.Freely,
			summary: "Call one tool in a session", operation: op((*Gateway).call)},

		{method: post, pattern: "/batch", name: "batch", role: user, bound: true, right: access.Freely, keyed: true,
			summary: "Open, fork, call and close in many sessions; a line for each item as it ends", operation: op((*Gateway).batch)},

		{method: get, pattern: "/events", name: "events", role: user, bound: true,
			summary: "What happens, as it happens: sessions, calls, runs and the health of servers; it goes on from the id of any event", operation: op((*Gateway).events)},
		{method: get, pattern: "/calls", name: "listCalls", role: user,
			summary: "The journal, newest first, or with follow as it grows", operation: op((*Gateway).calls)},
		{method: get, pattern: "/calls/{call}", name: "getCall", role: user,
			summary: "One call of the journal with its result", operation: op((*Gateway).oneCall)},
		{method: post, pattern: "/calls/{call}/replay", name: "replayCall", role: user,
			summary: "Make a call again with the arguments it had", operation: op((*Gateway).replay)},

		{method: get, pattern: "/tokens", name: "listTokens", role: operator,
			summary: "The bearer tokens, never the tokens themselves", operation: op((*Gateway).listTokens)},
		{method: post, pattern: "/tokens", name: "newToken", role: operator,
			summary: "Make a bearer token; it is shown this once", operation: op((*Gateway).newToken)},
		{method: post, pattern: "/tokens/{token}/rotate", name: "rotateToken", role: operator,
			summary: "Give a principal another token in the place of the one it has; it is shown this once", operation: op((*Gateway).rotateToken)},
		{method: post, pattern: "/tokens/{token}/confirm", name: "confirmToken", role: operator,
			summary: "Let a token in that came back with a backup", operation: op((*Gateway).confirmToken)},
		{method: post, pattern: "/tokens/confirm", name: "confirmLost", role: operator,
			summary: "Let callers on the machine in again after a restore that found no tokens", operation: op((*Gateway).confirmLost)},
		{method: del, pattern: "/tokens/{token}", name: "revokeToken", role: operator,
			summary: "Make a token worthless", operation: op((*Gateway).revokeToken)},

		{method: get, pattern: "/sessions", name: "listSessions", role: user,
			summary: "Sessions, newest first: the caller's own, or all with the role of a viewer", operation: op((*Gateway).listSessions)},
		{method: post, pattern: "/sessions", name: "openSession", role: user, empty: true, keyed: true,
			summary: "Open a session; its token is shown this once", operation: op((*Gateway).openSession)},
		{method: get, pattern: "/sessions/{session}", name: "getSession", role: user, bound: true, right: access.Freely,
			summary: "One session, open or closed, with its members", operation: op((*Gateway).getSession)},
		{method: patch, pattern: "/sessions/{session}", name: "patchSession", role: user,
			summary: "Change what a session is called and how long it lasts", operation: op((*Gateway).patchSession)},
		{method: del, pattern: "/sessions/{session}", name: "closeSession", role: user, bound: true, right: api.AllowClose,
			summary: "Close a session and what it owns; twice is fine", operation: op((*Gateway).closeSession)},
		{method: post, pattern: "/sessions/{session}/token", name: "newSessionToken", role: user, keyed: true,
			summary: "Give a session another token in the place of the one it has; it is shown this once", operation: op((*Gateway).newSessionToken)},
		{method: get, pattern: "/sessions/{session}/tokens", name: "listSessionTokens", role: user,
			summary: "The further tokens of a session, oldest first, never the tokens themselves", operation: op((*Gateway).listSessionTokens)},
		{method: post, pattern: "/sessions/{session}/tokens", name: "mintSessionToken", role: user, empty: true, keyed: true,
			summary: "Make a further token of a session, for a run, some of its servers and a time; it is shown this once", operation: op((*Gateway).mintSessionToken)},
		{method: del, pattern: "/sessions/{session}/tokens", name: "revokeSessionTokens", role: user,
			summary: "Make all further tokens of a run worthless; of a session that is closed there are none", operation: op((*Gateway).revokeSessionTokens)},
		{method: del, pattern: "/sessions/{session}/tokens/{token}", name: "revokeSessionToken", role: user,
			summary: "Make one further token of a session worthless", operation: op((*Gateway).revokeSessionToken)},
		{method: get, pattern: "/sessions/{session}/forks", name: "listForks", role: user, bound: true, right: api.AllowFork,
			summary: "The sessions that were forked from one", operation: op((*Gateway).listForks)},
		{method: post, pattern: "/sessions/{session}/forks", name: "forkSession", role: user, bound: true, right: api.AllowFork, empty: true, keyed: true,
			summary: "Fork a session: sessions of their own that begin with its state, all or none", operation: op((*Gateway).forkSession)},
		{method: get, pattern: "/sessions/{session}/snapshots", name: "listSessionSnapshots", role: user, bound: true, right: api.AllowSnapshot,
			summary: "The snapshots of one session, newest first", operation: op((*Gateway).listSessionSnapshots)},
		{method: post, pattern: "/sessions/{session}/snapshots", name: "makeSnapshot", role: user, bound: true, right: api.AllowSnapshot, empty: true, keyed: true,
			summary: "Freeze a session; with a name the snapshot is a template", operation: op((*Gateway).makeSnapshot)},
		{method: post, pattern: "/sessions/{session}/rewind", name: "rewindSession", role: user, bound: true, right: api.AllowRewind, empty: true,
			summary: "Bring a session back to a snapshot", operation: op((*Gateway).rewindSession)},
		{method: get, pattern: "/sessions/{session}/calls", name: "listSessionCalls", role: user, bound: true, right: access.Freely,
			summary: "The calls of one session, newest first, or with follow as they are made", operation: op((*Gateway).sessionCalls)},
		{method: get, pattern: "/sessions/{session}/trajectory", name: "trajectory", role: user, bound: true, right: api.AllowTrajectory, heavy: true,
			summary: "The story of a session from its first ancestor on, nothing cut or masked", operation: op((*Gateway).trajectory)},
		{method: get, pattern: "/trajectories", name: "trajectories", role: user, heavy: true,
			summary: "The trajectories of many sessions in one stream, oldest session first", operation: op((*Gateway).trajectories)},
		{method: post, pattern: "/sessions/{session}/annotations", name: "annotate", role: user, keyed: true,
			summary: "Note a reward, a turn's text and tokens, or any JSON of a session or of one of its calls, in its trajectory", operation: op((*Gateway).annotate)},
		{method: get, pattern: "/sessions/{session}/tree", name: "sessionTree", role: user, heavy: true,
			summary: "The family of a session from its first ancestor on", operation: op((*Gateway).sessionTree)},

		{method: get, pattern: "/leases", name: "listLeases", role: user,
			summary: "Leases, oldest first: the caller's own, or all with the role of a viewer", operation: op((*Gateway).listLeases)},
		{method: post, pattern: "/leases", name: "newLease", role: user, empty: true, keyed: true,
			summary: "Make a lease: sessions that are opened under it are closed when it runs out", operation: op((*Gateway).newLease)},
		{method: put, pattern: "/leases/{lease}", name: "renewLease", role: user,
			summary: "Give a lease its whole time again", operation: op((*Gateway).renewLease)},
		{method: del, pattern: "/leases/{lease}", name: "endLease", role: user,
			summary: "End a lease and close its sessions at once", operation: op((*Gateway).endLease)},

		{method: post, pattern: "/sessions/{session}/exec", name: "execCommand", role: user,
			summary: "Run a command beside a server of a session; what it writes comes as it is written", operation: op((*Gateway).exec)},
		{method: get, pattern: "/sessions/{session}/files/{place}/{path...}", name: "getFiles", role: user, heavy: true,
			summary: "Copy a file, or a folder as a tar, out of the workspace or a server of a session, or list it", operation: op((*Gateway).getFiles)},
		{method: get, pattern: "/sessions/{session}/diff", name: "diffSession", role: user, heavy: true,
			summary: "What is another in a session than in a snapshot: files of its workspace, tables and graphs of built-in servers", operation: op((*Gateway).diffSession)},
		{method: get, pattern: "/sessions/{session}/state/{server}", name: "readState", role: user, heavy: true,
			summary: "What a built-in server of a session remembers: rows of tables, or a graph", operation: op((*Gateway).readState)},
		{method: put, pattern: "/sessions/{session}/files/{place}/{path...}", name: "putFiles", role: user, upload: true,
			summary: "Copy a file, or with the type application/x-tar a folder, into the workspace or a server of a session", operation: op((*Gateway).putFiles)},

		{method: get, pattern: "/agents", name: "listAgents", role: user, bound: true, right: access.Freely,
			summary: "The agents that the caller may start", operation: op((*Gateway).listAgents)},
		{method: get, pattern: "/agents/{agent}", name: "getAgent", role: user, bound: true, right: access.Freely,
			summary: "One agent, with the schemas of its parameters and its result", operation: op((*Gateway).getAgent)},
		{method: get, pattern: "/runs", name: "listRuns", role: user, bound: true, right: access.Freely,
			summary: "Runs of agents, newest first: the caller's own, or all with the role of a viewer", operation: op((*Gateway).listRuns)},
		{method: post, pattern: "/runs", name: "startRun", role: user, bound: true, right: access.Freely, keyed: true,
			summary: "Start an agent, or resume the session of one; the run is accepted and not yet done", operation: op((*Gateway).startRun)},
		{method: get, pattern: "/runs/{run}", name: "getRun", role: user, bound: true, right: access.Freely,
			summary: "One run, or with wait when it has ended", operation: op((*Gateway).getRun)},
		{method: post, pattern: "/runs/{run}/stop", name: "stopRun", role: user, bound: true, right: access.Freely, empty: true,
			summary: "Ask a run to end, with children also those below it; one that has ended stays as it is", operation: op((*Gateway).stopRun)},
		{method: get, pattern: "/runs/{run}/tree", name: "runTree", role: user, bound: true, right: access.Freely, heavy: true,
			summary: "A run with the runs that its agent has started", operation: op((*Gateway).runTree)},
		{method: get, pattern: "/agent-sessions", name: "listAgentSessions", role: user, bound: true, right: access.Freely,
			summary: "Sessions of agents, newest first", operation: op((*Gateway).listAgentSessions)},
		{method: get, pattern: "/agent-sessions/{session}", name: "getAgentSession", role: user, bound: true, right: access.Freely,
			summary: "The session of an agent, with the state of its work", operation: op((*Gateway).getAgentSession)},
		{method: del, pattern: "/agent-sessions/{session}", name: "closeAgentSession", role: user, bound: true, right: access.Freely,
			summary: "Stop the work of an agent and of those that it has started, and close their sessions", operation: op((*Gateway).closeAgentSession)},

		{method: get, pattern: "/snapshots", name: "listSnapshots", role: user,
			summary: "Snapshots, newest first: the caller's own, or all with the role of a viewer", operation: op((*Gateway).listSnapshots)},
		{method: post, pattern: "/snapshots/import", name: "importSnapshot", role: user, upload: true, keyed: true,
			summary: "Make a snapshot of an exported file", operation: op((*Gateway).importSnapshot)},
		{method: get, pattern: "/snapshots/{snapshot}", name: "getSnapshot", role: user,
			summary: "One snapshot, by id or name", operation: op((*Gateway).getSnapshot)},
		{method: del, pattern: "/snapshots/{snapshot}", name: "deleteSnapshot", role: user,
			summary: "Delete a snapshot, by id or name", operation: op((*Gateway).deleteSnapshot)},
		{method: get, pattern: "/snapshots/{snapshot}/export", name: "exportSnapshot", role: user, heavy: true,
			summary: "A snapshot as one file, which may hold secrets", operation: op((*Gateway).exportSnapshot)},
	}
}
