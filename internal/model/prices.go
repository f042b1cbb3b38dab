package model

import "github.com/tine-mcp/tine/internal/model/spec"

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
