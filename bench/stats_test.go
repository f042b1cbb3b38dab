package main

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tc := range []struct {
		in   []time.Duration
		p    int
		want time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{7}, 50, 7},
		{[]time.Duration{7}, 99, 7},
		{[]time.Duration{1, 2, 3, 4}, 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred[:10], 99, 10},
	} {
		if got := percentile(tc.in, tc.p); got != tc.want {
			t.Errorf("p%d of %d values is %v, want %v", tc.p, len(tc.in), got, tc.want)
		}
	}
}

func TestMedianRatio(t *testing.T) {
	rounds := func(rates ...float64) []sample {
		out := make([]sample, len(rates))
		for i, r := range rates {
			out[i].Rate = r
		}
		return out
	}
	// The second round was slow for both: pairing keeps the ratio.
	if got := medianRatio(rounds(80, 8, 81), rounds(100, 10, 100), rate); got != 0.8 {
		t.Errorf("ratio %v, want 0.8", got)
	}
	if got := medianRatio(rounds(1, 3), rounds(2, 2), rate); got != 1 {
		t.Errorf("ratio %v, want 1", got)
	}
	if got := medianRatio(nil, rounds(2), rate); got != 0 {
		t.Errorf("ratio of nothing is %v", got)
	}
	if got := medianRatio(rounds(2), rounds(0), rate); got != 0 {
		t.Errorf("ratio to nothing is %v", got)
	}
}

func TestJudge(t *testing.T) {
	full := 1.15
	lines := func(p50, rate float64, anon int64, failure string) []line {
		var out []line
		for _, era := range []string{legacyEra, statelessEra} {
			for _, name := range []string{rowTine, rowMerged} {
				for _, n := range []int{1, 16} {
					out = append(out, line{Group: era, Name: name, Callers: n, Anon: 1e6, Proxy: ratios{P50: 1, Rate: 1}})
				}
			}
		}
		for _, era := range []string{legacyEra, statelessEra} {
			for _, n := range []int{1, 16} {
				out = append(out, line{Group: era, Name: rowFull, Callers: n, Anon: 1e6, Off: ratios{P50: full}})
			}
		}
		// One cell is different; it alone must be able to miss an aim.
		out[3].Proxy, out[3].Anon, out[3].Failure = ratios{P50: p50, Rate: rate}, anon, failure
		return out
	}
	for _, tc := range []struct {
		name  string
		lines []line
		met   int
		all   bool
	}{
		{"all met", lines(1.25, 0.8, 39e6, ""), 11, true},
		{"slow", lines(1.26, 0.9, 39e6, ""), 10, false},
		{"narrow", lines(1.1, 0.79, 39e6, ""), 10, false},
		{"fat", lines(1.1, 0.9, 40e6, ""), 10, false},
		{"nothing measured", nil, 0, false},
		{"one row only", lines(1.1, 0.9, 1e6, "")[:1], 3, false},
		{"a failed call", lines(1.1, 0.9, 1e6, "wrong"), 9, false},
		{"dear with everything on", func() []line { full = 1.16; return lines(1, 1, 1e6, "") }(), 9, false},
	} {
		rep := &report{Lines: tc.lines, Aims: judge(tc.lines)}
		met := 0
		for _, a := range rep.Aims {
			if a.Met {
				met++
			}
		}
		if met != tc.met || rep.met() != tc.all {
			t.Errorf("%s: %d aims met and met() is %v, want %d and %v\n%v", tc.name, met, rep.met(), tc.met, tc.all, rep.Aims)
		}
	}
}
