package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"runtime"
	"slices"
	"testing"
)

// TestMain lets the test binary be one of the processes under measurement, as
// the real one does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == roleCommand {
		os.Exit(roleMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// TestRun measures everything but Tine for a moment and looks at the report.
func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	code := cli(t.Context(), []string{
		"--only", "*/direct,*/relay,*/proxy",
		"--rounds", "2", "--duration", "40ms", "--callers", "1,3", "--max-calls", "60", "--payload", "50", "--json",
	}, &out, &progress)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, progress.String())
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range rep.Lines {
		got = append(got, l.Group+"/"+l.Name)
		if l.Calls == 0 || l.Calls > 120 || l.Errors != 0 || l.P50 <= 0 || l.P99 < l.P50 || l.Rate <= 0 || len(l.Samples) != 2 {
			t.Errorf("%s/%s at %d: %+v", l.Group, l.Name, l.Callers, l)
		}
		behindProxy := l.Group != stdioGroup && l.Name != rowProxy
		if behindProxy != (l.Proxy.P50 > 0 && l.Proxy.Rate > 0) {
			t.Errorf("%s/%s against the proxy: %+v", l.Group, l.Name, l.Proxy)
		}
		if (l.Name != rowDirect) != (l.Direct.P50 > 0 && l.Direct.Rate > 0) {
			t.Errorf("%s/%s against direct: %+v", l.Group, l.Name, l.Direct)
		}
		if runtime.GOOS != "linux" {
			continue
		}
		if l.Upstream <= 0 || (l.Name != rowDirect) != (l.CPU > 0 && l.Anon > 0) {
			t.Errorf("%s/%s usage: middle %v and %d bytes, upstream %v", l.Group, l.Name, l.CPU, l.Anon, l.Upstream)
		}
	}
	three := []string{"direct", "relay", "proxy"}
	var want []string
	for _, era := range []string{legacyEra, statelessEra} {
		for range 2 {
			for _, name := range three {
				want = append(want, era+"/"+name)
			}
		}
	}
	want = append(want, "stdio/direct", "stdio/direct")
	if !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestTable(t *testing.T) {
	var out, progress bytes.Buffer
	args := []string{"--only", "stdio/direct", "--rounds", "1", "--duration", "20ms", "--callers", "2", "--check"}
	if code := cli(t.Context(), args, &out, &progress); code != 1 {
		t.Errorf("with --check and no Tine the exit code is %d\n%s", code, progress.String())
	}
	for _, want := range []string{"stdio, 2 at once", "direct", "not measured"} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestOrphans shows that a process which nobody stops ends with its lifeline.
func TestOrphans(t *testing.T) {
	g, err := newRig(settings{Payload: minPayload})
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := g.role(t.Context(), "echo-stateless", "orphan", false)
	if err != nil {
		t.Fatal(err)
	}
	g.lines.close()
	<-p.exited
	if err := g.close(); err != nil {
		t.Error(err)
	}
}

func TestDeadProcessIsExplained(t *testing.T) {
	g, err := newRig(settings{Payload: minPayload})
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	_, _, err = g.role(t.Context(), "nonsense", "nobody", false)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("there is no such role")) {
		t.Errorf("the error does not hold the process's last words: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, progress bytes.Buffer
	if code := cli(ctx, []string{"--only", "stdio/direct"}, &out, &progress); code != 1 || out.Len() > 0 {
		t.Errorf("exit code %d, output %q", code, out.String())
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--callers", "0"}, {"--callers", "1,x"}, {"--callers", ""}, {"--rounds", "0"}, {"--duration", "0s"},
		{"--duration", "2h"}, {"--payload", "3"}, {"--max-calls", "0"}, {"--sessions", "0"},
		{"--depth", "1"}, {"--workspace", "0"}, {"extra"}, {"--unknown"},
	} {
		var out, progress bytes.Buffer
		if code := cli(t.Context(), args, &out, &progress); code != 2 || progress.Len() == 0 {
			t.Errorf("%v: exit code %d, said %q", args, code, progress.String())
		}
	}
}

func TestSelectRows(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{
		{nil, 18},
		{[]string{"stdio"}, 4},
		{[]string{"2025-11-25/proxy"}, 1},
		{[]string{"*/tine*", "stdio/direct"}, 12},
		{[]string{"nothing"}, 0},
		{[]string{"[bad"}, 0},
	} {
		if got := selectRows(allRows(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

// TestDialsAreSeen holds that a caller which opens a connection for every call
// shows, and one that keeps its connection does not.
func TestDialsAreSeen(t *testing.T) {
	g, err := newRig(settings{Payload: minPayload})
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	_, at, err := g.role(t.Context(), "echo-stateless", "echo", false)
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + at.Addr
	for _, tc := range []struct {
		name string
		keep bool
		want int
	}{{"kept", true, 0}, {"dialled", false, 4}} {
		c, err := dialHTTP(t.Context(), statelessEra, base+"/mcp", toolName, "", minPayload)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		c.client.Transport.(*http.Transport).DisableKeepAlives = !tc.keep
		var before int
		for id := range uint64(5) {
			if err := c.call(t.Context(), id+1); err != nil {
				t.Fatal(err)
			}
			if id == 0 {
				if before, err = connections(t.Context(), base); err != nil {
					t.Fatal(err)
				}
			}
		}
		after, err := connections(t.Context(), base)
		if err != nil {
			t.Fatal(err)
		}
		if got := after - before; got != tc.want {
			t.Errorf("%s: %d connections opened for 4 calls, want %d", tc.name, got, tc.want)
		}
	}
}
