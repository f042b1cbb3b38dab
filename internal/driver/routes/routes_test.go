package routes

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/publicnet"
)

func TestTransportsAreShared(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	write := func(b []byte) {
		if err := os.WriteFile(ca, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(block)
	var p Pool
	take := func(caFile string, connect time.Duration) (http.RoundTripper, func()) {
		tr, release, err := p.Transport(Route{CAFile: caFile, Connect: connect})
		if err != nil {
			t.Fatal(err)
		}
		return tr, release
	}
	a, releaseA := take("", time.Second)
	b, releaseB := take("", time.Second)
	c, releaseC := take(ca, time.Second)
	write(append(block, '\n'))
	renewed, releaseD := take(ca, time.Second)
	slower, releaseE := take("", time.Minute)
	if a != b || a == c || c == renewed || a == slower {
		t.Error("transports are shared by the wrong ones")
	}
	for _, release := range []func(){releaseC, releaseA, releaseB, releaseD, releaseE} {
		release()
	}
	if len(p.transports) != 0 {
		t.Errorf("%d transports are kept", len(p.transports))
	}
}

// A public route reaches no private address, also not through a proxy.
func TestPublicRoute(t *testing.T) {
	reached := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer srv.Close()
	t.Setenv("HTTP_PROXY", srv.URL)
	var p Pool
	tr, release, err := p.Transport(Route{Connect: time.Second, Public: true})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, url := range []string{srv.URL, strings.Replace(srv.URL, "127.0.0.1", "localhost", 1), strings.Replace(srv.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		_, err := (&http.Client{Transport: tr}).Get(url)
		var blocked *publicnet.Blocked
		if !errors.As(err, &blocked) || reached {
			t.Errorf("%s: %v, reached %v", url, err, reached)
		}
	}
}
