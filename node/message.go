package node

import (
	"bytes"
	"encoding/json"
	"iter"
)

// answerOf is the result in a message that answers a request, as it was sent; an error
// has none. The SDK decodes the same message, and says what is not valid in it.
func answerOf(message []byte) (result json.RawMessage, ok bool) {
	for name, value := range members(message) {
		switch string(name) {
		case "method":
			return nil, false
		case "result":
			result, ok = value, true
		case "error":
			ok = true
		}
	}
	return result, ok
}

// members are the names and values of a JSON object, in their order. What is no object
// has none. What is not valid is not always noticed: it ends them, or gives others.
func members(data []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		rest, more := bytes.CutPrefix(bytes.TrimLeft(data, space), []byte("{"))
		for more {
			var name, value []byte
			if name, rest = cutValue(rest); len(name) == 0 || name[0] != '"' {
				return
			}
			if rest, more = bytes.CutPrefix(rest, []byte(":")); !more {
				return
			}
			if value, rest = cutValue(rest); len(value) == 0 {
				return
			}
			if bytes.IndexByte(name, '\\') < 0 && len(name) > 1 {
				name = name[1 : len(name)-1]
			} else {
				var s string
				if json.Unmarshal(name, &s) != nil {
					return
				}
				name = []byte(s)
			}
			if !yield(name, value) {
				return
			}
			rest, more = bytes.CutPrefix(rest, []byte(","))
		}
	}
}

const space = " \t\r\n"

// cutValue cuts the JSON value off that data begins with, and the space around it.
func cutValue(data []byte) (value, rest []byte) {
	data = bytes.TrimLeft(data, space)
	end := valueEnd(data)
	return data[:end], bytes.TrimLeft(data[end:], space)
}

func valueEnd(data []byte) int {
	if len(data) == 0 {
		return 0
	}
	switch data[0] {
	case '"':
		return stringEnd(data, 0)
	case '{', '[':
		depth := 0
		for i := 0; i < len(data); i++ {
			switch data[i] {
			case '"':
				i = stringEnd(data, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	default:
		if i := bytes.IndexAny(data, ",:]}"+space); i >= 0 {
			return i
		}
	}
	return len(data)
}

// stringEnd is where the string ends whose first quotation mark is data[i].
func stringEnd(data []byte, i int) int {
	for {
		n := bytes.IndexByte(data[i+1:], '"')
		if n < 0 {
			return len(data)
		}
		i += 1 + n
		before := i
		for data[before-1] == '\\' {
			before--
		}
		if (i-before)%2 == 0 {
			return i + 1
		}
	}
}
