package record_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a Caller that answers what it is told.
type said struct {
	result, err string
	fails       *api.Error
	got         *upstream.Request
}

func (s *said) Call(_ context.Context, req *upstream.Request) (*upstream.Result, error) {
	s.got = req
	switch {
	case s.fails != nil:
		return nil, s.fails
	case s.err != "":
		return &upstream.Result{Error: []byte(s.err)}, nil
	}
	return &upstream.Result{Result: []byte(s.result)}, nil
}

func openJournal(t *testing.T) *journal.Journal {
	t.Helper()
	dir := t.TempDir()
	db := sqlitetest.Open(t, dir)
	j, err := journal.Open(t.Context(), journal.Options{Dir: filepath.Join(dir, "journal"), Index: db, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = j.Close()
		_ = db.Close()
	})
	return j
}

func request(t *testing.T, method, params string) *upstream.Request {
	t.Helper()
	p, err := wire.ScanParams(method, []byte(params))
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Request{Method: method, Params: p, Name: p.Name(), Who: "ada", Session: "ses_1", Client: &upstream.Client{}}
}

const call = `{"name":"add","arguments":{"n":12345678901234567890}}`

// TestOutcomes holds how each way a call can end is counted and written down.
func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		answer   said
		outcome  string
		error    string
		failures int64
	}{
		{"answered", said{result: `{"content":[]}`}, "ok", "", 0},
		{"isError in a text is none", said{result: `{"content":[{"type":"text","text":"\"isError\":true"}]}`}, "ok", "", 0},
		{"the tool says no", said{result: `{"content":[{"type":"text","text":"no such file"}],"isError":true}`}, "tool", "no such file", 0},
		{"isError without a text", said{result: `{"isError":true}`}, "tool", "", 0},
		{"a protocol error", said{err: `{"code":-32603,"message":"bad n"}`}, "tool", "bad n", 0},
		{"the caller's mistake", said{err: `{"code":-32602,"message":"bad n"}`}, "invalid", "bad n", 0},
		{"a result of ours", said{result: `{"_meta":{"tine/error":{"kind":"infrastructure","message":"no engine"}},"content":[{"type":"text","text":"no engine"}],"isError":true}`}, "infrastructure", "no engine", 1},
		{"a kind that is none", said{result: `{"_meta":{"tine/error":{"kind":"ok"}},"content":[{"type":"text","text":"hm"}],"isError":true}`}, "tool", "hm", 0},
		{"a kind without an error", said{result: `{"_meta":{"tine/error":{"kind":"lost"}},"content":[]}`}, "ok", "", 0},
		{"a protocol error of ours", said{err: `{"code":-31000,"message":"gone","data":{"kind":"lost"}}`}, "lost", "gone", 1},
		{"not reached", said{fails: &api.Error{Kind: api.KindInfrastructure, Message: "gone"}}, "infrastructure", "gone", 1},
		{"refused", said{fails: &api.Error{Kind: api.KindRefused, Message: "too many"}}, "refused", "too many", 0},
		{"the gateway is refused", said{fails: &api.Error{Kind: api.KindRefused, Message: "no such client", Final: true}}, "refused", "no such client", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := openJournal(t)
			s := record.NewServer("calc", "full", record.Options{Journal: j, Redact: telemetry.NewRedactor()})
			_, err := s.Wrap("calc", &tt.answer).Call(t.Context(), request(t, wire.MethodCallTool, call))
			if (err != nil) != (tt.answer.fails != nil) {
				t.Errorf("error %v", err)
			}
			f := s.Figures()
			if f.Calls != 1 || f.Failures != tt.failures || f.Latency == nil || f.Latency.Count != 1 {
				t.Errorf("figures %+v", f)
			}
			if (f.Last != nil) != (tt.failures > 0) || f.Last != nil && f.Last.Message != tt.error {
				t.Errorf("last error %+v", f.Last)
			}
			list, err := j.List(t.Context(), store.CallFilter{})
			if err != nil || len(list) != 1 {
				t.Fatalf("journal: %v %v", list, err)
			}
			e, _, err := j.Get(t.Context(), list[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			if e.Outcome != tt.outcome || e.Error != tt.error || e.Principal != "ada" || e.Session != "ses_1" || e.Name != "add" || string(e.Params) != call {
				t.Errorf("entry %+v with params %s", e, e.Params)
			}
			if want := tt.answer.result + tt.answer.err; want != "" && string(e.Result) != want {
				t.Errorf("result %s, want %s", e.Result, want)
			}
		})
	}
}

// TestCancelled holds that a call whose client left is neither refused nor a failure of
// its server, unless it failed by itself.
func TestCancelled(t *testing.T) {
	for _, tt := range []struct {
		kind  api.Kind
		cause error
		want  string
	}{
		{api.KindRefused, upstream.Cancelled(), "cancelled"},
		{api.KindRefused, nil, "cancelled"},
		{api.KindRefused, context.DeadlineExceeded, "refused"},
		{api.KindLost, upstream.Cancelled(), "lost"},
	} {
		j := openJournal(t)
		s := record.NewServer("calc", "full", record.Options{Journal: j, Redact: telemetry.NewRedactor()})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		c := s.Wrap("calc", &said{fails: &api.Error{Kind: tt.kind, Message: "the call was cancelled"}})
		if _, err := c.Call(ctx, request(t, wire.MethodCallTool, call)); err == nil {
			t.Error("no error")
		}
		list, err := j.List(t.Context(), store.CallFilter{Failed: true})
		if err != nil || len(list) != 1 || list[0].Outcome != tt.want {
			t.Errorf("%s by %v: %+v, %v", tt.kind, tt.cause, list, err)
		}
		if f := s.Figures(); (f.Last == nil) != (tt.want != "lost") {
			t.Errorf("%s by %v: the server's last error is %+v", tt.kind, tt.cause, f.Last)
		}
	}
}

// TestModes holds how much is written down, and that a change counts at once.
func TestModes(t *testing.T) {
	j := openJournal(t)
	s := record.NewServer("calc", "off", record.Options{Journal: j, Redact: telemetry.NewRedactor()})
	c := s.Wrap("calc", &said{result: `{"content":[{"type":"text","text":"secret"}],"isError":true}`})
	count := func() []journal.Entry {
		list, err := j.List(t.Context(), store.CallFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	once := func(method, params string) {
		if _, err := c.Call(t.Context(), request(t, method, params)); err != nil {
			t.Fatal(err)
		}
	}
	once(wire.MethodCallTool, call)
	if got := count(); len(got) != 0 {
		t.Errorf("off: %v", got)
	}
	s.SetMode("meta")
	once(wire.MethodCallTool, call)
	got := count()
	if len(got) != 1 || got[0].Params != nil || got[0].Error != "" || got[0].Outcome != "tool" {
		t.Errorf("meta: %+v", got)
	}
	s.SetMode("full")
	once(wire.MethodListTools, `{}`)
	once(wire.MethodReadResource, `{"uri":"a://b"}`)
	if got := count(); len(got) != 2 || got[0].Method != wire.MethodReadResource || got[0].Name != "a://b" {
		t.Errorf("full: %+v", got)
	}
}

// TestLastErrorIsMasked holds that what the figures show went through the
// Redactor.
func TestLastErrorIsMasked(t *testing.T) {
	r := telemetry.NewRedactor()
	r.Set([]string{"hunter2hunter2"})
	s := record.NewServer("calc", "off", record.Options{Redact: r})
	fails := &said{fails: &api.Error{Kind: api.KindRefused, Message: "HTTP 403: bad key hunter2hunter2"}}
	if _, err := s.Wrap("calc", fails).Call(t.Context(), request(t, wire.MethodCallTool, call)); err == nil {
		t.Fatal("no error")
	}
	b, err := json.Marshal(s.Figures())
	if err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("figures %s %v", b, err)
	}
}
