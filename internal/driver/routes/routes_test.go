package routes

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
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
		tr, release, err := p.Transport(Route{caFile, connect})
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
