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
				if chunked {
					_, err = fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(large), large)
				} else {
					_, err = fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(large), large)
				}
				if err != nil {
					t.Fatalf("the body could not be sent: %v", err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatalf("the answer could not be read: %v", err)
				}
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
// request never comes: whoever has no token must not have a connection for long.
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
