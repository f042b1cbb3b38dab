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
	return s.Open(ctx, caller, api.NewSession{From: in.From, Labels: in.Labels, TTL: in.TTL, Idle: in.Idle, Servers: in.Servers, Eager: in.Eager})
}

type forkArgs struct {
	Session string            `json:"session_id"`
	Count   *int              `json:"count"`
	Labels  map[string]string `json:"labels"`
	TTL     string            `json:"ttl"`
}

func fork(ctx context.Context, s Sessions, caller string, in *forkArgs) (api.Forks, error) {
	count := 1
	if in.Count != nil {
		if count = *in.Count; count == 0 { // which is one, where it is left out
			return api.Forks{}, invalid("count must be at least 1")
		}
	}
	return s.Fork(ctx, caller, in.Session, api.ForkRequest{Count: count, Labels: in.Labels, TTL: in.TTL})
}

type snapshotArgs struct {
	Session string            `json:"session_id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
}

func snapshot(ctx context.Context, s Sessions, caller string, in *snapshotArgs) (api.Snapshot, error) {
	return s.Snapshot(ctx, caller, in.Session, api.SnapshotRequest{Name: in.Name, Labels: in.Labels})
}

type rewindArgs struct {
	Session  string `json:"session_id"`
	Snapshot string `json:"snapshot"`
}

func rewind(ctx context.Context, s Sessions, caller string, in *rewindArgs) (api.Session, error) {
	return s.Rewind(ctx, caller, in.Session, api.RewindRequest{Snapshot: in.Snapshot})
}

type closeArgs struct {
	Session string `json:"session_id"`
}

// closed answers close_session.
type closed struct {
	Session string `json:"session_id"`
	Closed  bool   `json:"closed"`
}

// closeSession wants a name: a world should not end because somebody left an
// argument out.
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
	adds := hints(false, false, false)
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
			"Forks a session at this moment: count new sessions begin with all that it holds, and go their own ways. All of them are made, or none. Calls under way in it are waited for. Answers with their ids, URLs and tokens.",
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
