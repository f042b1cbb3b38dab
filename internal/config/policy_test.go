package config

import (
	"testing"
	"time"
)

func TestPolicyErrors(t *testing.T) {
	policy := func(p string) string { return "servers:\n  a: {builtin: time, policy: {" + p + "}}\n" }
	testErrors(t, []wrongConfig{
		{"unknown key", policy("retries: 3"),
			`tine.yaml:2:31: unknown key "retries" in servers.a.policy; did you mean "retry"?`},
		{"ranges", policy("retry: {attempts: 0}, breaker: {failures: 1001, probes: 0}, rate: {calls: -1, burst: 0}, concurrency: {calls: 100001, queue: -1}"),
			`tine.yaml:2:49: servers.a.policy.retry.attempts: 0 is out of range; want 1 to 10
tine.yaml:2:73: servers.a.policy.breaker.failures: 1001 is out of range; want 0 to 1000
tine.yaml:2:87: servers.a.policy.breaker.probes: 0 is out of range; want 1 to 100
tine.yaml:2:105: servers.a.policy.rate.calls: -1 is out of range; want 0 to 1000000
tine.yaml:2:116: servers.a.policy.rate.burst: 0 is out of range; want 1 to 1000000
tine.yaml:2:141: servers.a.policy.concurrency.calls: 100001 is out of range; want 0 to 100000
tine.yaml:2:156: servers.a.policy.concurrency.queue: -1 is out of range; want 0 to 100000`},
		{"durations", policy("max_timeout: 60, retry: {pause: 2m}, breaker: {open: 0}, concurrency: {wait: 1d}, cache: {lists: 31d, results: -1s}"),
			`tine.yaml:2:44: servers.a.policy.max_timeout: 60 has no unit; write 60s or 60ms
tine.yaml:2:63: servers.a.policy.retry.pause: "2m" is out of range; want 0s to 1m
tine.yaml:2:84: servers.a.policy.breaker.open: 0 is out of range; want 1ms to 1d
tine.yaml:2:108: servers.a.policy.concurrency.wait: "1d" is out of range; want 0s to 1h
tine.yaml:2:128: servers.a.policy.cache.lists: "31d" is out of range; want 0s to 30d
tine.yaml:2:142: servers.a.policy.cache.results: "-1s" is out of range; want 0s to 30d`},
		{"numbers", policy("rate: {calls: .nan}, retry: {attempts: 2.5}"),
			`tine.yaml:2:45: servers.a.policy.rate.calls: .nan is out of range; want 0 to 1000000
tine.yaml:2:70: servers.a.policy.retry.attempts: got 2.5, want a whole number from 1 to 10`},
		{"number as text", policy("rate: {calls: '5'}"),
			`tine.yaml:2:45: servers.a.policy.rate.calls: got "5", want a number from 0 to 1000000`},
		{"no number at all", policy("rate: {calls: .inf}"),
			`tine.yaml:2:45: servers.a.policy.rate.calls: .inf is out of range; want 0 to 1000000`},
		{"short forms", policy("retry: false, breaker: no, rate: off, cache: 0"),
			`tine.yaml:2:38: servers.a.policy.retry: got false, want off, or a map of attempts, pause, max_pause
tine.yaml:2:54: servers.a.policy.breaker: got "no", want off, or a map of failures, open, probes
tine.yaml:2:64: servers.a.policy.rate: want a map of calls, burst, got a string
tine.yaml:2:76: servers.a.policy.cache: got 0, want off, or a map of lists, results, tools`},
		{"pauses", policy("retry: {pause: 10s}"),
			`tine.yaml:2:38: servers.a.policy.retry: pause is 10s, which is longer than max_pause with 5s; raise max_pause, or lower pause`},
		{"patterns", policy("cache: {tools: ['[', '']}"),
			`tine.yaml:2:47: servers.a.policy.cache.tools[0]: "[" is not a pattern; write a tool's name, with * for any characters
tine.yaml:2:52: servers.a.policy.cache.tools[1]: "" is not a pattern; write a tool's name, with * for any characters`},
		{"shorter than timeout", "servers:\n  a: {builtin: time, timeout: 10m, policy: {max_timeout: 5m}}\n",
			`tine.yaml:2:58: servers.a.policy.max_timeout: 5m is shorter than timeout, which is 10m; raise it, or lower timeout`},
		{"shorter than the default", policy("max_timeout: 1m"),
			`tine.yaml:2:44: servers.a.policy.max_timeout: 1m is shorter than timeout, which is 5m; raise it, or lower timeout`},
		{"journal of a server", "servers:\n  a: {builtin: time, journal: none}\n",
			`tine.yaml:2:31: servers.a.journal: got "none", want full, meta or off`},
	})
}

func TestPolicyFollowsOtherKeys(t *testing.T) {
	c := mustParse(t, `servers:
  long: {builtin: time, timeout: 3h}
  fast: {builtin: time, policy: {rate: {calls: 2.1}}}
  slow: {builtin: time, policy: {rate: {calls: 0.01}}}
  both: {builtin: time, timeout: 10s, policy: {max_timeout: 20s, rate: {calls: 100, burst: 3}}}
  text: {builtin: time, policy: {breaker: "${B:-off}", rate: {calls: "${R:-7.5}"}}}
`, noEnv())
	for id, want := range map[string]struct {
		most  time.Duration
		burst int
	}{
		"long": {3 * time.Hour, 1}, "fast": {time.Hour, 3}, "slow": {time.Hour, 1}, "both": {20 * time.Second, 3}, "text": {time.Hour, 8},
	} {
		p := serverOf(t, c, id).Policy
		if p.MaxTimeout != want.most || p.Rate.Burst != want.burst {
			t.Errorf("%s: %v and %d, want %v and %d", id, p.MaxTimeout, p.Rate.Burst, want.most, want.burst)
		}
	}
	if got := serverOf(t, c, "text").Policy; got.Breaker.Failures != 0 || got.Rate.Calls != 7.5 {
		t.Errorf("from placeholders: %+v", got)
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"7d": 7 * day, "1d12h": 36 * time.Hour, "0d": 0, "0": 0, " 2d ": 2 * day, "1d0.5s": day + 500*time.Millisecond, "106751d": 106751 * day,
	} {
		if got, ok := parseDuration(in); !ok || got != want {
			t.Errorf("%q: %v %v, want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "d", "1d-1h", "1d+1h", "-1d", "1h1d", "1.5d", "1d1d", "106752d", "106751d24h", "999999d", "9999999d", "7days", "1d x"} {
		if got, ok := parseDuration(in); ok {
			t.Errorf("%q: %v", in, got)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 90 * time.Second: "1m30s", time.Hour: "1h", day: "1d", 7 * day: "7d", 36 * time.Hour: "36h", 10 * time.Minute: "10m",
	} {
		got := Brief(d)
		if back, ok := parseDuration(got); got != want || !ok || back != d {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
