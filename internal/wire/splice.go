package wire

import (
	"cmp"
	"slices"
)

// An Edit replaces a span with other bytes. A span with Start == End inserts.
type Edit struct {
	At   Span
	With []byte
}

// AppendSpliced appends src with the edits made. Edits must not overlap; they
// are sorted in place. What is inserted where another edit starts comes before
// it.
func AppendSpliced(dst, src []byte, edits []Edit) []byte {
	if len(edits) > 1 {
		slices.SortStableFunc(edits, func(a, b Edit) int {
			return cmp.Or(cmp.Compare(a.At.Start, b.At.Start), cmp.Compare(a.At.End, b.At.End))
		})
	}
	at := 0
	for _, e := range edits {
		dst = append(dst, src[at:e.At.Start]...)
		dst = append(dst, e.With...)
		at = e.At.End
	}
	return append(dst, src[at:]...)
}

// AppendRequest appends a request; with a nil id, a notification. Params may
// be nil, which is sent as an empty object, since some servers want one.
func AppendRequest(dst, id []byte, method string, params []byte, edits []Edit) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(dst, `"id":`...)
		dst = append(dst, id...)
		dst = append(dst, ',')
	}
	dst = append(dst, `"method":`...)
	dst = AppendQuote(dst, method)
	dst = append(dst, `,"params":`...)
	if len(params) == 0 {
		params = emptyObject
	}
	dst = AppendSpliced(dst, params, edits)
	return append(dst, '}')
}

var emptyObject = []byte("{}")

// AppendResult appends a successful answer.
func AppendResult(dst, id, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendFailure appends a failed answer with a raw error object. A nil id
// becomes null.
func AppendFailure(dst, id, raw []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, id...)
	}
	dst = append(dst, `,"error":`...)
	dst = append(dst, raw...)
	return append(dst, '}')
}

// InsertMember returns the edit that puts `"key":value` first in the object
// that starts at the given index of src.
func InsertMember(src []byte, object int, key string, value []byte) Edit {
	b := AppendQuote(nil, key)
	b = append(b, ':')
	b = append(b, value...)
	if i := skipSpace(src, object+1); i < len(src) && src[i] != '}' {
		b = append(b, ',')
	}
	return Edit{At: Span{object + 1, object + 1}, With: b}
}

// OneLine replaces newlines with spaces, in place. In valid JSON they can only
// stand between tokens, so the meaning stays and the message fits a line.
func OneLine(b []byte) []byte {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return b
}
