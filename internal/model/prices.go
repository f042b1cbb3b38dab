package model

import (
	"maps"
	"strings"
)

// A Price is in US dollars for a million tokens. A price of the cache that is zero
// while Input is not means that the tokens cost as much as others.
type Price struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheWrite float64 `json:"cache_write,omitempty"`
	CacheRead  float64 `json:"cache_read,omitempty"`
	// Long is the price of requests with more than Above tokens, cached ones included.
	Above int64  `json:"above,omitempty"`
	Long  *Price `json:"long,omitempty"`
}

// cost is what the usage of one request costs.
func (p Price) cost(u Usage) float64 {
	if p.Long != nil && u.prompt() > p.Above {
		return p.Long.cost(u)
	}
	write, read := p.CacheWrite, p.CacheRead
	if write == 0 {
		write = p.Input
	}
	if read == 0 {
		read = p.Input
	}
	const million = 1e6
	return (float64(u.InputTokens)*p.Input + float64(u.OutputTokens)*p.Output +
		float64(u.CacheWrite)*write + float64(u.CacheRead)*read) / million
}

// Prices are the prices of models by name, with or without the provider, as
// anthropic/claude-opus-5-5 or claude-opus-5-5. A name stands for its dated versions
// as well.
type Prices map[string]Price

// With returns the prices with others over them.
func (p Prices) With(others Prices) Prices {
	all := maps.Clone(p)
	if all == nil {
		all = Prices{}
	}
	maps.Copy(all, others)
	return all
}

// find looks for the price of a model by its provider and its name there.
func (p Prices) find(provider, name string) (Price, bool) {
	for _, n := range []string{name, undated(name)} {
		for _, key := range []string{provider + "/" + n, n} {
			if price, ok := p[key]; ok {
				return price, true
			}
		}
	}
	return Price{}, false
}

// undated cuts the date off a model's name: claude-sonnet-4-5-20250929 and
// gpt-5-2025-08-07, also -latest.
func undated(name string) string {
	if short, ok := strings.CutSuffix(name, "-latest"); ok {
		return short
	}
	for _, form := range []string{"-00000000", "-0000-00-00"} {
		at := len(name) - len(form)
		if at > 0 && shape(name[at:]) == form {
			return name[:at]
		}
	}
	return name
}

// shape writes every digit as a zero.
func shape(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '0'
		}
		return r
	}, s)
}
