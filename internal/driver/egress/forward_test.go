package egress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// browser is a real HTTP client behind the proxy.
func (r *rig) browser(scheme string) *http.Client {
	r.t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: scheme, Host: r.address})}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func website(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// mirror answers with the request as it arrived.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"host": r.Host, "uri": r.RequestURI, "header": r.Header, "body": string(body), "te": r.TransferEncoding, "length": r.ContentLength,
	})
}

// raw sends a request as it is written and reads the answer.
func (r *rig) raw(c *net.TCPConn, request string) (*http.Response, string) {
	r.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 1<<16), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(b)
}

func TestForward(t *testing.T) {
	r := newRig(t, []string{"example.org", "example.org:8080"}, nil)
	r.host("example.org", 80, website(t, mirror))
	r.host("example.org", 8080, website(t, mirror))
	c := r.client()
	for _, tt := range []struct{ name, request, has, hasNot string }{
		{"the path as it was written", "GET http://example.org/a%2Fb//c?x=1;y=%zz&q HTTP/1.1\r\nHost: example.org\r\n\r\n", `"uri":"/a%2Fb//c?x=1;y=%zz\u0026q"`, ""},
		{"a port", "GET http://example.org:8080/ HTTP/1.1\r\nHost: example.org:8080\r\n\r\n", `"host":"example.org:8080"`, ""},
		{"the host of the URL", "GET http://EXAMPLE.org./ HTTP/1.1\r\nHost: evil.net\r\n\r\n", `"host":"example.org"`, "evil"},
		{"headers of the way", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: X-Drop\r\nX-Drop: 1\r\nX-Keep: 2\r\n\r\n", `"X-Keep":["2"]`, "X-Drop"},
		{"credentials", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n", `"header":{`, "c2VjcmV0"},
		{"a user in the URL", "GET http://u:hunter2@example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", `"uri":"/"`, "hunter2"},
		{"nothing is added", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", `"header":{},`, ""},
		{"what is forwarded already", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n", `"X-Forwarded-For":["1.2.3.4"]`, ""},
		{"a body", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\n\r\nabc", `"body":"abc"`, "chunked"},
		{"a body in chunks", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", `"body":"abcde"`, ""},
		{"both lengths are one", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", `"body":"abc"`, `"length":9`},
	} {
		if tt.name == "both lengths are one" {
			c = r.client()
		}
		resp, body := r.raw(c, tt.request)
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s: %s", tt.name, resp.Status, body)
		}
		want(t, tt.name, body, tt.has)
		if tt.hasNot != "" && strings.Contains(body, tt.hasNot) {
			t.Errorf("%s: %s in %s", tt.name, tt.hasNot, body)
		}
	}
	r.Close()
	for _, d := range r.reported(2) {
		if d.Protocol != ProtocolHTTP || d.Host != "example.org" || !d.Allowed || d.Reason != "" || d.Sent == 0 || d.Received == 0 {
			t.Errorf("reported %+v", d)
		}
	}
}

// TestForwardRefused holds that a client that asks for the next host on the same
// connection is refused, and may go on.
func TestForwardRefused(t *testing.T) {
	r := newRig(t, []string{"example.org", "inside.example"}, nil)
	r.host("example.org", 80, website(t, mirror))
	c := r.client()
	for _, tt := range []struct {
		host   string
		status int
		body   string
	}{
		{"example.org", 200, "example.org"},
		{"evil.net", 403, `add "evil.net" to servers.web.sandbox.network`},
		{"example.org:8080", 403, `add "example.org:8080"`},
		{"169.254.169.254", 403, "not in the list"},
		{"2130706433", 400, "like an address"},
		{"inside.example", 502, "no such name"},
		{"example.org", 200, "example.org"},
	} {
		resp, body := r.raw(c, "GET http://"+tt.host+"/ HTTP/1.1\r\nHost: "+tt.host+"\r\n\r\n")
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s", tt.host, resp.Status)
		}
		want(t, tt.host, body, tt.body)
	}
	if len(r.dialed) != 1 {
		t.Errorf("connected to %s", r.dialed)
	}
	r.Close()
	if all := r.reported(6); all[0].Host != "evil.net" || all[0].Allowed || all[5].Host != "example.org" || !all[5].Allowed {
		t.Errorf("reported %+v", all)
	}
}

// TestExactHTTP holds that the bytes of a connection are those on its wire.
func TestExactHTTP(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	heard := make(chan int, 1)
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 80, serve(t, func(c *net.TCPConn) {
		var got bytes.Buffer
		req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &got)))
		if err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
		}
		_, _ = io.WriteString(c, answer)
		heard <- got.Len()
	}))
	resp, body := r.raw(r.client(), "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5\r\n\r\nhello")
	if resp.StatusCode != 200 || body != "ok" {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if d := r.one(); d.Sent != int64(<-heard) || d.Received != int64(len(answer)) {
		t.Errorf("reported %+v", d)
	}
}

// TestStreams holds that an answer is passed on while it is made, and while the
// request is still being made.
func TestStreams(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 80, website(t, func(w http.ResponseWriter, req *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.WriteHeader(200)
		_ = rc.Flush()
		in := bufio.NewReader(req.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(w, "got "+line)
			_ = rc.Flush()
		}
	}))
	body, say := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://example.org/", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.browser("http").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		fmt.Fprintf(say, "%d\n", i)
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("got %d\n", i) || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
	}
	_ = say.Close()
	if rest, err := io.ReadAll(in); len(rest) != 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestUpgrade(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 80, serve(t, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		req, err := http.ReadRequest(in)
		if err != nil || req.Header.Get("Upgrade") != "chat" {
			return
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		_, _ = io.Copy(c, in)
	}))
	c := r.client()
	fmt.Fprint(c, "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	_ = c.Close()
	if d := r.one(); !d.Allowed || d.Protocol != ProtocolHTTP {
		t.Errorf("reported %+v", d)
	}
}

// TestPrograms holds that real clients get through by each of the ways.
func TestPrograms(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(mirror))
	defer secure.Close()
	for _, way := range []string{"http", "socks5", "socks5h"} {
		r := newRig(t, []string{"example.com"}, nil)
		r.host("example.com", 80, website(t, mirror))
		r.host("example.com", 443, secure.Listener.Addr().String())
		b := r.browser(way)
		b.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
		for _, u := range []string{"http://example.com/", "https://example.com/"} {
			resp, err := b.Post(u, "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Errorf("%s by %s: %v", u, way, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			want(t, u+" by "+way, string(body), `"body":"hello"`)
		}
		if resp, err := b.Get("https://evil.net/"); err == nil {
			resp.Body.Close()
			t.Errorf("evil.net was reached by %s", way)
		}
	}
}
