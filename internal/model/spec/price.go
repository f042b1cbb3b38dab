package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// ReadPrices reads those of the settings.
func ReadPrices(data []byte) (p Prices, err error) {
	if len(data) == 0 {
		return nil, nil
	}
	const like = "write {input: 3, output: 15}, and if need be cache_read, cache_write, above and long, in dollars by the million tokens"
	var given map[string]json.RawMessage
	if json.Unmarshal(data, &given) != nil {
		return nil, errors.New("it must be a map of names of models; " + like)
	}
	p = Prices{}
	for name, text := range given {
		var keys map[string]json.RawMessage
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		var price Price
		if dec.Decode(&price) != nil || json.Unmarshal(text, &keys) != nil || keys["input"] == nil || keys["output"] == nil {
			return nil, fmt.Errorf("%s: %s", name, like)
		}
		p[name] = price
	}
	for name, price := range p {
		for each := &price; each != nil; each = each.Long {
			if each.Input < 0 || each.Output < 0 || each.CacheRead < 0 || each.CacheWrite < 0 || each.Above < 0 {
				return nil, fmt.Errorf("%s: a price must not be negative", name)
			}
		}
	}
	return p, nil
}

// Of is the price of a model by its provider and its name there.
func (p Prices) Of(provider, name string) (Price, bool) {
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
