package model

import (
	"math"
	"testing"
)

func TestCost(t *testing.T) {
	const million = 1_000_000
	p := Price{Input: 1, Output: 2, CacheWrite: 3, CacheRead: 4}
	long := p
	long.Above, long.Long = million, &Price{Input: 10}
	for _, tt := range []struct {
		p    Price
		u    Usage
		want float64
	}{
		{p, Usage{}, 0},
		{p, Usage{InputTokens: million, OutputTokens: million, CacheWrite: million, CacheRead: million}, 10},
		{Price{Input: 5}, Usage{CacheWrite: million, CacheRead: million}, 10},
		{Price{}, Usage{InputTokens: million}, 0},
		{long, Usage{InputTokens: million}, 1},
		{long, Usage{InputTokens: million, CacheRead: 1}, 10.00001},
	} {
		if got := cost(tt.p, tt.u); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v for %+v costs %v, want %v", tt.p, tt.u, got, tt.want)
		}
	}
}
