package config

import (
	"math"
	"time"
)

var (
	policyKeys      = []string{"max_timeout", "retry", "breaker", "rate", "concurrency", "cache"}
	retryKeys       = []string{"attempts", "pause", "max_pause"}
	breakerKeys     = []string{"failures", "open", "probes"}
	rateKeys        = []string{"calls", "burst"}
	concurrencyKeys = []string{"calls", "queue", "wait"}
	cacheKeys       = []string{"lists", "results", "tools"}
)

// off is the short form of a policy that is not wanted.
const off = "off"

// policy reads what the calls of a server are subject to, over what is there.
func (d *decoder) policy(o Object, s *Server) {
	p, ok := o.Child("policy", policyKeys)
	if ok {
		p.Duration("max_timeout", &s.Policy.MaxTimeout, time.Millisecond, 30*day)
		d.retry(p, &s.Policy.Retry)
		d.breaker(p, &s.Policy.Breaker)
		s.Policy.Rate.read(p)
		if c, ok := p.Child("concurrency", concurrencyKeys); ok {
			c.Integer("calls", &s.Policy.Concurrency.Calls, 0, 100_000)
			c.Integer("queue", &s.Policy.Concurrency.Queue, 0, 100_000)
			c.Duration("wait", &s.Policy.Concurrency.Wait, 0, time.Hour)
		}
		d.cache(p, &s.Policy.Cache)
	}
	timeout := s.Timeout
	if timeout == 0 {
		timeout = s.defaultTimeout()
	}
	// Progress renews a call's timeout up to max_timeout; below it one of the two
	// would mean nothing.
	if most := s.Policy.MaxTimeout; most != 0 && most < timeout {
		at := o.KeyPos("timeout")
		if ok && p.n.Get("max_timeout") != nil {
			at = p.n.Get("max_timeout").Pos
		}
		d.fail(at, "%s.policy.max_timeout: %s is shorter than timeout, which is %s; raise it, or lower timeout", o.Path, Brief(most), Brief(timeout))
	}
}

// read reads a rate over what is there.
func (r *Rate) read(o Object) {
	if n, ok := o.Child("rate", rateKeys); ok {
		n.Number("calls", &r.Calls, 0, 1e6)
		n.Integer("burst", &r.Burst, 1, 1e6)
	}
}

// Filled is the rate with the burst that follows from its calls, where it has
// none.
func (r Rate) Filled() Rate {
	if r.Burst == 0 {
		r.Burst = max(1, int(math.Ceil(r.Calls)))
	}
	return r
}

func (d *decoder) retry(p Object, to *Retry) {
	r, word, ok := p.ChildOr("retry", retryKeys, off)
	if word == off {
		to.Attempts = 1
	}
	if !ok {
		return
	}
	r.Integer("attempts", &to.Attempts, 1, 10)
	r.Duration("pause", &to.Pause, 0, time.Minute)
	r.Duration("max_pause", &to.MaxPause, 0, 10*time.Minute)
	if to.MaxPause < to.Pause {
		d.fail(r.n.Pos, "%s: pause is %s, which is longer than max_pause with %s; raise max_pause, or lower pause", r.Path, Brief(to.Pause), Brief(to.MaxPause))
	}
}

func (d *decoder) breaker(p Object, to *Breaker) {
	b, word, ok := p.ChildOr("breaker", breakerKeys, off)
	if word == off {
		to.Failures = 0
	}
	if !ok {
		return
	}
	b.Integer("failures", &to.Failures, 0, 1000)
	b.Duration("open", &to.Open, time.Millisecond, day)
	b.Integer("probes", &to.Probes, 1, 100)
}

func (d *decoder) cache(p Object, to *Cache) {
	c, word, ok := p.ChildOr("cache", cacheKeys, off)
	if word == off {
		to.Lists, to.Results = 0, 0
	}
	if !ok {
		return
	}
	c.Duration("lists", &to.Lists, 0, 30*day)
	c.Duration("results", &to.Results, 0, 30*day)
	if c.Texts("tools", &to.Tools, `["get_*"]`) {
		c.patterns("tools", "a tool's name")
	}
}
