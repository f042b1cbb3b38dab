package gateway_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A client that sends all of a body before it reads gets to read why the body was
// refused, at every door and whether it said before how long the body is.
func TestTooLargeBodiesAreAnswered(t *testing.T) {
	up := echoServer(t, true, "one")
	w := open(t, "limits: {body: 4KiB}\n"+servers("a", up.URL))
	_, post := openEvents(t, w, "/sse")
	// More than the socket's buffers hold, so that it can't be sent without being
	// read.
	large := strings.Repeat("x", 16<<20)
	for name, path := range map[string]string{"mcp": "/mcp", "control API": "/v1/call", "event stream": post} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked=%v", name, chunked), func(t *testing.T) {
				c, err := net.Dial("tcp", w.ts.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				head := "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: " + bothTypes + "\r\n"
				resp := sendWhole(t, c, head, large, chunked)
				wantTooLarge(t, resp)
			})
		}
	}
	t.Run("HTTP/2", func(t *testing.T) {
		ts := httptest.NewUnstartedServer(w.gw.Handler())
		ts.EnableHTTP2 = true
		ts.StartTLS()
		defer ts.Close()
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		for _, path := range []string{"/mcp", "/v1/call"} {
			req, err := http.NewRequestWithContext(t.Context(), "POST", ts.URL+path, unsized{strings.NewReader(large)})
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.ProtoMajor != 2 {
				t.Fatalf("it is HTTP/%d", resp.ProtoMajor)
			}
			wantTooLarge(t, resp)
		}
		// The connection is good for others.
		resp, err := (&http.Client{Transport: tr}).Get(ts.URL + "/healthz")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("afterwards: %v, %v", resp, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	})
	if n := len(up.of("tools/call")); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
}

// unsized hides the length of a body.
type unsized struct{ io.Reader }

func wantTooLarge(t *testing.T, resp *http.Response) {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(body), "limits.body") {
		t.Errorf("status %d %q, %v", resp.StatusCode, body, err)
	}
}

// An error is answered, and its connection closed, also where the rest of the
// request never comes: a client without a token must not have a connection for
// long.
func TestErrorsDoNotWaitForTheirBodies(t *testing.T) {
	w := open(t, "auth: {tokens: [{name: ada, token: ada-token-0123456789, role: operator}]}\n"+servers("a", echoServer(t, true, "one").URL))
	const ada = "Authorization: Bearer ada-token-0123456789\r\n"
	for name, tt := range map[string]struct {
		path, head string
		want       int
	}{
		"without a token": {"/mcp", "", http.StatusUnauthorized},
		"health":          {"/healthz", "", http.StatusOK},
		"API, no token":   {"/v1/call", "", http.StatusUnauthorized},
		"no such route":   {"/v1/nothing", ada, http.StatusNotFound},
		"no such page":    {"/nothing", ada, http.StatusNotFound},
		"another type":    {"/mcp", ada, http.StatusUnsupportedMediaType},
		"no snapshot":     {"/v1/snapshots/import?nam=x", ada, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", w.ts.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n%sContent-Length: 1000\r\n\r\nabc", tt.path, tt.head)
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != tt.want {
				t.Fatalf("%+v, %v; want status %d", resp, err, tt.want)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			if _, err := r.ReadByte(); err == nil {
				t.Error("something comes after the answer")
			}
		})
	}
}

// A client that sends all of a large upload before it reads gets to read why it was
// refused, though it is refused before all of it has come: without a token, at a
// place that is not there, for its query, and for what it begins with.
func TestEarlyRefusalsOfUploadsAreRead(t *testing.T) {
	w := open(t, twoPeople+"sessions: {snapshots: 1MiB}\n"+servers("a", echoServer(t, true, "one").URL))
	large := strings.Repeat("x", 16<<20)
	for name, tt := range map[string]struct {
		path, token, say string
		want             int
	}{
		"no token":       {"/v1/snapshots/import", "", "token", http.StatusUnauthorized},
		"no place":       {"/v1/nothing", "ada-ada-ada-ada-ada", "openapi.json", http.StatusNotFound},
		"a wrong query":  {"/v1/snapshots/import?nam=x", "ada-ada-ada-ada-ada", "nam", http.StatusBadRequest},
		"a wrong name":   {"/v1/snapshots/import?name=a/b", "ada-ada-ada-ada-ada", "name must be", http.StatusBadRequest},
		"not a snapshot": {"/v1/snapshots/import", "ada-ada-ada-ada-ada", "", 0},
		"no MCP":         {"/mcp", "ada-ada-ada-ada-ada", "Content-Type", http.StatusUnsupportedMediaType},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked=%v", name, chunked), func(t *testing.T) {
				c, err := net.Dial("tcp", w.ts.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				head := "POST " + tt.path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
				if tt.token != "" {
					head += "Authorization: Bearer " + tt.token + "\r\n"
				}
				resp := sendWhole(t, c, head, large, chunked)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil || tt.want != 0 && resp.StatusCode != tt.want || resp.StatusCode < 400 || !strings.Contains(string(body), tt.say) {
					t.Errorf("status %d %q, %v", resp.StatusCode, body, err)
				}
			})
		}
	}
}

// A body that comes too slowly is answered with 408 and the limit, and with nothing
// of the connection.
func TestSlowBodiesAreToldTheLimit(t *testing.T) {
	w := open(t, servers("a", echoServer(t, true, "one").URL))
	_, post := openEvents(t, w, "/sse")
	ts := httptest.NewUnstartedServer(w.gw.Handler())
	ts.Config.ReadTimeout = 50 * time.Millisecond
	ts.Start()
	t.Cleanup(ts.Close)
	for name, path := range map[string]string{"mcp": "/mcp", "control API": "/v1/call", "event stream": post} {
		for _, length := range []string{"Content-Length: 1000000", "Content-Length: 1000", "Transfer-Encoding: chunked"} {
			t.Run(name+", "+length, func(t *testing.T) {
				t.Parallel()
				c, err := net.Dial("tcp", ts.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: %s\r\n%s\r\n\r\n", path, bothTypes, length)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), "within 60 seconds") || strings.Contains(string(body), "127.0.0.1") {
					t.Errorf("status %d %q, %v", resp.StatusCode, body, err)
				}
			})
		}
	}
}

// sendWhole sends a request with all of its body before it reads the answer.
func sendWhole(t *testing.T, c net.Conn, head, body string, chunked bool) *http.Response {
	t.Helper()
	var err error
	if chunked {
		_, err = fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body)
	} else {
		_, err = fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	if err != nil {
		t.Fatalf("the body could not be sent: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("the answer could not be read: %v", err)
	}
	return resp
}
