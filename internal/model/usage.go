package model

import "encoding/json"

// Usage is what calls used. The four counts of tokens do not overlap: InputTokens
// are neither read from a cache nor written to one.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CacheRead    int64 `json:"cache_read_tokens"`
	CacheWrite   int64 `json:"cache_write_tokens"`
	// Calls counts calls of Ask that were sent, whatever came of them. The repeated
	// attempts of one are not counted.
	Calls int64 `json:"llm_calls"`
	// Cost is in US dollars.
	Cost float64 `json:"cost_usd"`
	// CostUnknown says that Cost is not all of it: a model has no price, or an endpoint
	// did not report what it used and the tokens are an estimate.
	CostUnknown bool `json:"cost_unknown,omitempty"`
}

// Add adds what other calls used.
func (u *Usage) Add(v Usage) {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
	u.Calls += v.Calls
	u.Cost += v.Cost
	u.CostUnknown = u.CostUnknown || v.CostUnknown
}

// Tokens is the sum of all four counts, as budgets count them.
func (u Usage) Tokens() int64 { return u.prompt() + u.OutputTokens }

// prompt is what was read by the model, cached or not.
func (u Usage) prompt() int64 { return u.InputTokens + u.CacheRead + u.CacheWrite }

// bytesPerToken is on the low side, so that estimates are on the high side: English
// has about four bytes a token, JSON and code about three.
const bytesPerToken = 3

func estimate(bytes int) int64 { return int64(bytes)/bytesPerToken + 1 }

// estimateInput is about how many tokens the request has, for budgets.
func estimateInput(r *Request) int64 {
	n := len(r.System)
	for i := range r.Messages {
		n += messageBytes(&r.Messages[i])
	}
	for _, t := range r.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return estimate(n)
}

func messageBytes(m *Message) int {
	n := len(m.Text) + len(m.Raw)
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	for _, r := range m.Results {
		n += len(r.Text)
	}
	return n
}

// object makes the arguments of a call from what a model wrote.
func object(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("{}")
	}
	if isObject(json.RawMessage(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a string always marshals
	return quoted
}

func isObject(raw json.RawMessage) bool {
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return c == '{' && json.Valid(raw)
	}
	return false
}
