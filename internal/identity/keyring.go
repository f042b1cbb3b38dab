package identity

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	fetchTimeout = 10 * time.Second // for discovery and keys together
	keysPause    = 5 * time.Second  // between two fetches, even for new kids
	keysAge      = 10 * time.Minute // after which withdrawn keys are noticed
	firstPause   = time.Second      // after a failure; doubles
	lastPause    = time.Minute
)

// A keyring holds the keys of an issuer and fetches them when they are needed:
// lazily at first, one fetch at a time, with pauses between two of them. Keys
// stay usable while the issuer can't be reached. No lock is held over I/O.
type keyring struct {
	issuer string
	caFile string
	now    func() time.Time
	log    *slog.Logger

	ctx     context.Context // of the fetches
	cancel  context.CancelFunc
	fetches sync.WaitGroup

	current atomic.Pointer[keySet] // nil before the first fetch

	mu       sync.Mutex
	flight   chan struct{} // closed when the running fetch ends; nil without one
	next     time.Time     // no fetch begins before
	failures int           // in a row
	closed   bool

	keysURL string // found by discovery; only the running fetch uses it
}

func newKeyring(issuer, caFile string, now func() time.Time, log *slog.Logger) *keyring {
	k := &keyring{issuer: issuer, caFile: caFile, now: now, log: log}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// close ends the running fetch and waits for it. The keys stay.
func (k *keyring) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.cancel()
	k.fetches.Wait()
}

// unavailable is why there are no keys, or no recent ones.
type unavailable struct {
	wait time.Duration // until the next fetch
}

func (u *unavailable) Error() string {
	return fmt.Sprintf("the issuer is not asked again for %s", u.wait)
}

// fetch gets the keys anew, or waits for the running fetch. It returns nil if a
// fetch succeeded while it waited, or just before; *unavailable if the last one
// failed; and the error of ctx.
func (k *keyring) fetch(ctx context.Context) error {
	done, err := k.begin()
	if done == nil {
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble()
}

// begin starts a fetch unless one is running or it is too soon for one. The fetch
// belongs to the keyring, not to the first caller, since others wait for it too.
func (k *keyring) begin() (done <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight == nil {
		if k.closed || k.now().Before(k.next) {
			return nil, k.trouble()
		}
		flight := make(chan struct{})
		k.flight = flight
		k.fetches.Go(func() { k.run(flight) })
	}
	return k.flight, nil
}

// trouble says whether the last fetch failed. The lock is held.
func (k *keyring) trouble() error {
	if k.failures == 0 && !k.closed {
		return nil
	}
	return &unavailable{wait: max(k.next.Sub(k.now()), firstPause)}
}

// nextFetch is when keys may be fetched again.
func (k *keyring) nextFetch() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.next
}

func (k *keyring) run(flight chan struct{}) {
	ctx, cancel := context.WithTimeout(k.ctx, fetchTimeout)
	defer cancel()
	set, err := k.load(ctx)
	now := k.now()
	k.mu.Lock()
	failed, old := k.failures, k.current.Load()
	if err == nil {
		set.follow(old, now)
		k.current.Store(set)
		k.failures, k.next = 0, now.Add(keysPause)
	} else {
		pause := min(firstPause<<min(failed, 10), lastPause)
		if old != nil {
			pause = max(pause, keysPause) // only tokens of unknown keys wait for it
		}
		k.failures, k.next = failed+1, now.Add(pause)
	}
	pause := k.next.Sub(now)
	k.flight = nil
	k.mu.Unlock()
	close(flight)
	switch {
	case k.ctx.Err() != nil:
	case err != nil:
		k.log.Warn("the keys of the issuer could not be fetched", "issuer", k.issuer, "error", brief(err), "again_in", pause)
	case failed > 0:
		k.log.Info("the issuer answers again", "issuer", k.issuer)
	}
}
