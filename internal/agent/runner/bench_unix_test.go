//go:build linux || darwin

package runner

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

// BenchmarkProgram is a run of a program that does nothing, beside the same program
// started plainly. started is until the program is being started, whole until nothing of
// the run is left.
func BenchmarkProgram(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, whole := range []bool{false, true} {
		b.Run(map[bool]string{false: "started", true: "whole"}[whole], func(b *testing.B) {
			h, err := newPrograms(b.TempDir(), os.Environ(), slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			plan, n := executor.Plan{Command: "true", Dir: b.TempDir()}, 0
			for b.Loop() {
				n++
				p, err := h.start(fmt.Sprintf("run_%d", n), pass{}, plan)
				if err != nil {
					b.Fatal(err)
				}
				if !whole {
					b.StopTimer()
				}
				end, err := p.follow(b.Context(), &listener{}, 0, nil)
				if err == nil {
					err = p.remove()
				}
				if err != nil || end.Err != nil {
					b.Fatal(end, err)
				}
				b.StartTimer()
			}
		})
	}
}
