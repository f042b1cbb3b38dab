package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
)

// certificate writes one for a name that nothing here has.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tools.example.org"}, DNSNames: []string{"tools.example.org"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	bits, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: bits}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestLocalOverTLS holds that the command line reaches a gateway with TLS on its
// own machine, with a certificate for any name, and no other server in its place.
func TestLocalOverTLS(t *testing.T) {
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.TLS.Cert, cfg.TLS.Key = certificate(t)
	state := t.TempDir()
	runService(t, cfg, state)
	file := gatewayOf(t, state)
	ask := func(file *gatewayFile) error {
		tr := file.transport()
		defer tr.CloseIdleConnections()
		c, err := client.New(client.Options{URL: file.URL, Token: file.Token, HTTPClient: &http.Client{Transport: tr}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Status(t.Context())
		return err
	}
	if err := ask(file); err != nil {
		t.Errorf("with the certificate of the file: %v", err)
	}
	file.Cert = strings.Repeat("0", 64)
	if err := ask(file); err == nil || !strings.Contains(err.Error(), "is not the gateway of this state folder") {
		t.Errorf("with another certificate: %v", err)
	}
}

// An agent reaches a gateway with TLS, whose certificate names another host.
func TestAgentBehindTLS(t *testing.T) {
	const program = `import json, os, sys, urllib.request
job = json.load(sys.stdin)
urllib.request.urlopen(os.environ["AGENT_ORCHESTRATOR_API_URL"] + "/sessions").read()
server = job["agent_blueprint"]["mcp_servers"]["clock"]
call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
headers = {**server["headers"], "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
with urllib.request.urlopen(urllib.request.Request(server["url"], call, headers)) as answer:
    print("found", len(json.load(answer)["result"]["tools"]))
`
	dir := t.TempDir()
	cert, key := certificate(t)
	write(t, filepath.Join(dir, "worker.py"), program)
	write(t, filepath.Join(dir, "agents", "worker.yaml"), "executor: worker\nmcp_servers: {clock: {}}\n")
	path := write(t, filepath.Join(dir, "tine.yaml"), fmt.Sprintf(`listen: 127.0.0.1:0
tls: {cert: %q, key: %q}
servers: {clock: {builtin: time}}
agents: {executors: {worker: {command: python3, args: [%q]}}}
`, cert, key, filepath.Join(dir, "worker.py")))
	cfg, err := config.Load(path, (&cli{lookupEnv: os.LookupEnv}).configOptions())
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	runService(t, cfg, state)
	file := gatewayOf(t, state)
	tr := file.transport()
	defer tr.CloseIdleConnections()
	c, err := client.New(client.Options{URL: file.URL, Token: file.Token, HTTPClient: &http.Client{Transport: tr}})
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.StartRun(t.Context(), api.NewRun{Agent: "worker", Prompt: "go"})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = c.Run(t.Context(), run.ID, time.Minute); err != nil || run.Result == nil || run.Result.Text != "found 2" {
		t.Errorf("it came to %+v, %v", run, err)
	}
}

// runService runs a gateway until the test ends.
func runService(t *testing.T, cfg *config.Config, state string) *service {
	t.Helper()
	s, err := newService(t.Context(), serviceOptions{
		Config: cfg, State: state, Listen: true, Version: "test", Redact: telemetry.NewRedactor(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

// gatewayOf waits for the file that says where a gateway is.
func gatewayOf(t *testing.T, state string) (file *gatewayFile) {
	t.Helper()
	testkit.Succeeds(t, "the gateway has written where it is", func() (err error) {
		file, err = readGatewayFile(state)
		return err
	})
	return file
}
