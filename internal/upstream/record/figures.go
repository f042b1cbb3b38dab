package record

import (
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
)

// Figures are a server's calls in numbers.
type Figures struct {
	Since    time.Time // when the server was first known
	Calls    int64
	Failures int64
	Latency  *api.Latency   // nil before the first call
	Last     *api.LastError // nil before the first failure
}

// Figures returns the numbers as they are now. Nothing secret is in them.
func (s *Server) Figures() Figures {
	f := Figures{Since: s.began, Calls: s.calls.Load(), Failures: s.failures.Load()}
	s.mu.Lock()
	n := s.next
	if s.full {
		n = latencies
	}
	ring := slices.Clone(s.ring[:n])
	if s.last != nil {
		last := *s.last
		f.Last = &last
	}
	s.mu.Unlock()
	if f.Last != nil {
		f.Last.Message = s.o.Redact.Text(f.Last.Message)
	}
	if n > 0 {
		slices.Sort(ring)
		f.Latency = &api.Latency{Count: n, P50: millis(ring[n/2]), P95: millis(ring[n*95/100])}
	}
	return f
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
