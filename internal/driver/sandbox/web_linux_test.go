//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// netServer is the server of these tests.
var netServer = testProgram{name: "netserver", variable: "TINE_TEST_SANDBOX_NET"}

const webPort = 8000

// webSpec is a server that speaks HTTP and has a state.
func (b *bench) webSpec(t testing.TB, session string, change ...func(*Config)) driver.Spec {
	t.Helper()
	s := b.spec(t, netServer.at(t), fmt.Sprintf("127.0.0.1:%d", webPort))
	s.Session, s.State = session, filepath.Join(t.TempDir(), "state")
	options(s).Transport, options(s).Port, options(s).Path = config.ContainerHTTP, webPort, "/"
	for _, c := range change {
		c(options(s))
	}
	return s
}

// site is an instance that speaks HTTP.
type site struct {
	t    testing.TB
	d    *Driver
	spec driver.Spec
	inst driver.Instance
	ep   *driver.Endpoint
}

func startSite(t testing.TB, d *Driver, spec driver.Spec, src driver.Source) *site {
	t.Helper()
	if err := d.Seed(t.Context(), spec, src); err != nil {
		t.Fatal(err)
	}
	inst, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return siteOf(t, d, spec, inst)
}

func siteOf(t testing.TB, d *Driver, spec driver.Spec, inst driver.Instance) *site {
	t.Helper()
	s := &site{t: t, d: d, spec: spec, inst: inst}
	t.Cleanup(func() { s.stop() })
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.ep = link.HTTP
	if s.ep == nil {
		t.Fatal("it has no way to speak HTTP")
	}
	return s
}

func (s *site) stop() {
	if s.inst == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(s.inst.Stop(ctx), s.d.Erase(ctx, s.spec)); err != nil {
		s.t.Error(err)
	}
	s.inst = nil
}

// ask is what the server answers to a call, or why it does not.
func (s *site) ask(path string, args ...string) string {
	s.t.Helper()
	q := url.Values{}
	for i := 0; i+1 < len(args); i += 2 {
		q.Set(args[i], args[i+1])
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, strings.TrimSuffix(s.ep.URL, "/")+path+"?"+q.Encode(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.ep.Client.Do(r)
	if err != nil {
		return "failed: " + err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "failed: " + err.Error()
	}
	return string(b)
}

func (s *site) want(want, path string, args ...string) {
	s.t.Helper()
	if got := s.ask(path, args...); got != want {
		s.t.Errorf("%s %q: %q, want %q", path, args, got, want)
	}
}

// freeze makes a snapshot that is discarded at the end.
func (s *site) freeze() driver.Snapshot {
	s.t.Helper()
	release, err := s.inst.Hold(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer release()
	snap, err := s.d.Freeze(s.t.Context(), s.spec, s.inst, filepath.Join(s.t.TempDir(), "snapshot"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.d.Discard(context.Background(), snap); err != nil {
			s.t.Error(err)
		}
	})
	snap.Hello = json.RawMessage(`{"version":"2025-06-18"}`)
	return snap
}

// events opens a stream and reads its first event.
func (s *site) events() (*bufio.Reader, io.Closer) {
	s.t.Helper()
	resp, err := s.ep.Client.Get(strings.TrimSuffix(s.ep.URL, "/") + "/events")
	if err != nil {
		s.t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		s.t.Fatalf("an event: %q, %v", line, err)
	}
	return r, resp.Body
}

func TestWebServerAnswers(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	s := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	s.want("1", "/count")
	s.want("2", "/count")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := s.ask("/slow", "for", "50ms"); got != "slow" {
				t.Error(got)
			}
		})
	}
	all.Wait()
	s.stop()
	if got := s.ask("/count"); !strings.Contains(got, "ended") {
		t.Errorf("after its end: %s", got)
	}
}

// Nothing of what is large is lost, however slow either side reads.
func TestWebServerIsToldAll(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	s := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	const times = 5
	for _, size := range []int{1, maxPacket - 1, maxPacket, maxPacket + 1, maxRequest} {
		big := make([]byte, size)
		for i := range big {
			big[i] = byte(i % 251)
		}
		got, err := s.echo(big, times)
		if err != nil || !bytes.Equal(got, bytes.Repeat(big, times)) {
			t.Errorf("%d of %d bytes came back: %v", len(got), times*len(big), err)
		}
	}
	if _, err := s.echo(make([]byte, maxRequest+1), 1); err == nil || !strings.Contains(err.Error(), "983041 bytes") {
		t.Errorf("a request that is too large: %v", err)
	}
	s.want("1", "/count")
}

// echo is what the server sends back, read late.
func (s *site) echo(b []byte, times int) ([]byte, error) {
	resp, err := s.ep.Client.Post(fmt.Sprintf("%s/echo?times=%d", strings.TrimSuffix(s.ep.URL, "/"), times), "text/plain", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	time.Sleep(200 * time.Millisecond) // a slow reader
	return io.ReadAll(resp.Body)
}

// Two copies on the same port are apart, and none has the connections of the
// first.
func TestWebServerForksWithItsMemory(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	p := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	p.want("1", "/count")
	stream, end := p.events()
	defer end.Close()
	p.want("1", "/streams")
	snap := p.freeze()
	if _, err := io.Copy(io.Discard, stream); !errors.Is(err, errCut) {
		t.Errorf("the stream of events ended with %v", err)
	}
	p.want("2", "/count")
	_, again := p.events()
	defer again.Close()
	var kids []*site
	for i := range 2 {
		kids = append(kids, startSite(t, d, b.webSpec(t, fmt.Sprintf("ses_kid%d", i)), driver.Source{From: &snap}))
	}
	kids[0].want("2", "/count")
	kids[0].want("3", "/count")
	kids[1].want("2", "/count")
	p.want("3", "/count")
	for _, k := range kids {
		settles(t, "0", func() string { return k.ask("/streams") })
	}
	settles(t, "1", func() string { return p.ask("/streams") })
	// And a fork of a fork.
	snap = kids[0].freeze()
	grandchild := startSite(t, d, b.webSpec(t, "ses_grandchild"), driver.Source{From: &snap})
	grandchild.want("4", "/count")
	kids[0].want("4", "/count")
}

// settles waits until something is so.
func settles(t testing.TB, want string, is func() string) {
	t.Helper()
	testkit.Succeeds(t, "it is "+want, func() error {
		if got := is(); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// Running calls end before a server is frozen, and new ones wait.
func TestWebServerFrozenUnderLoad(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	s := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if got := s.ask("/slow", "for", "5ms"); got != "slow" {
					t.Error(got)
					return
				}
			}
		})
	}
	for range 2 {
		all.Go(func() { // a client that opens a stream again whenever it ends
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.ep.URL, "/")+"/events", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := s.ep.Client.Do(r)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if err != nil && !errors.Is(err, errCut) && !errors.Is(err, io.EOF) && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 8 {
		s.freeze()
	}
	cancel()
	all.Wait()
}

func TestWebHoldWaitsForCalls(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	s := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	resp, err := s.ep.Client.Post(strings.TrimSuffix(s.ep.URL, "/")+"/events", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.inst.Hold(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "calls are still running") {
		t.Errorf("hold with a running call: %v", err)
	}
	s.want("1", "/count")
	resp.Body.Close()
	release, err := s.inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan string, 1)
	go func() { answered <- s.ask("/count") }()
	select {
	case got := <-answered:
		t.Errorf("a call entered a held instance: %s", got)
	case <-time.After(50 * time.Millisecond): // nothing tells that it waits
	}
	release()
	if got := <-answered; got != "2" {
		t.Errorf("after the hold: %s", got)
	}
}

// A stream of events keeps nothing awake; a call wakes it.
func TestWebServerIsParked(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{ParkAfter: 50 * time.Millisecond})
	s := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	_, end := s.events()
	defer end.Close()
	i := s.inst.(*instance)
	for n := range 3 {
		settles(t, "true", func() string { return fmt.Sprint(i.park.parked.Load()) })
		s.want(fmt.Sprint(n+1), "/count")
	}
	// While it works it is not.
	s.want("slow", "/slow", "for", "300ms")
}

func TestWebServerIsAdopted(t *testing.T) {
	b := newBench(t)
	d := b.driver(Options{})
	s := startSite(t, d, b.webSpec(t, "ses_1"), driver.Source{})
	s.want("1", "/count")
	if err := s.inst.Leave(); err != nil {
		t.Fatal(err)
	}
	if got := s.ask("/count"); !strings.Contains(got, "ended") {
		t.Errorf("after it was left: %s", got)
	}
	h := s.inst.Handle()
	s.inst = nil
	next := b.driver(Options{})
	inst, err := next.Adopt(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := siteOf(t, next, s.spec, inst)
	a.want("2", "/count")
	snap := a.freeze()
	k := startSite(t, next, b.webSpec(t, "ses_2"), driver.Source{From: &snap})
	k.want("3", "/count")
	a.want("3", "/count")
}

func TestWebServerThatDoesNotListen(t *testing.T) {
	b := newBench(t)
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"ends":      {nil, []string{" ended ", "nothing to listen at is given"}},
		"elsewhere": {[]string{"127.0.0.1:8001"}, []string{"nothing listens at port 8000", "sandbox.port"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := b.driver(Options{ListenWait: time.Second})
			spec := b.webSpec(t, "ses_1")
			spec.Args = test.args
			if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
				t.Fatal(err)
			}
			inst, err := d.Start(t.Context(), spec)
			if err == nil {
				t.Fatal("it started", inst.Stop(t.Context()))
			}
			if errors.Is(err, driver.ErrLost) {
				t.Errorf("it never began, and %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error()+driver.Words(err), want) {
					t.Errorf("%v does not say %q, and the server wrote %q", err, want, driver.Words(err))
				}
			}
		})
	}
}
