package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// logsTo has what is logged from info on, a line each, without times.
func logsTo(buf *testkit.Log) func(*upstream.Options) {
	return func(o *upstream.Options) {
		o.Log = slog.New(slog.NewTextHandler(buf, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	}
}

// A server that can't be started is in the log once, and once when it is well again,
// however often it is called and by whomever.
func TestFailingStartsAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		var told []upstream.HealthChange
		health := &upstream.Health{Changed: func(h upstream.HealthChange) { told = append(told, h) }}
		broken := true
		var all []*rig
		for range 2 {
			r := &rig{t: t}
			o := r.options()
			logsTo(&log)(&o)
			health.Log, o.Health = o.Log, health
			o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
				if broken {
					return nil, driver.WithWords(errors.New(`server "srv": no such image`), "some words")
				}
				return r.newInstance(echoing), nil
			}}
			r.Upstream = upstream.New(o)
			t.Cleanup(r.Close)
			all = append(all, r)
		}
		call := func() {
			for range 5 {
				for _, r := range all {
					newClient("c").calls(t, r, "x")
				}
				time.Sleep(time.Minute)
			}
		}
		call()
		if got, want := log.String(), "level=WARN msg=\"server fails\" server=srv session=\"\" err=\"no such image\" words=\"some words\"\n"; got != want {
			t.Errorf("the log is %q, want %q", got, want)
		}
		// That it fails is news where it is started in another way.
		health.Begin("other", false)
		health.Begin("other", false)
		call()
		if got := log.String(); strings.Count(got, "server fails") != 2 {
			t.Errorf("the log is %q", got)
		}
		broken = false
		call()
		if got := log.String(); strings.Count(got, "\n") != 3 || !strings.HasSuffix(got, "level=INFO msg=\"server is well again\" server=srv\n") {
			t.Errorf("the log is %q", got)
		}
		fails := upstream.HealthChange{Server: "srv", State: api.HealthFailing, Kind: api.KindInfrastructure, Reason: "no such image"}
		if want := []upstream.HealthChange{fails, fails, {Server: "srv", State: api.HealthWell}}; !slices.Equal(told, want) {
			t.Errorf("the changes are %+v, want %+v", told, want)
		}
	})
}

// An instance that ended is in the log with what it wrote, and so is the failure of
// the next one.
func TestEndsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		r := play(t, func(i *instance) {
			if i.n > 1 && i.n < 4 {
				i.end(fmt.Errorf("server %q exited with status 2", "srv"))
				return
			}
			i.rope.legacy()
			if i.n == 1 {
				i.rope.want(wire.MethodCallTool)
				i.end(driver.WithWords(fmt.Errorf("server %q exited with status 1", "srv"), "first words"))
				return
			}
			i.rope.echo()
		}, logsTo(&log))
		for range 10 {
			newClient("c").calls(t, r, "x")
			time.Sleep(time.Minute)
		}
		want := `level=WARN msg="server ended" server=srv session="" err="server \"srv\" exited with status 1" words="first words"
level=WARN msg="server fails" server=srv session="" err="did not start: exited with status 2" words="stderr of an instance"
level=INFO msg="server is well again" server=srv
`
		if got := log.String(); got != want {
			t.Errorf("the log is\n%s", got)
		}
	})
}

// offline is a server over HTTP without a network.
type offline func(*http.Request) (*http.Response, error)

func (w offline) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// A server that is reached has no instance that ends; its calls tell.
func TestUnreachableServersAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		var away atomic.Int32 // 1 always, 2 every other time
		n := 0
		r := &rig{t: t}
		o := r.options()
		logsTo(&log)(&o)
		o.Conn.Protocol = wire.Latest
		o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
			i := r.newInstance(func(*instance) {})
			i.link = func() (driver.Link, error) {
				return driver.Link{HTTP: &driver.Endpoint{URL: "http://srv/mcp", Client: &http.Client{Transport: offline(func(q *http.Request) (*http.Response, error) {
					body, _ := io.ReadAll(q.Body)
					msg, err := wire.Scan(body)
					if err != nil {
						return nil, err
					}
					status, result := http.StatusOK, `{"content":[]}`
					if msg.Method == wire.MethodDiscover {
						result = modernHello
					} else if n++; away.Load() == 1 || away.Load() == 2 && n%2 == 0 {
						status = http.StatusBadGateway
					}
					return &http.Response{StatusCode: status, ContentLength: -1, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, msg.ID, result)))}, nil
				})}}}, nil
			}
			return i, nil
		}}
		o.Memory.Reached = true
		r.Upstream = upstream.New(o)
		t.Cleanup(r.Close)
		lines := func() int { return strings.Count(log.String(), "\n") }
		calls := func() {
			for range 20 {
				newClient("c").calls(t, r, "x")
				time.Sleep(time.Second)
			}
		}
		calls()
		if lines() != 0 {
			t.Errorf("a server that is well: %s", log.String())
		}
		away.Store(1)
		calls()
		if lines() != 1 {
			t.Errorf("a server that is away: %s", log.String())
		}
		testkit.Has(t, "the log", log.String(), `msg="server fails" server=srv`, "HTTP 502")
		away.Store(2)
		calls()
		if lines() != 1 {
			t.Errorf("a server that is away every other time: %s", log.String())
		}
		away.Store(0)
		calls()
		if lines() != 2 {
			t.Errorf("a server that is back: %s", log.String())
		}
		testkit.Has(t, "the log", log.String(), `msg="server is well again" server=srv`)
	})
}

// What instances that failed wrote is there after their end: the last of each name,
// not too many, not too much, and without secrets.
func TestLogsOfWhatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := &upstream.Health{Log: slog.New(slog.DiscardHandler), Mask: func(s string) string { return strings.ReplaceAll(s, "4711", "***") }}
		die := func(dir, text string) {
			r := play(t, func(i *instance) {
				i.logs = text
				i.end(errors.New("exited with status 1"))
			}, func(o *upstream.Options) { o.Health, o.Spec.Dir, o.Spec.Session = health, dir, "ses_1" })
			newClient("c").calls(t, r, "x")
			r.Close()
		}
		die("/i/a", "the pin is 4711")
		got := health.Ended()
		if len(got) != 1 || got[0].Instance != "a" || got[0].Session != "ses_1" || got[0].Text != "the pin is ***" || got[0].At.IsZero() {
			t.Fatalf("%+v", got)
		}
		long := strings.Repeat("x", 1<<20)
		die("/i/a", long)
		if got = health.Ended(); len(got) != 1 || len(got[0].Text) != 64<<10 {
			t.Errorf("%d with %d bytes", len(got), len(got[0].Text))
		}
		for i := range 20 {
			die(fmt.Sprintf("/i/b%d", i), fmt.Sprint("words ", i))
		}
		if got = health.Ended(); len(got) != 8 || got[0].Text != "words 12" || got[7].Text != "words 19" {
			t.Errorf("%+v", got)
		}
		die("/i/silent", "")
		if got := health.Ended(); got[7].Text != "words 19" {
			t.Errorf("%+v", got)
		}
	})
}

// What is no MCP server is told so.
func TestWhatIsNotMCP(t *testing.T) {
	line := func(i *instance, text string) { i.rope.in <- frame{err: &driver.StrayLine{Text: []byte(text)}} }
	ends := func(i *instance) { i.end(fmt.Errorf("server %q exited with status 0", "srv")) }
	mask := func(o *upstream.Options) {
		o.Conn.Mask = func(s string) string { return strings.ReplaceAll(s, "4711", "***") }
	}
	for name, tt := range map[string]struct {
		script func(*instance)
		want   string // a whole error
	}{
		"echo Hello": {func(i *instance) { line(i, "Hello"); ends(i) },
			"infrastructure: server \"srv\": did not start: exited with status 0; it wrote `Hello` to standard output, which is not MCP"},
		"it goes on": {func(i *instance) { line(i, "Listening at 8080"); i.rope.serve(func(message) {}) },
			"timeout: server \"srv\": did not start within 20s; servers.srv.connect_timeout allows more; it wrote `Listening at 8080` to standard output, which is not MCP"},
		"a secret": {func(i *instance) { line(i, "\x1b[31mpin 4711"); ends(i) },
			"infrastructure: server \"srv\": did not start: exited with status 0; it wrote `?[31mpin ***` to standard output, which is not MCP"},
		"much": {func(i *instance) { line(i, strings.Repeat("x", 1000)); ends(i) },
			"infrastructure: server \"srv\": did not start: exited with status 0; it wrote `" + strings.Repeat("x", 200) + "...` to standard output, which is not MCP"},
		"other JSON": {func(i *instance) { i.rope.say(`{"level":"info"}`); ends(i) },
			"infrastructure: server \"srv\": did not start: exited with status 0; it wrote `{\"level\":\"info\"}` to standard output, which is not MCP"},
		"without end": {func(i *instance) {
			for range 2000 {
				line(i, strings.Repeat("y", 1000))
			}
			i.rope.serve(func(message) {})
		}, "infrastructure: server \"srv\": it writes much to standard output, but no MCP message; it wrote `" + strings.Repeat("y", 200) + "...` to standard output, which is not MCP"},
		"a line without end": {func(i *instance) { i.rope.huge(1 << 20); i.rope.serve(func(message) {}) },
			`infrastructure: server "srv": it writes much to standard output, but no MCP message`},
		"cat": {func(i *instance) { i.rope.serve(func(m message) { i.rope.say("%s", m.raw) }) },
			`infrastructure: server "srv": echoes its input; it is not an MCP server`},
		"a banner": {func(i *instance) { line(i, "Hello"); echoing(i) }, `{"content":[],"structuredContent":{"name":"x"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, tt.script, mask)
				if got := newClient("c").calls(t, r, "x"); got != tt.want {
					t.Errorf("the call is\n%s, want\n%s", got, tt.want)
				}
				r.Close()
			})
		})
	}
}

// Another try does not help with a program that prints something and ends. One that
// says what went wrong may be a server that could not start.
func TestWhatIsNotMCPIsFinal(t *testing.T) {
	for name, tt := range map[string]struct {
		prints, logs string
		final        bool
	}{
		"echo Hello":            {"Hello", "", true},
		"a server that crashed": {"Starting ...", "connection refused", false},
		"silent":                {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, func(i *instance) {
					i.logs = tt.logs
					if tt.prints != "" {
						i.rope.in <- frame{err: &driver.StrayLine{Text: []byte(tt.prints)}}
					}
					i.end(fmt.Errorf("server %q exited with status 0", "srv"))
				})
				_, err := r.Conn(t.Context())
				var ours *api.Error
				if !errors.As(err, &ours) || ours.Retryable == tt.final || ours.Final != tt.final {
					t.Errorf("got %+v", ours)
				}
				r.Close()
			})
		})
	}
}

// What a driver says of the host is no reason to change the sandbox.
func TestHintsAreForTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetch, log := errors.New("fetch package x: getaddrinfo EAI_AGAIN"), ""
		r := &rig{t: t}
		o := r.options()
		hints := driver.Hints{{Says: regexp.MustCompile(`EAI_(\w+)`), Mend: func(spec driver.Spec, found []string) string { return spec.Server + " says " + found[1] }}}
		o.Driver = &fakeDriver{hints: hints, start: func(context.Context, driver.Spec) (driver.Instance, error) {
			if log == "" {
				return nil, fetch
			}
			return nil, driver.WithWords(errors.New("its sandbox ended at once"), log)
		}}
		r.Upstream = upstream.New(o)
		t.Cleanup(r.Close)
		call := func() string {
			newClient("c").calls(t, r, "x")
			return r.Status().Words
		}
		if got := call(); got != "" {
			t.Errorf("of a fetch: %q", got)
		}
		time.Sleep(time.Minute)
		log = "getaddrinfo EAI_AGAIN"
		testkit.Has(t, "what a program wrote", call(), "getaddrinfo EAI_AGAIN\nhint: srv says AGAIN")
	})
}

// A server that has answered may print what it likes.
func TestLinesBesideMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			for range 2000 {
				i.rope.in <- frame{err: &driver.StrayLine{Text: bytes.Repeat([]byte("y"), 1000)}}
			}
			i.rope.echo()
		})
		testkit.Has(t, "the call", newClient("c").calls(t, r, "x"), `"name":"x"`)
		r.Close()
	})
}
