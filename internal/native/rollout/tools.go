package rollout

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
)

// A tool is one of the server's, and what it does.
type tool struct {
	*mcp.Tool
	run func(ctx context.Context, s Sessions, caller string, raw json.RawMessage) (any, error)
}

type box struct {
	list   []*mcp.Tool
	byName map[string]*tool
}

// does reads a tool's arguments before it is run.
func does[In, Out any](run func(ctx context.Context, s Sessions, caller string, in *In) (Out, error)) func(context.Context, Sessions, string, json.RawMessage) (any, error) {
	return func(ctx context.Context, s Sessions, caller string, raw json.RawMessage) (any, error) {
		in := new(In)
		if err := read(raw, in); err != nil {
			return nil, err
		}
		return run(ctx, s, caller, in)
	}
}

type openArgs struct {
	From    string            `json:"from"`
	Labels  map[string]string `json:"labels"`
	TTL     string            `json:"ttl"`
	Idle    string            `json:"idle"`
	Servers []string          `json:"servers"`
	Eager   bool              `json:"eager"`
}

func open(ctx context.Context, s Sessions, caller string, in *openArgs) (api.OpenedSession, error) {
	return s.Open(ctx, caller, "", api.NewSession{From: in.From, Labels: in.Labels, TTL: in.TTL, Idle: in.Idle, Servers: in.Servers, Eager: in.Eager})
}

type forkArgs struct {
	Session string            `json:"session_id"`
	Count   *int              `json:"count"`
	Labels  map[string]string `json:"labels"`
	TTL     string            `json:"ttl"`
	Key     string            `json:"idempotency_key"`
}

func fork(ctx context.Context, s Sessions, caller string, in *forkArgs) (api.Forks, error) {
	count := 1
	if in.Count != nil {
		if count = *in.Count; count == 0 { // which is one, where it is left out
			return api.Forks{}, invalid("count must be at least 1")
		}
	}
	id, err := s.Which(ctx, caller, in.Session)
	if err != nil {
		return api.Forks{}, err
	}
	return s.Fork(ctx, caller, id, in.Key, api.ForkRequest{Count: count, Labels: in.Labels, TTL: in.TTL})
}

type snapshotArgs struct {
	Session string            `json:"session_id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
}

func snapshot(ctx context.Context, s Sessions, caller string, in *snapshotArgs) (api.Snapshot, error) {
	id, err := s.Which(ctx, caller, in.Session)
	if err != nil {
		return api.Snapshot{}, err
	}
	return s.Snapshot(ctx, caller, id, api.SnapshotRequest{Name: in.Name, Labels: in.Labels})
}

type rewindArgs struct {
	Session  string `json:"session_id"`
	Snapshot string `json:"snapshot"`
}

func rewind(ctx context.Context, s Sessions, caller string, in *rewindArgs) (api.Session, error) {
	id, err := s.Which(ctx, caller, in.Session)
	if err != nil {
		return api.Session{}, err
	}
	return s.Rewind(ctx, caller, id, api.RewindRequest{Snapshot: in.Snapshot})
}

type closeArgs struct {
	Session string `json:"session_id"`
}

// closed answers close_session.
type closed struct {
	Session string `json:"session_id"`
	Closed  bool   `json:"closed"`
}

// closeSession wants a name: a world should not end because an argument was left out.
func closeSession(ctx context.Context, s Sessions, caller string, in *closeArgs) (closed, error) {
	if in.Session == "" {
		return closed{}, invalid("session_id must name the session to close")
	}
	return closed{in.Session, true}, s.Close(ctx, caller, in.Session)
}

type listArgs struct {
	Parent string            `json:"parent"`
	Labels map[string]string `json:"labels"`
	Limit  int               `json:"limit"`
	After  string            `json:"after"`
}

func list(ctx context.Context, s Sessions, caller string, in *listArgs) (api.SessionList, error) {
	return s.List(ctx, caller, in.Parent, in.Labels, in.Limit, in.After)
}

func hints(readOnly, destructive, idempotent bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: readOnly, DestructiveHint: &destructive, IdempotentHint: idempotent, OpenWorldHint: new(bool)}
}

// catalog makes the list of tools once; all servers share it.
var catalog = sync.OnceValue(func() *box {
	adds, calls := hints(false, false, false), hints(false, true, false)
	calls.OpenWorldHint = new(true) // whatever the backend does
	b := &box{byName: map[string]*tool{}}
	for _, d := range []struct {
		name, title, description string
		hints                    *mcp.ToolAnnotations
		input, output            string
		run                      func(context.Context, Sessions, string, json.RawMessage) (any, error)
	}{
		{"open_session", "Open Session",
			"Opens a session: a world of its own, new or from a snapshot. Answers with its id, the URL of its MCP endpoint, and a token that is good for this session alone and is shown only now.",
			adds, openInput, openedOutput, does(open)},
		{"fork_session", "Fork Session",
			"Forks a session at this moment: count new sessions begin with all that it holds, and are independent of each other. All of them are made, or none. Running calls in it are waited for. Answers with their ids, URLs and tokens.",
			adds, forkInput, forksOutput, does(fork)},
		{"snapshot_session", "Snapshot Session",
			"Freezes a session as it is now, to rewind it to, or with a name to open others from.",
			adds, snapshotInput, snapshotOutput, does(snapshot)},
		{"rewind_session", "Rewind Session",
			"Brings a session back to one of its snapshots. What came after is gone.",
			hints(false, true, true), rewindInput, sessionOutput, does(rewind)},
		{"close_session", "Close Session",
			"Closes a session for good, with all that it holds. Its snapshots stay. Closing it twice is fine.",
			hints(false, true, true), closeInput, closedOutput, does(closeSession)},
		{"list_sessions", "List Sessions",
			"Lists open sessions, the newest first, a page at a time: pass next on as after.",
			hints(true, false, true), listInput, listOutput, does(list)},

		{"initialize_session", "Initialize Session",
			"Opens a session with instances of the backends that are named, each with a state of its own, and starts them: all of them, or none. Answers with the session's id, a token that is good for it alone and is shown only now, and its instances. Later calls of this connection mean this session where they name none.",
			adds, initInput, initOutput, does(initialize)},
		{"call_backend_tool", "Call Backend Tool",
			"Calls a tool of a backend's instance in a session. Answers with the tool's own result.",
			calls, callInput, resultOutput, does(callTool)},
		{"list_backend_tools", "List Backend Tools",
			"Lists the tools of a backend's instance in a session.",
			hints(true, false, true), toolsInput, toolsOutput, does(listTools)},
		{"cleanup_session", "Cleanup Session",
			"Closes a session for good, with all that it holds. What it shares with others stays. Closing it twice is fine.",
			hints(false, true, true), cleanupInput, cleanupOutput, does(cleanup)},
		{"ping", "Ping",
			"Answers, with the id of the session that is meant.",
			hints(true, false, true), pingInput, pingOutput, does(ping)},
	} {
		t := &tool{&mcp.Tool{
			Name: d.name, Title: d.title, Description: d.description, Annotations: d.hints,
			InputSchema: json.RawMessage(d.input), OutputSchema: json.RawMessage(d.output),
		}, d.run}
		b.list = append(b.list, t.Tool)
		b.byName[d.name] = t
	}
	return b
})
