// Package registrytest has a registry for tests: a small MCP server as a package of
// npm and as a wheel, which are given out in part and then held back.
package registrytest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Name is that of the package, its program and its only tool.
const Name = "tine-slow-server"

// A Registry gives out one package. It is closed with its test.
type Registry struct {
	URL string

	mu      sync.Mutex
	loads   int
	began   chan struct{} // closed when half of the package was given out
	release chan struct{} // closed when the rest may be
}

// Size is about how large the package is: most of it can't be made smaller.
const Size = 3 << 20

// New makes a registry, which holds the second half of the package back until Release.
func New(t testing.TB) *Registry {
	r := &Registry{began: make(chan struct{}), release: make(chan struct{})}
	tarball, wheel := npm(), pypi()
	mux := http.NewServeMux()
	mux.HandleFunc("/"+Name, func(w http.ResponseWriter, _ *http.Request) {
		sum := sha1.Sum(tarball)
		version := map[string]any{
			"name": Name, "version": "1.0.0", "bin": map[string]string{Name: "cli.js"},
			"dist": map[string]string{"tarball": r.URL + "/slow.tgz", "shasum": hex.EncodeToString(sum[:])},
		}
		json.NewEncoder(w).Encode(map[string]any{"name": Name, "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version}})
	})
	mux.HandleFunc("/slow.tgz", func(w http.ResponseWriter, req *http.Request) { r.dribble(w, req, tarball) })
	mux.HandleFunc("/simple/"+Name+"/", func(w http.ResponseWriter, _ *http.Request) {
		sum := sha256.Sum256(wheel)
		fmt.Fprintf(w, `<a href="%s/%s#sha256=%x">x</a>`, r.URL, wheelName, sum)
	})
	mux.HandleFunc("/"+wheelName, func(w http.ResponseWriter, req *http.Request) { r.dribble(w, req, wheel) })
	s := httptest.NewServer(mux)
	r.URL = s.URL
	t.Cleanup(func() {
		r.Release()
		s.CloseClientConnections()
		s.Close()
	})
	return r
}

// dribble gives out half of a file and, once it may, the rest.
func (r *Registry) dribble(w http.ResponseWriter, req *http.Request, file []byte) {
	w.Header().Set("Content-Length", fmt.Sprint(len(file)))
	w.Header().Set("Cache-Control", "max-age=365000000, immutable, public") // as PyPI says
	if req.Method == http.MethodHead {
		return
	}
	r.mu.Lock()
	r.loads++
	first := r.loads == 1
	r.mu.Unlock()
	w.Write(file[:len(file)/2])
	http.NewResponseController(w).Flush()
	if first {
		close(r.began)
	}
	select {
	case <-r.release:
		w.Write(file[len(file)/2:])
	case <-req.Context().Done():
	}
}

// Began is closed when the first half of the package was given out.
func (r *Registry) Began() <-chan struct{} { return r.began }

// Release gives out the rest, now and from then on. Twice is fine.
func (r *Registry) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.release:
	default:
		close(r.release)
	}
}

// Loads is how often the package was asked for.
func (r *Registry) Loads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads
}

// Env are the variables by which npm, pip and uv use the registry and nothing else.
func (r *Registry) Env() map[string]string {
	return map[string]string{
		"npm_config_registry": r.URL, "npm_config_audit": "false", "npm_config_fund": "false",
		"PIP_INDEX_URL": r.URL + "/simple", "PIP_NO_CACHE_DIR": "1", "UV_DEFAULT_INDEX": r.URL + "/simple",
	}
}

func noise() []byte {
	b := make([]byte, Size)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func npm() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	add := func(name string, mode int64, body []byte) {
		t.WriteHeader(&tar.Header{Name: "package/" + name, Mode: mode, Size: int64(len(body))})
		t.Write(body)
	}
	add("package.json", 0o644, []byte(`{"name":"`+Name+`","version":"1.0.0","bin":{"`+Name+`":"cli.js"}}`))
	add("noise", 0o644, noise())
	add("cli.js", 0o755, []byte(strings.ReplaceAll(script, "NAME", Name)))
	t.Close()
	z.Close()
	return b.Bytes()
}

const script = `#!/usr/bin/env node
const answers = {
  initialize: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'NAME', version: '1.0.0' } },
  'tools/list': { tools: [{ name: 'NAME', inputSchema: { type: 'object' } }] },
  'tools/call': { content: [{ type: 'text', text: 'at your service' }] },
}
require('readline').createInterface({ input: process.stdin }).on('line', line => {
  const { id, method } = JSON.parse(line)
  if (id === undefined) return
  const result = answers[method]
  console.log(JSON.stringify(result ? { jsonrpc: '2.0', id, result } : { jsonrpc: '2.0', id, error: { code: -32601, message: 'no such method' } }))
})
`

const wheelName = "tine_slow_server-1.0.0-py3-none-any.whl"

func pypi() []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var record strings.Builder
	add := func(name string, body []byte) {
		w, _ := z.Create(name)
		w.Write(body)
		record.WriteString(name + ",,\n")
	}
	info := "tine_slow_server-1.0.0.dist-info/"
	add("tine_slow_server/__init__.py", []byte(strings.ReplaceAll(module, "NAME", Name)))
	add("tine_slow_server/noise", noise())
	add(info+"METADATA", []byte("Metadata-Version: 2.1\nName: "+Name+"\nVersion: 1.0.0\n"))
	add(info+"WHEEL", []byte("Wheel-Version: 1.0\nGenerator: tine\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
	add(info+"entry_points.txt", []byte("[console_scripts]\n"+Name+" = tine_slow_server:main\n"))
	record.WriteString(info + "RECORD,,\n")
	w, _ := z.Create(info + "RECORD")
	w.Write([]byte(record.String()))
	z.Close()
	return b.Bytes()
}

const module = `import json, sys
ANSWERS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "NAME", "version": "1.0.0"}},
    "tools/list": {"tools": [{"name": "NAME", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "at your service"}]},
}
def main():
    for line in sys.stdin:
        msg = json.loads(line)
        if "id" in msg:
            found = ANSWERS.get(msg["method"])
            end = {"result": found} if found else {"error": {"code": -32601, "message": "no such method"}}
            print(json.dumps({"jsonrpc": "2.0", "id": msg["id"], **end}), flush=True)
`
