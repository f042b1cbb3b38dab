package conns

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

// A listener with TLS lets clients on this machine in without it, and each of their
// connections is one of the pool.
func TestSecured(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	example := httptest.NewUnstartedServer(nil)
	example.StartTLS() // for its certificate
	defer example.Close()
	config := &tls.Config{Certificates: example.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	p := New(l, 10, slog.New(slog.DiscardHandler))
	srv := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if From(r.Context()) == nil {
			t.Error("the connection is not of the pool")
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Proto+" "+map[bool]string{true: "tls", false: "clear"}[r.TLS != nil]+" "+string(body))
	})}
	p.Attach(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(p.Secured(config)) }()

	trusted := x509.NewCertPool()
	trusted.AddCert(example.Certificate())
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for url, want := range map[string]string{"http://": "HTTP/1.1 clear ", "https://": "HTTP/2.0 tls "} {
		for range 3 {
			resp, err := c.Post(url+l.Addr().String(), "", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != want+"hello" {
				t.Errorf("%s: %q, %v", url, body, err)
			}
		}
	}
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	testkit.Eventually(t, "it is accepted", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.open == 3 })
	tr.CloseIdleConnections()
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Errorf("it served until %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a client that was silent is still connected")
	}
}

func TestIsLocal(t *testing.T) {
	at := func(from, to string) net.Conn {
		return addressed{from: &net.TCPAddr{IP: net.ParseIP(from)}, to: &net.TCPAddr{IP: net.ParseIP(to)}}
	}
	for _, c := range []net.Conn{at("127.0.0.1", "127.0.0.1"), at("::1", "::1"), at("10.0.0.5", "10.0.0.5")} {
		if !isLocal(c) {
			t.Errorf("from %s to %s is another machine's", c.RemoteAddr(), c.LocalAddr())
		}
	}
	for _, c := range []net.Conn{at("10.0.0.6", "10.0.0.5"), at("172.17.0.1", "172.17.0.2"), at("10.0.0.6", "127.0.0.1"), at("127.0.0.1", "10.0.0.5")} {
		if isLocal(c) {
			t.Errorf("from %s to %s is this machine's", c.RemoteAddr(), c.LocalAddr())
		}
	}
}

type addressed struct {
	net.Conn
	from, to net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }
func (a addressed) LocalAddr() net.Addr  { return a.to }
