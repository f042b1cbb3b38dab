package spec

import "testing"

func TestFindPrice(t *testing.T) {
	prices := Prices{"a": {Input: 1}, "openai/a": {Input: 2}, "b-20250101": {Input: 3}}.With(Prices{"b": {Input: 4}, "c": {}})
	for _, tt := range []struct {
		provider, name string
		want           float64 // negative for none
	}{
		{"anthropic", "a", 1}, {"openai", "a", 2}, {"openai", "a-2025-01-02", 2}, {"anthropic", "a-latest", 1},
		{"x", "b-20250101", 3}, {"x", "b-20250102", 4}, {"x", "c", 0},
		{"x", "d", -1}, {"x", "a-2025", -1}, {"x", "a-mini", -1}, {"x", "", -1},
	} {
		p, ok := prices.Of(tt.provider, tt.name)
		if ok != (tt.want >= 0) || ok && p.Input != tt.want {
			t.Errorf("%s/%s: %+v, %v", tt.provider, tt.name, p, ok)
		}
	}
}

// The table must not have a slip of the pen: output costs more than input, a read of
// the cache less.
func TestDefaultPrices(t *testing.T) {
	for name, p := range DefaultPrices() {
		for at := &p; at != nil; at = at.Long {
			if at.Input <= 0 || at.Output < 4*at.Input*0.9 || at.Output > 8*at.Input || at.CacheRead <= 0 || at.CacheRead > at.Input/2 || at.CacheWrite < at.Input {
				t.Errorf("%s costs %+v", name, *at)
			}
		}
	}
}
