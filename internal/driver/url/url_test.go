package url

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

var suite = &drivertest.Suite{
	New: func(int) driver.Driver { return New() },
	Spec: func(t testing.TB, _ string, _ ...string) driver.Spec {
		srv := httptest.NewServer(http.HandlerFunc(serveMCP))
		t.Cleanup(srv.Close)
		return driver.Spec{Server: "far", URL: srv.URL + "/mcp"}
	},
}

func TestMain(m *testing.M) { suite.Main(m) }

func TestSuite(t *testing.T) { suite.Run(t) }

// serveMCP answers initialize and the echo tool.
func serveMCP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage
		Params struct{ Arguments struct{ Text string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{
		"jsonrpc": "2.0", "id": req.ID,
		"result": map[string]any{"content": []any{map[string]any{"type": "text", "text": req.Params.Arguments.Text}}},
	})
}

func endpoint(t *testing.T, d *Driver, spec driver.Spec) *driver.Endpoint {
	t.Helper()
	spec.Server = "far"
	inst := suite.StartSpec(t, d, spec)
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return link.HTTP
}

func TestStartErrors(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		spec driver.Spec
		want []string
	}{
		"none":      {driver.Spec{}, []string{`server "far": no URL is given; set servers.far.url`}},
		"scheme":    {driver.Spec{URL: "ftp://me:secret@x/y"}, []string{"must begin with http:// or https://", "servers.far.url"}},
		"relative":  {driver.Spec{URL: "example.com/mcp"}, []string{"must begin with http:// or https://"}},
		"no host":   {driver.Spec{URL: "http:///mcp"}, []string{"names no host"}},
		"malformed": {driver.Spec{URL: "http://me:secret@[::1/"}, []string{"can't be read", "servers.far.url"}},
		"transport": {driver.Spec{URL: "http://x", Transport: "carrier pigeon"}, []string{`"carrier pigeon" is unknown`, "auto, streamable or sse"}},
		"no CA":     {driver.Spec{URL: "https://x", CAFile: "/no/ca.pem"}, []string{`server "far"`, "/no/ca.pem", "servers.far.ca_file"}},
		"odd CA":    {driver.Spec{URL: "https://x", CAFile: noPEM}, []string{noPEM, "no certificate in PEM", "servers.far.ca_file"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.spec.Server = "far"
			_, err := New().Start(t.Context(), test.spec)
			if err == nil {
				t.Fatal("it started")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("a password is shown: %v", err)
			}
		})
	}
}

func TestCredentialsLeaveTheURL(t *testing.T) {
	e := endpoint(t, New(), driver.Spec{URL: "HTTPS://me:s3cret@Example.com/mcp?x=1#part", Header: http.Header{"X-Key": {"k"}}})
	if e.URL != "https://Example.com/mcp?x=1" || e.Transport != "auto" {
		t.Errorf("endpoint %+v", e)
	}
	if e.Header.Get("Authorization") != "Basic bWU6czNjcmV0" || e.Header.Get("X-Key") != "k" {
		t.Errorf("headers %v", e.Header)
	}
	e = endpoint(t, New(), driver.Spec{URL: "https://me:s3cret@x", Header: http.Header{"Authorization": {"Bearer b"}}, Transport: "sse"})
	if e.Header.Get("Authorization") != "Bearer b" || e.Transport != "sse" {
		t.Errorf("endpoint %+v", e)
	}
}

func TestEndpointsShareNoHeaders(t *testing.T) {
	given := http.Header{"X-Key": {"k"}}
	inst := suite.StartSpec(t, New(), driver.Spec{Server: "far", URL: "http://x", Header: given})
	a, _ := inst.Dial(t.Context())
	b, _ := inst.Dial(t.Context())
	a.HTTP.Header.Set("X-Key", "changed")
	if b.HTTP.Header.Get("X-Key") != "k" || given.Get("X-Key") != "k" {
		t.Error("a header of one endpoint is another's")
	}
}

func get(e *driver.Endpoint, url string) (string, error) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	req.Header = e.Header.Clone()
	resp, err := e.Client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.Proto + " " + string(b), err
}

func TestNothingLeavesTheOrigin(t *testing.T) {
	var stolen []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen = append(stolen, r.Header.Get("X-Key"))
	}))
	defer other.Close()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	defer srv.Close()
	redirect := func(path, to string, code int) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, code) })
	}
	mux.HandleFunc("/home", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Method+" "+r.Header.Get("X-Key")) })
	redirect("/same", "/home", http.StatusTemporaryRedirect)
	redirect("/same-absolute", srv.URL+"/home", http.StatusPermanentRedirect)
	redirect("/turned", "/home", http.StatusFound)
	redirect("/away", other.URL+"/?token=t", http.StatusTemporaryRedirect)
	redirect("/round", "/round", http.StatusTemporaryRedirect)

	e := endpoint(t, New(), driver.Spec{URL: srv.URL, Header: http.Header{"X-Key": {"k"}}})
	for _, path := range []string{"/home", "/same", "/same-absolute"} {
		if got, err := get(e, srv.URL+path); err != nil || got != "HTTP/1.1 POST k" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for path, want := range map[string]string{
		"/away":   `server "far" redirects to ` + other.URL + "/, another origin",
		"/turned": "makes it a GET; set servers.far.url",
		"/round":  "10 redirects",
	} {
		if got, err := get(e, srv.URL+path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	// Nor when the caller asks for it, as it would for an address that the
	// server gave.
	if _, err := get(e, other.URL); err == nil || !strings.Contains(err.Error(), "refused to talk to") {
		t.Errorf("another host: %v", err)
	}
	if len(stolen) != 0 {
		t.Errorf("another host was sent %q", stolen)
	}
}

func TestOrigins(t *testing.T) {
	g := func(raw string) *guard {
		u, err := parse(driver.Spec{URL: raw})
		if err != nil {
			t.Fatal(err)
		}
		return &guard{url: u, origin: driver.Origin(u)}
	}
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"http://x/a", "http://x/b?c", true},
		{"http://x", "HTTP://X:80", true},
		{"https://x", "https://x:443", true},
		{"http://x", "https://x", false},
		{"http://x", "http://x:8080", false},
		{"http://x", "http://y", false},
		{"http://[::1]:80", "http://[::1]", true},
		{"http://x", "http://x.evil", false},
	} {
		if got := g(test.a).allows(g(test.b).url); got != test.same {
			t.Errorf("%s and %s: %v", test.a, test.b, got)
		}
	}
}

func TestCAFile(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	d := New()
	with := endpoint(t, d, driver.Spec{URL: srv.URL, CAFile: ca})
	if got, err := get(with, srv.URL); err != nil || got != "HTTP/2.0 hello" {
		t.Errorf("with the CA: %q, %v", got, err)
	}
	without := endpoint(t, d, driver.Spec{URL: srv.URL})
	if _, err := get(without, srv.URL); err == nil {
		t.Error("an unknown CA was trusted")
	}
}

func TestStoppedIsNotDialled(t *testing.T) {
	inst := suite.StartSpec(t, New(), driver.Spec{Server: "far", URL: "http://x"})
	suite.Stop(t, inst)
	if _, err := inst.Dial(t.Context()); err == nil || errors.Is(err, driver.ErrGone) {
		t.Errorf("got %v", err)
	}
}
