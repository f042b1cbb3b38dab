package wire_test

import (
	"testing"

	"github.com/tine-mcp/tine/internal/wire"
)

// call is a usual tools/call of the stateless era, 300 bytes and a few.
var call = []byte(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"files__read_file","arguments":{"path":"/workspace/README.md","head":40},` +
	`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)

func TestScanAllocates(t *testing.T) {
	var m wire.Message
	if n := testing.AllocsPerRun(100, func() { m, _ = wire.Scan(call) }); n > 2 {
		t.Errorf("Scan makes %v allocations, want at most 2", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = wire.ScanParams(m.Method, m.Params) }); n > 0 {
		t.Errorf("ScanParams makes %v allocations, want none", n)
	}
}

func BenchmarkScan(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(call)))
	for b.Loop() {
		if _, err := wire.Scan(call); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanParams(b *testing.B) {
	m, err := wire.Scan(call)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Params)))
	for b.Loop() {
		if _, err := wire.ScanParams(m.Method, m.Params); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendRequest(b *testing.B) {
	m, err := wire.Scan(call)
	if err != nil {
		b.Fatal(err)
	}
	p, err := wire.ScanParams(m.Method, m.Params)
	if err != nil {
		b.Fatal(err)
	}
	edits := []wire.Edit{{At: p.Target, With: wire.Quote("read_file")}}
	id := []byte(`"1-2"`)
	dst := make([]byte, 0, 2*len(call))
	b.ReportAllocs()
	for b.Loop() {
		dst = wire.AppendRequest(dst[:0], id, m.Method, m.Params, edits)
	}
}
