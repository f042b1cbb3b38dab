package config

import (
	"math"
	"time"
)

// policyTable are the keys of policy.
var policyTable = Table[Policy]{
	Put("max_timeout", func(p *Policy) *time.Duration { return &p.MaxTimeout }, Duration(time.Millisecond, 30*day).Unless("`1h`, or `timeout` where that is longer").In("`timeout` to `30d`"),
		"bounds a call however often progress renewed its `timeout`"),
	Put("retry", func(p *Policy) *Retry { return &p.Retry }, Map(retryTable, func(r *Retry, _ string) { r.Attempts = 1 }, off).Inline().Then(pauseFits), "retries of a call that failed before it took effect"),
	Put("breaker", func(p *Policy) *Breaker { return &p.Breaker }, Map(breakerTable, func(b *Breaker, _ string) { b.Failures = 0 }, off).Inline(), "circuit breaker"),
	Put("rate", func(p *Policy) *Rate { return &p.Rate }, rateValue, "calls per second"),
	Put("concurrency", func(p *Policy) *Concurrency { return &p.Concurrency }, Map(concurrencyTable, nil).Inline(), "concurrent calls"),
	Put("cache", func(p *Policy) *Cache { return &p.Cache }, Map(cacheTable, func(c *Cache, _ string) { c.Lists, c.Results = 0, 0 }, off).Inline(), "cached answers"),
}

var retryTable = Table[Retry]{
	Put("attempts", func(r *Retry) *int { return &r.Attempts }, Int[int](1, 10).Begin(3), "attempts in total, where nothing was sent yet or the tool is read-only or idempotent; 1 for no retry"),
	Put("pause", func(r *Retry) *time.Duration { return &r.Pause }, Duration(0, time.Minute).Begin(200*time.Millisecond), "before the first retry; it grows, with jitter"),
	Put("max_pause", func(r *Retry) *time.Duration { return &r.MaxPause }, Duration(0, 10*time.Minute).Begin(5*time.Second).In("`pause` to `10m`"), "the longest pause"),
}

var breakerTable = Table[Breaker]{
	Put("failures", func(b *Breaker) *int { return &b.Failures }, Int[int](0, 1000).Begin(5).Always(), "consecutive failures that open it; 0 for never"),
	Put("open", func(b *Breaker) *time.Duration { return &b.Open }, Duration(time.Millisecond, day).Begin(30*time.Second), "time until a probe is let through"),
	Put("probes", func(b *Breaker) *int { return &b.Probes }, Int[int](1, 100).Begin(1), "probes that must succeed to close it"),
}

var rateTable = Table[Rate]{
	Put("calls", func(r *Rate) *float64 { return &r.Calls }, Number(0, 1e6).Unless("`0`").Always(), "calls a second, fairly between principals; 0 for no bound, 0.5 for one in two seconds"),
	Put("burst", func(r *Rate) *int { return &r.Burst }, Int[int](1, 1e6).Unless("`calls`, at least 1"), "burst size"),
}

// rateValue is a bound of calls in time.
var rateValue = func() Value[Rate] {
	v := Map(rateTable, nil).Inline()
	show := v.Show
	v.Show = func(r Rate, at Place) *Node { return show(r.Filled(), at) }
	return v
}()

var concurrencyTable = Table[Concurrency]{
	Put("calls", func(c *Concurrency) *int { return &c.Calls }, Int[int](0, 100_000).Unless("`0`").Always(), "concurrent calls, shared fairly between principals; 0 for no bound"),
	Put("queue", func(c *Concurrency) *int { return &c.Queue }, Int[int](0, 100_000).Begin(128).Always(), "calls that may wait for a turn, also for the rate"),
	Put("wait", func(c *Concurrency) *time.Duration { return &c.Wait }, Duration(0, time.Hour).Begin(10*time.Second), "the longest wait"),
}

var cacheTable = Table[Cache]{
	Put("lists", func(c *Cache) *time.Duration { return &c.Lists }, Duration(0, 30*day).Begin(5*time.Minute), "how long lists are cached where the server does not say; 0 for not at all"),
	Put("results", func(c *Cache) *time.Duration { return &c.Results }, Duration(0, 30*day).Unless("`0s`"), "how long results of read-only tools are cached; 0 for not at all"),
	Put("tools", func(c *Cache) *[]string { return &c.Tools }, Set(Patterns(`["get_*"]`, "a tool's name", false).As("list of patterns").Unless("all")), "the read-only tools whose results are cached"),
}

// off is the short form of a policy that is not wanted.
const off = "off"

// policyFits checks that the policy goes with the timeout.
func (d *decoder) policyFits(o Object, s *Server) {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = s.defaultTimeout()
	}
	// Progress renews a call's timeout up to max_timeout; below it one of the two
	// would mean nothing.
	if most := s.Policy.MaxTimeout; most != 0 && most < timeout {
		at := o.KeyPos("timeout")
		if n := o.Below("policy").Get("max_timeout"); n != nil {
			at = n.Pos
		}
		d.fail(at, "%s.policy.max_timeout: %s is shorter than timeout, which is %s; raise it, or lower timeout", o.Path, Brief(most), Brief(timeout))
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

func pauseFits(p Object, key string, r *Retry) {
	if r.MaxPause < r.Pause {
		p.Fail(p.Get(key).Pos, "%s: pause is %s, which is longer than max_pause with %s; raise max_pause, or lower pause", join(p.Path, key), Brief(r.Pause), Brief(r.MaxPause))
	}
}
