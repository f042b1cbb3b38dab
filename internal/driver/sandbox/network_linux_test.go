//go:build amd64 || arm64

package sandbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// outside is a world with a few names, each at an address of its own, and one
// server behind all of them.
type outside struct {
	server *httptest.Server

	mu   sync.Mutex
	seen []driver.Network
}

func newOutside(t testing.TB) *outside {
	o := &outside{server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "this is "+r.Host)
	}))}
	t.Cleanup(o.server.Close)
	return o
}

var outsideNames = map[string]string{"a.test": "203.0.114.1", "b.test": "203.0.114.2"}

// driver makes one whose proxies reach this world alone.
func (o *outside) driver(b *bench) *Driver {
	d := b.driver(Options{Network: func(n driver.Network) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.seen = append(o.seen, n)
	}})
	d.egress.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		a, ok := outsideNames[name]
		if !ok {
			return nil, fmt.Errorf("there is no %s", name)
		}
		return []netip.Addr{netip.MustParseAddr(a)}, nil
	}
	d.egress.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, o.server.Listener.Addr().String())
	}
	return d
}

// hosts is what one session was let to, or not.
func (o *outside) hosts(session string, allowed bool) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var hosts []string
	for _, n := range o.seen {
		if n.Session == session && n.Allowed == allowed {
			hosts = append(hosts, n.Host)
		}
	}
	return hosts
}

func allows(names ...string) func(*Config) {
	return func(s *Config) { s.Domains = names }
}

func TestNetworkReachesOnlyWhatIsAllowed(t *testing.T) {
	b, o := newBench(t), newOutside(t)
	d := o.driver(b)
	s := startSite(t, d, b.webSpec(t, "ses_1", allows("a.test")), driver.Source{})
	s.want("200 this is a.test", "/get", "url", "http://a.test/")
	s.want("http://10.111.0.1:3128", "/env", "name", "https_proxy")
	s.want("http://10.111.0.1:3128", "/env", "name", "ALL_PROXY")
	s.want("connected", "/dial", "addr", "10.111.0.1:3128")
	host, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	port := fmt.Sprint(host.Addr().(*net.TCPAddr).Port)
	refused := map[string][]string{
		"another name":                 {"/get", "url", "http://b.test/", "b.test"},
		"an address through the proxy": {"/get", "url", "http://203.0.114.1/", "203.0.114.1"},
		"another port of the name":     {"/get", "url", "http://a.test:8080/", "a.test"},
		"an address":                   {"/dial", "addr", "203.0.114.1:80", "unreachable"},
		"the host's loopback":          {"/dial", "addr", "127.0.0.1:" + port, "refused"},
		"another port of the proxy":    {"/dial", "addr", "10.111.0.1:" + port, "refused"},
		"an address by UDP":            {"/udp", "addr", "203.0.114.1:53", "unreachable"},
		"the proxy by UDP":             {"/udp", "addr", "10.111.0.1:53", "refused"},
		"a name":                       {"/lookup", "name", "a.test", "a.test"},
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			refused["the host at "+n.IP.String()] = []string{"/dial", "addr", n.IP.String() + ":" + port, "unreachable"}
			refused["the host at "+n.IP.String()+" through the proxy"] = []string{"/get", "url", "http://" + n.IP.String() + ":" + port + "/", n.IP.String()}
		}
	}
	for name, r := range refused {
		t.Run(name, func(t *testing.T) {
			got := s.ask(r[0], r[1], r[2])
			if !strings.HasPrefix(got, "error: ") && !strings.HasPrefix(got, "403 ") && !strings.HasPrefix(got, "400 ") || !strings.Contains(got, r[3]) {
				t.Errorf("%q", got)
			}
		})
	}
	s.stop() // when all was reported
	if got := o.hosts("ses_1", true); !slices.Equal(got, []string{"a.test"}) {
		t.Errorf("let through: %q", got)
	}
	denied := o.hosts("ses_1", false)
	for name, r := range refused {
		if r[0] == "/get" && !slices.Contains(denied, r[3]) {
			t.Errorf("no report of %s: %q", name, denied)
		}
	}
	for _, n := range o.seen {
		if n.Server != "fs" || n.Allowed && (n.Address != "203.0.114.1:80" || n.Sent == 0 || n.Received == 0) || !n.Allowed && (n.Reason == "" || n.Address != "") {
			t.Errorf("%+v", n)
		}
	}
}

// Each fork has a proxy of its own, at the same address, and its own list.
func TestNetworkOfForks(t *testing.T) {
	b, o := newBench(t), newOutside(t)
	d := o.driver(b)
	p := startSite(t, d, b.webSpec(t, "ses_1", allows("a.test", "b.test")), driver.Source{})
	p.want("200 this is a.test", "/get", "url", "http://a.test/")
	snap := p.freeze()
	same := startSite(t, d, b.webSpec(t, "ses_same", allows("a.test", "b.test")), driver.Source{From: &snap})
	less := startSite(t, d, b.webSpec(t, "ses_less", allows("b.test")), driver.Source{From: &snap})
	same.want("200 this is b.test", "/get", "url", "http://b.test/")
	less.want("200 this is b.test", "/get", "url", "http://b.test/")
	if got := less.ask("/get", "url", "http://a.test/"); !strings.HasPrefix(got, "403 ") {
		t.Errorf("by the proxy of another: %q", got)
	}
	p.want("200 this is a.test", "/get", "url", "http://a.test/")
	for _, s := range []*site{same, less, p} {
		s.stop()
	}
	for session, want := range map[string]string{"ses_1": "[a.test] []", "ses_same": "[b.test] []", "ses_less": "[b.test] [a.test]"} {
		if got := fmt.Sprint(slices.Compact(o.hosts(session, true)), o.hosts(session, false)); got != want {
			t.Errorf("%s: %s, want %s", session, got, want)
		}
	}
}

// The next gateway listens in the network that is there, and its forks have their
// own.
func TestNetworkIsAdopted(t *testing.T) {
	b, o := newBench(t), newOutside(t)
	d := o.driver(b)
	s := startSite(t, d, b.webSpec(t, "ses_1", allows("a.test")), driver.Source{})
	s.want("200 this is a.test", "/get", "url", "http://a.test/")
	h := s.inst.Handle()
	if err := s.inst.Leave(); err != nil {
		t.Fatal(err)
	}
	s.inst = nil
	if err := d.Close(); err != nil { // with its helper
		t.Fatal(err)
	}
	next := o.driver(b)
	inst, err := next.Adopt(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := siteOf(t, next, s.spec, inst)
	a.want("200 this is a.test", "/get", "url", "http://a.test/")
	if got := a.ask("/get", "url", "http://b.test/"); !strings.HasPrefix(got, "403 ") {
		t.Errorf("another name: %q", got)
	}
	snap := a.freeze()
	k := startSite(t, next, b.webSpec(t, "ses_2", allows("b.test")), driver.Source{From: &snap})
	k.want("200 this is b.test", "/get", "url", "http://b.test/")
	a.want("200 this is a.test", "/get", "url", "http://a.test/")
}

// A slot has its network already, and gets the list of the instance that takes it.
func TestNetworkOfSlots(t *testing.T) {
	b, o := newBench(t), newOutside(t)
	d := o.driver(b)
	spec := func(session, allowed string) driver.Spec {
		return b.webSpec(t, session, allows(allowed), func(s *Config) { s.Slots = 1 })
	}
	slots := func() string {
		var n []int
		for _, p := range d.Pools() {
			n = append(n, p.Slots)
		}
		return fmt.Sprint(n)
	}
	startSite(t, d, spec("ses_1", "a.test"), driver.Source{})
	settles(t, "[1]", slots)
	ahead, err := os.ReadDir(d.pool.dir())
	if err != nil || len(ahead) != 1 {
		t.Fatal(ahead, err)
	}
	s := startSite(t, d, spec("ses_2", "b.test"), driver.Source{})
	if got := s.inst.(*instance).rec.Sandbox; got != ahead[0].Name() {
		t.Errorf("it is %s and not %s, which was there", got, ahead[0].Name())
	}
	s.want("200 this is b.test", "/get", "url", "http://b.test/")
	if got := s.ask("/get", "url", "http://a.test/"); !strings.HasPrefix(got, "403 ") {
		t.Errorf("by the list of another: %q", got)
	}
}

func TestNetworkNone(t *testing.T) {
	b := newBench(t)
	s := startSite(t, b.driver(Options{}), b.webSpec(t, "ses_1"), driver.Source{})
	s.want("", "/env", "name", "HTTP_PROXY")
	for _, addr := range []string{proxyAddress, "203.0.114.1:80"} {
		if got := s.ask("/dial", "addr", addr); !strings.Contains(got, "unreachable") {
			t.Errorf("%s: %q", addr, got)
		}
	}
	if got := s.ask("/lookup", "name", "a.test"); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a name: %q", got)
	}
}

// On the host's network a server sees what the host sees, and no fork has its
// memory.
func TestNetworkHost(t *testing.T) {
	b, o := newBench(t), newOutside(t)
	d := b.driver(Options{})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	spec := b.webSpec(t, "ses_1", func(s *Config) { s.Network, s.Port = NetworkHost, port })
	spec.Args = []string{fmt.Sprintf("127.0.0.1:%d", port)}
	if got, _ := d.Carries(spec); got != driver.CarryNone {
		t.Errorf("it carries %q", got)
	}
	s := startSite(t, d, spec, driver.Source{})
	s.want("connected", "/dial", "addr", o.server.Listener.Addr().String())
	echo, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		buf := make([]byte, 100)
		if n, from, err := echo.ReadFrom(buf); err == nil {
			_, _ = echo.WriteTo(buf[:n], from)
		}
	}()
	s.want("hello", "/udp", "addr", echo.LocalAddr().String())
	if names, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		s.want(string(names), "/file", "path", "/etc/resolv.conf")
	}
	if got := s.ask("/lookup", "name", "localhost"); !strings.Contains(got, "127.0.0.1") {
		t.Errorf("localhost: %q", got)
	}
	if _, err := s.inst.(*instance).checkpoint(t.Context(), t.TempDir()); err == nil {
		t.Error("its memory was taken down")
	}
}
