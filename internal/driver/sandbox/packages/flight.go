package packages

import "context"

// flight is a fetch that several may wait for. It has a context of its own, so
// that whoever came first may leave, and ends early when the last one leaves.
type flight struct {
	cancel  context.CancelFunc
	waiting int
	done    chan struct{}
	rec     *record
	err     error
}

// share joins the fetch of a wish, or starts it.
func (s *Store) share(ctx context.Context, w Wanted, refresh bool) (*record, error) {
	key := w.key()
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
		f := s.flights[key]
		switch {
		case f == nil:
			own, cancel := context.WithCancel(context.WithoutCancel(ctx))
			f = &flight{cancel: cancel, waiting: 1, done: make(chan struct{})}
			s.flights[key] = f
			go s.fly(own, f, key, w, refresh)
		case f.waiting == 0:
			// Everybody left and it is being cut: wait for that, then begin again.
			s.mu.Unlock()
			select {
			case <-f.done:
			case <-ctx.Done():
			}
			continue
		default:
			f.waiting++
		}
		s.mu.Unlock()

		select {
		case <-f.done:
			return f.rec, f.err
		case <-ctx.Done():
		}
		s.mu.Lock()
		f.waiting--
		last := f.waiting == 0
		s.mu.Unlock()
		if last {
			f.cancel()
			<-f.done // nothing of it is left when we return
			if f.err == nil {
				return f.rec, nil
			}
		}
		return nil, context.Cause(ctx)
	}
}

func (s *Store) fly(ctx context.Context, f *flight, key string, w Wanted, refresh bool) {
	defer f.cancel()
	rec, err := s.fetch(ctx, key, w, refresh)
	s.mu.Lock()
	f.rec, f.err = rec, err
	delete(s.flights, key)
	s.mu.Unlock()
	close(f.done)
}
