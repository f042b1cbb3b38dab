package model

import (
	"strings"

	"github.com/tine-mcp/tine/internal/model/spec"
)

// The prices of models.
type (
	Price  = spec.Price
	Prices = spec.Prices
)

// cost is what the usage of one request costs.
func cost(p Price, u Usage) float64 {
	if p.Long != nil && u.prompt() > p.Above {
		return cost(*p.Long, u)
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

// find looks for the price of a model by its provider and its name there.
func find(p Prices, provider, name string) (Price, bool) {
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
