package credential

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

func TestCAFile(t *testing.T) {
	r := newRig(t)
	secure := httptest.NewTLSServer(http.HandlerFunc(r.peer.tokens))
	defer secure.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	s := r.robot()
	s.TokenURL = secure.URL + "/token"
	_, _, err := r.call(r.Wrap(s, "", r.next), "b")
	refused(t, err, api.KindInfrastructure, false, "unknown authority; set servers.x.ca_file if its authority is one of yours")

	s.CAFile = file
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	rt := r.Wrap(s, "", r.next)
	_, _, err = r.call(rt, "b")
	refused(t, err, api.KindInfrastructure, false, "holds no certificate in PEM; mend servers.x.ca_file")
	// The file is mended, and read again without a restart.
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(maxPause)
	r.must(rt, "b", "robot:b")
}

// counting is a transport that counts.
type counting struct {
	http.RoundTripper
	n int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n++
	return c.RoundTripper.RoundTrip(r)
}

func TestGivenClient(t *testing.T) {
	r := newRig(t)
	all := &counting{RoundTripper: r.next}
	followed := false
	w := New(Options{Store: r.shelf, HTTP: func(caFile string) (*http.Client, error) {
		if caFile != "" {
			return nil, errors.New("no such file")
		}
		return &http.Client{Transport: all, CheckRedirect: func(*http.Request, []*http.Request) error { followed = true; return nil }}, nil
	}})
	r.Wallet.Close()
	r.Wallet = w
	defer w.Close()
	r.enroll(r.login(), "", "ann")
	if all.n < 5 {
		t.Errorf("only %d requests went by the client that was given", all.n)
	}
	r.peer.token = func(w http.ResponseWriter, req *http.Request) bool {
		http.Redirect(w, req, "http://elsewhere.example/", http.StatusTemporaryRedirect)
		return true
	}
	_, _, err := r.call(r.Wrap(r.robot(), "", r.next), "b")
	if err == nil || followed || !strings.Contains(err.Error(), "another origin") {
		t.Errorf("error %v; the client's own rule was asked: %v", err, followed)
	}
	s := r.login()
	s.CAFile = "somewhere"
	_, err = r.Begin(context.Background(), s, "", here)
	refused(t, err, api.KindInfrastructure, false, "no such file; mend servers.x.ca_file")
}
