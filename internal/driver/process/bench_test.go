//go:build linux || darwin

package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

var echoSizes = []int{100, 10_000, 1 << 20}

func message(size int) []byte {
	return []byte(`{"x":"` + string(bytes.Repeat([]byte("x"), size)) + `"}`)
}

// BenchmarkEcho sends a message to cat and back.
func BenchmarkEcho(b *testing.B) {
	for _, size := range echoSizes {
		b.Run(fmt.Sprint("bytes=", size), func(b *testing.B) {
			inst := suite.StartSpec(b, New(Options{}), suite.Spec(b, "cat"))
			link, err := inst.Dial(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			m := message(size)
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			failed := make(chan error, 1)
			for b.Loop() {
				go send(link.Stream, b, m, failed)
				if _, err := link.Stream.ReadFrame(); err != nil {
					b.Fatal(err)
				}
				if err := <-failed; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func send(s driver.Stream, b *testing.B, m []byte, failed chan<- error) {
	failed <- s.WriteFrame(b.Context(), m)
}

// BenchmarkEchoOfPlainPipes is what the same costs with os/exec and bufio.
func BenchmarkEchoOfPlainPipes(b *testing.B) {
	for _, size := range echoSizes {
		b.Run(fmt.Sprint("bytes=", size), func(b *testing.B) {
			cmd := exec.Command("cat")
			in, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer cmd.Wait()
			defer in.Close()
			r := bufio.NewReaderSize(out, lines.BufferSize)
			m := append(message(size), '\n')
			b.SetBytes(int64(2 * size))
			b.ReportAllocs()
			failed := make(chan error, 1)
			for b.Loop() {
				go plainSend(in, m, failed)
				if _, err := r.ReadBytes('\n'); err != nil {
					b.Fatal(err)
				}
				if err := <-failed; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func plainSend(w io.Writer, m []byte, failed chan<- error) {
	_, err := w.Write(m)
	failed <- err
}

func BenchmarkStartStop(b *testing.B) {
	d := New(Options{})
	program := suite.Program(b)
	for b.Loop() {
		inst, err := d.Start(b.Context(), suite.Spec(b, program))
		if err != nil {
			b.Fatal(err)
		}
		if err := inst.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCensus(b *testing.B) {
	var c census
	for b.Loop() {
		c.Members()
	}
}
