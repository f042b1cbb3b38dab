package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/tine-mcp/tine/internal/driver"
)

const (
	// networkQueue is how many connections wait for the journal at most.
	networkQueue = 4096
	// networkRate and networkBurst bound what one instance can write to the
	// journal, so that repeated refused connections of one can't push out the calls
	// of others.
	networkRate  = 10 // a second
	networkBurst = 300
	// networkInstances is of how many instances the rates are known.
	networkInstances = 4096
	// networkWarning is how often a warning about omitted connections is logged.
	networkWarning = time.Minute
)

// A networkLog writes the connections of sandboxes to the journal. The reporting
// code never waits: connections beyond the bounds are counted, and logged once a
// minute.
type networkLog struct {
	queue   chan driver.Network
	rates   *lru.Cache[string, *rate.Limiter]
	dropped atomic.Int64
	log     *slog.Logger

	mu      sync.Mutex
	end     chan struct{} // closed by close
	closed  bool
	running sync.WaitGroup
}

func newNetworkLog(log *slog.Logger) (*networkLog, error) {
	rates, err := lru.New[string, *rate.Limiter](networkInstances)
	if err != nil {
		return nil, err
	}
	return &networkLog{queue: make(chan driver.Network, networkQueue), rates: rates, log: log, end: make(chan struct{})}, nil
}

// add queues a connection. Before start it waits in the queue; after close it is
// dropped.
func (l *networkLog) add(n driver.Network) {
	if !l.rate(n).Allow() {
		l.dropped.Add(1)
		return
	}
	select {
	case l.queue <- n:
	default:
		l.dropped.Add(1)
	}
}

func (l *networkLog) rate(n driver.Network) *rate.Limiter {
	key := fmt.Sprintf("%s %s %d", n.Session, n.Server, n.Ordinal)
	fresh := rate.NewLimiter(networkRate, networkBurst)
	if known, ok, _ := l.rates.PeekOrAdd(key, fresh); ok {
		l.rates.Get(key) // it was used
		return known
	}
	return fresh
}

// start writes all queued and later connections. The ctx that write gets does not
// end before it returns.
func (l *networkLog) start(write func(context.Context, driver.Network)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.running.Go(func() {
		tick := time.NewTicker(networkWarning)
		defer tick.Stop()
		for {
			select {
			case n := <-l.queue:
				write(context.Background(), n)
			case <-tick.C:
				l.warn()
			case <-l.end:
				for {
					select {
					case n := <-l.queue:
						write(context.Background(), n)
					default:
						l.warn()
						return
					}
				}
			}
		}
	})
}

func (l *networkLog) warn() {
	if n := l.dropped.Swap(0); n > 0 {
		l.log.Warn("connections of sandboxes are not in the journal: there were too many", "connections", n)
	}
}

// close returns when all queued connections are written. It may be called twice.
func (l *networkLog) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.end)
	}
	l.mu.Unlock()
	l.running.Wait()
}
