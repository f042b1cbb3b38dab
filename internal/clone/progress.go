package clone

import "sync"

// progress counts what was copied and reports it to the caller.
type progress struct {
	report func(done, total int64)

	mu    sync.Mutex
	done  int64
	files int64
	total int64
}

func (p *progress) bytes(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.report == nil || n == 0 {
		return
	}
	p.total = max(p.total, p.done) // the source has grown
	p.report(p.done, p.total)
}

func (p *progress) file() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files++
}

// finish reports the end of a source that became smaller than it was, or that is
// empty.
func (p *progress) finish() {
	if p.report != nil && (p.done != p.total || p.total == 0) {
		p.report(p.done, p.done)
	}
}
