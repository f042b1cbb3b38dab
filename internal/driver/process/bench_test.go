//go:build linux || darwin

package process

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

func BenchmarkCall(b *testing.B) {
	for _, size := range []int{10, 10_000, 1 << 20} {
		b.Run(fmt.Sprint("bytes=", size), func(b *testing.B) {
			p := drivertest.Dial(b, suite.Start(b, New(Options{})))
			args := map[string]any{"text": strings.Repeat("x", size)}
			b.ReportAllocs()
			for b.Loop() {
				p.Call(b, "echo", args)
			}
		})
	}
}

func BenchmarkStartStop(b *testing.B) {
	d := New(Options{})
	for b.Loop() {
		inst := suite.Start(b, d)
		suite.Stop(b, inst)
	}
}

func BenchmarkScan(b *testing.B) {
	for b.Loop() {
		scan(func(member) {})
	}
}
