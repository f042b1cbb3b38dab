package remote

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

const (
	ours   = "orchestrator-secret-1" // what the orchestrator is shown
	theirs = "instance-secret-2"     // what the instances are shown
)

// rig is a driver and an orchestrator that wants to be shown something, as do its
// instances.
type rig struct {
	*orchestra
	home string
	d    *Driver
	log  *testkit.Log
	n    int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{orchestra: newOrchestra(t), home: t.TempDir(), log: new(testkit.Log)}
	r.set(func() { r.token = theirs })
	r.d = r.driver(t)
	t.Cleanup(func() {
		if text := r.log.String(); strings.Contains(text, ours) || strings.Contains(text, theirs) {
			t.Errorf("a secret was logged: %s", text)
		}
	})
	return r
}

func (r *rig) ledger() string { return filepath.Join(r.home, "ledger") }

// driver is one more gateway's.
func (r *rig) driver(t *testing.T) *Driver {
	d := New(Options{Dir: r.ledger(), Log: r.log.Logger()})
	d.pause = 10 * time.Millisecond
	t.Cleanup(d.Close)
	return d
}

// spec is that of another instance, with some of it changed.
func (r *rig) spec(change ...func(*driver.Spec)) driver.Spec {
	r.n++
	s := driver.Spec{
		Server: "box", Session: "ses_123456789012", Dir: filepath.Join(r.home, "instances", fmt.Sprint(r.n)),
		Header:  http.Header{"Authorization": {"Bearer " + ours}},
		Options: &Config{URL: r.URL, Resource: "box", Health: "/health"},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// through has calls go through the orchestrator.
func through(s *driver.Spec) { options(*s).Call = "/instances/{remote_instance_id}/call" }

// tools has the orchestrator be an MCP server.
func tools(s *driver.Spec) {
	options(*s).Type = TypeMCP
	options(*s).URL += "/orchestrator"
}

func (r *rig) start(t *testing.T, d *Driver, spec driver.Spec) driver.Instance {
	t.Helper()
	inst, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { inst.Stop(context.Background()) })
	return inst
}

func stop(t *testing.T, inst driver.Instance) {
	t.Helper()
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

func dial(t *testing.T, inst driver.Instance) driver.Link {
	t.Helper()
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return link
}

func echo(t *testing.T, inst driver.Instance, text string) {
	t.Helper()
	link := dial(t, inst)
	if link.Stream != nil {
		defer link.Stream.Close()
	}
	got, err := drivertest.NewPeer(inst, link).TryCall(t.Context(), "echo", map[string]any{"text": text})
	if err != nil || got != text {
		t.Errorf("echo said %q, %v", got, err)
	}
}

// clears waits until neither side has anything of the other.
func (r *rig) clears(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "an empty ledger", func() bool {
		files, err := os.ReadDir(r.ledger())
		return os.IsNotExist(err) || err == nil && len(files) == 0
	})
	nothingLeft(t, r.orchestra, r.ledger())
}

// says looks that an error has some words in it and no secret.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	if strings.Contains(err.Error(), ours) || strings.Contains(err.Error(), theirs) {
		t.Errorf("a secret is in an error: %v", err)
	}
}

// times does something to the first n requests that match.
func times(n int, match string, do func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request, []byte) bool {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if !strings.HasPrefix(r.Method+" "+r.URL.Path, match) {
			return false
		}
		mu.Lock()
		n--
		left := n
		mu.Unlock()
		if left < 0 {
			return false
		}
		do(w, r)
		return true
	}
}

// refuse answers with a status.
func refuse(status int, header ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, "the disk\x1b[31m is\n full; you showed me %s", r.Header.Get("Authorization"))
	}
}

// reset breaks the connection.
func reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
