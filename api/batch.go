package api

import "encoding/json"

// Bounds of a batch.
const (
	MaxBatch       = 10_000 // items
	MaxAtOnce      = 256    // items that run at once
	DefaultAtOnce  = 32
	minBatchAtOnce = 1
)

// Batch is the body of POST /v1/batch: many requests in one. The answer has a line of
// JSON for each item as it ends, in any order, and at last one with Done; without that
// line it broke off. A client that leaves ends what has not begun.
//
// An Idempotency-Key header is for requests that create something, here open and fork:
// the same batch with the same key gives the same answers. Calls can't be repeated
// safely, and are refused in a batch with a key.
type Batch struct {
	Items []BatchItem `json:"items"`
	// Atomic, which is for open and fork alone, makes all sessions or none: the answers
	// come when all have succeeded. If an item fails, what the others made is closed
	// again, and every item has an error.
	Atomic bool `json:"atomic,omitempty"`
	AtOnce int  `json:"at_once,omitempty" min:"1"` // how many items run at once; default 32, at most 256
}

// BatchItem is one request of a batch: exactly one of its fields is given.
type BatchItem struct {
	Open  *NewSession  `json:"open,omitempty"`
	Fork  *BatchFork   `json:"fork,omitempty"`
	Call  *CallRequest `json:"call,omitempty"`
	Close *BatchClose  `json:"close,omitempty"`
}

// BatchFork forks a session.
type BatchFork struct {
	Session string `json:"session"`
	ForkRequest
}

// BatchClose closes a session.
type BatchClose struct {
	Session string `json:"session"`
}

// BatchLine is one line of the answer.
type BatchLine struct {
	Item   *int            `json:"item,omitempty"` // counted from 0; not in the last line
	Opened *OpenedSession  `json:"opened,omitempty"`
	Forks  *Forks          `json:"forks,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // of a call, a CallToolResult
	Call   string          `json:"call,omitempty"`   // the id of the call
	Closed bool            `json:"closed,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Status int             `json:"status,omitempty"` // the HTTP status that the error has elsewhere
	Done   bool            `json:"done,omitempty"`   // of the last line
	Failed *int            `json:"failed,omitempty"` // of the last line: how many items failed
}

// Valid says what is wrong with a batch as a whole, as an *Error of KindInvalid.
func (b *Batch) Valid(keyed bool) error {
	switch n := len(b.Items); {
	case n == 0:
		return wrong("items must have at least one")
	case n > MaxBatch:
		return wrong("there are %d items and may be %d", n, MaxBatch)
	case b.AtOnce != 0 && (b.AtOnce < minBatchAtOnce || b.AtOnce > MaxAtOnce):
		return wrong("at_once must be a number from %d to %d", minBatchAtOnce, MaxAtOnce)
	}
	for i, item := range b.Items {
		n := 0
		for _, has := range [...]bool{item.Open != nil, item.Fork != nil, item.Call != nil, item.Close != nil} {
			if has {
				n++
			}
		}
		switch {
		case n != 1:
			return wrong("items[%d] must have one of open, fork, call and close, and has %d", i, n)
		case b.Atomic && item.Open == nil && item.Fork == nil:
			return wrong("items[%d] must be an open or a fork: a call or a close can't be taken back, so that it can't be atomic", i)
		case keyed && item.Call != nil:
			return wrong("items[%d] is a call, which can't be repeated safely; send calls in a batch without an idempotency key", i)
		case item.Fork != nil && item.Fork.Session == "":
			return wrong("items[%d].fork.session must name a session", i)
		case item.Close != nil && item.Close.Session == "":
			return wrong("items[%d].close.session must name a session", i)
		}
	}
	return nil
}
